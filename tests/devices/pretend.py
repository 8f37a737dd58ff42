"""A pretend accelerator: tensors say device "pretend:0" while their numbers are in the CPU's memory.

It raises where a real device would, when a CPU tensor meets one of its own. It records what makes a step wait for the device
("sync") and what is copied to it ("upload"), each with the line of the package that asked for it. Autograd is torch's.
"""

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

READ_BACK = {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "_unique2", "unique_dim", "equal", "is_nonzero"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
TRANSFERS = {"_to_copy", "copy_", "lift_fresh", "detach", "set_"}
FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "_unsafe_view", "lift_fresh"}


class _Module(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: Any = 0) -> Tensor:
        return torch.zeros(8, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = 0) -> None:
        pass

    def device(self, index: Any) -> Any:
        return contextlib.nullcontext()


_setup_privateuseone_for_python_backend("pretend", backend_module=_Module())
DEVICE = torch.device("pretend:0")


class Record:
    """What happened while it was active: syncs and uploads by operator and line, and how many operators were launched."""

    active: "Record | None" = None

    def __init__(self) -> None:
        self.syncs: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()

    def __str__(self) -> str:
        return f"syncs {dict(self.syncs)}, uploads {dict(self.uploads)}"


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """Record what a device would have to wait for, be sent and launch."""
    Record.active = Record()
    try:
        yield Record.active
    finally:
        Record.active = None


def _note(kind: str, operator: str) -> None:
    if Record.active is not None:
        frames = [f for f in traceback.extract_stack() if "/anygatr/" in f.filename]
        line = f"{frames[-1].filename.split('/anygatr/')[-1]}:{frames[-1].lineno}" if frames else "outside"
        getattr(Record.active, kind)[f"{operator} at {line}"] += 1


class DeviceTensor(Tensor):
    """A tensor on the pretend device; `inner` holds its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "DeviceTensor":
        out = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=DEVICE,
        )
        out.inner = inner
        return out

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.inner})"

    def tolist(self) -> Any:
        _note("syncs", "tolist")
        return self.inner.tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> "DeviceTensor":
        copied = DeviceTensor(self.inner.clone())
        return nn.Parameter(copied, self.requires_grad) if isinstance(self, nn.Parameter) else copied

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> "DeviceTensor":
        return DeviceTensor(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Dispatch(TorchDispatchMode):
    """Also sees operators without a device tensor among their arguments: factories."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    name = func._schema.name.split("::")[-1]
    flat = tree_flatten((args, kwargs))[0]
    ours = [t for t in flat if isinstance(t, DeviceTensor)]
    host = [t for t in flat if isinstance(t, Tensor) and not isinstance(t, DeviceTensor)]
    target = kwargs.get("device")
    to_device = bool(ours) if target is None else torch.device(target).type == DEVICE.type
    _record(name, args, kwargs, ours, host, to_device)
    if ours and name not in TRANSFERS | INDEXED and any(t.dim() for t in host):
        raise RuntimeError(f"{func}: a tensor on the CPU meets one on {DEVICE}")
    if name == "_fused_sdp_choice":
        return 0  # the composite of matrix products and softmax
    func = torch.ops.aten.zeros.default if name == "_efficientzerotensor" else func  # what has no memory cannot be wrapped
    inside = tree_map(lambda t: t.inner if isinstance(t, DeviceTensor) else t, (args, dict(kwargs)))
    if target is not None:
        inside[1]["device"] = torch.device("cpu")
    out = func(*inside[0], **inside[1])
    if name == "_local_scalar_dense":
        return out
    if not to_device:
        return tree_map(lambda t: t.clone() if ours and isinstance(t, Tensor) else t, out)
    if Record.active is not None and not (func.is_view or name in FREE):
        Record.active.launches[name] += 1
    out = tree_map(lambda t: DeviceTensor(t) if isinstance(t, Tensor) else t, out)
    return return_and_correct_aliasing(func, args, kwargs, out) if ours and target is None else out


def _record(name: str, args: Any, kwargs: Any, ours: list[Any], host: list[Any], to_device: bool) -> None:
    if name == "_to_copy" and bool(ours) != to_device:
        _note("uploads" if to_device else "syncs", name)
    if not ours:
        return
    if name in READ_BACK or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _note("syncs", name)
    if name == "copy_" and host:
        _note("uploads" if isinstance(args[0], DeviceTensor) else "syncs", name)
    for index in args[1] if name in INDEXED else ():
        if isinstance(index, DeviceTensor) and index.dtype in (torch.bool, torch.uint8):
            _note("syncs", f"{name} by a mask")
        elif isinstance(index, Tensor) and not isinstance(index, DeviceTensor):
            _note("uploads", f"{name} by a CPU index")


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty(size, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    inner = [t.inner if isinstance(t, DeviceTensor) else t for t in (source, target)]
    if source.numel() and isinstance(source, DeviceTensor) != isinstance(target, DeviceTensor):
        _note("uploads" if isinstance(target, DeviceTensor) else "syncs", "copy")
    inner[1].copy_(inner[0])
    return target


_LIBRARY = torch.library.Library("aten", "IMPL")
_LIBRARY.impl("empty_strided", _empty_strided, "PrivateUse1")
_LIBRARY.impl("empty.memory_format", _empty, "PrivateUse1")
_LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")
_FALLBACK = torch.library.Library("_", "IMPL")
_FALLBACK.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # casts of autocast are the package's own


def upload(value: Any) -> Any:
    """Tensors as leaves on the device, in nested containers too."""
    return tree_map(lambda t: DeviceTensor(t.detach().clone()) if isinstance(t, Tensor) else t, value)


def download(value: Any) -> Any:
    """The numbers of tensors, as tensors on the CPU."""
    return tree_map(lambda t: t.inner.detach() if isinstance(t, DeviceTensor) else t, value)
