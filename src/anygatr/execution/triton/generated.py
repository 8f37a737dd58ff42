"""Kernels from generated source: Triton reads the source of a function, so the text is put where sources are looked up."""

import hashlib
import linecache
from functools import lru_cache
from typing import Any

HEADER = "import triton\nimport triton.language as tl\n\n\n"


@lru_cache(maxsize=256)
def kernel_of(source: str, name: str) -> Any:
    """The jitted function of that name in a source text."""
    text = HEADER + source
    # the name of the file is part of Triton's key for compiled kernels: the same text has the same name everywhere
    file = f"<anygatr {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module: dict[str, Any] = {"__name__": f"anygatr.generated.{name}"}
    exec(compile(text, file, "exec"), module)
    return module[name]
