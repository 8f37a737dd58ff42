"""Plans by their content, so that operators the compiler does not enter can be told which one to follow by a string."""

import hashlib
from typing import Any

_PLANS: dict[str, Any] = {}


def remember(plan: Any, content: object) -> str:
    """The plan's key: the same in every process, because compiled code that names it is kept on disk."""
    key = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    _PLANS.setdefault(key, plan)
    return key


def recall(key: str) -> Any:
    """The plan that was remembered under a key."""
    return _PLANS[key]
