"""Products of 16-bit numbers as tensor cores make them, for Triton's interpreter, which multiplies the bits of bfloat16."""

from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

SHORT = {"bf16": torch.bfloat16, "fp16": torch.float16}
LANGUAGE = {"bf16": "bfloat16", "fp16": "float16"}
TensorHandle = interpreter.TensorHandle


def numbers(handle: Any) -> np.ndarray:
    """The numbers of a tensor; bfloat16 is the upper half of float32."""
    bits = str(handle.dtype.scalar) == "bf16"
    return (handle.data.astype(np.uint32) << 16).view(np.float32) if bits else handle.data


def rounded(data: np.ndarray, name: str) -> np.ndarray:
    """Rounded to the nearest number of 16 bits, as numpy holds that type."""
    short = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32)).to(SHORT[name])
    return short.view(torch.uint16).numpy() if name == "bf16" else short.numpy()


def teach(monkeypatch: Any, sums: str | None = None) -> None:
    """Exact products, added up in the type of the accumulator; or, as a fault to be noticed, in the 16 bits of `sums`."""
    builder = interpreter.InterpreterBuilder
    plain = builder.create_fp_trunc

    def dot(self: Any, a: Any, b: Any, total: Any, *_: Any) -> Any:
        made = np.matmul(numbers(a), numbers(b), dtype=total.data.dtype) + total.data
        if sums is not None and total.data.dtype == np.float32:
            made = numbers(TensorHandle(rounded(made, sums), getattr(interpreter.tl, LANGUAGE[sums]))).astype(np.float32)
        return TensorHandle(made, total.dtype.scalar)

    def truncate(self: Any, source: Any, target: Any) -> Any:
        name = str(target.scalar)
        if name not in SHORT or source.data.dtype != np.float32:
            return plain(self, source, target)
        return TensorHandle(rounded(source.data, name), target.scalar)

    monkeypatch.setattr(builder, "create_dot", dot)
    monkeypatch.setattr(builder, "create_fp_trunc", truncate)
