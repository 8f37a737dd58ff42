"""Operations with a derivative of their own, cheap to call."""

import inspect
from typing import Any, NamedTuple

import torch


class Function(torch.autograd.Function):
    """Takes all arguments in their order: sorting them out in each call, as torch does, takes as long as a small kernel."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.forward.__signature__ = _Complete.from_callable(cls.forward)  # type: ignore[attr-defined]


class _Complete(inspect.Signature):
    """Of calls that leave no argument out and name none."""

    __slots__ = ()

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """The arguments as they came."""
        return super().bind(*args, **kwargs) if kwargs else _Bound(args)


class _Bound(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}  # noqa: RUF012  a field

    def apply_defaults(self) -> None:
        """There are none."""
