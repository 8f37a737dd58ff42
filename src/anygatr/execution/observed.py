"""Programs of modules, kept as long as the modules stay as they were traced: same layers, same operations, no hooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from anygatr.ops.batch import Batch
from anygatr.ops.torch_state import global_hooks
from anygatr.program.program import Program
from anygatr.program.trace import trace, values_of


@dataclass(frozen=True, eq=False)
class Traced:
    """A module's program, and what it depends on."""

    program: Program
    layers: tuple[tuple[nn.Module, Any, bool], ...]  # every module inside, its operation, whether it was training
    children: tuple[tuple[dict[str, nn.Module | None], str, nn.Module], ...]  # where each is found
    owners: tuple[tuple[dict[str, Any], str, nn.Module], ...]  # where each parameter is found

    def holds(self) -> bool:
        """Whether the module is still what was traced, and nobody looks inside."""
        for layer, op, training in self.layers:
            own = layer.__dict__
            if own.get("_op") is not op or own["training"] is not training or _looked_into(own):
                return False
        return all(inside.get(name) is child for inside, name, child in self.children)

    def bind(self, arguments: Sequence[Any]) -> tuple[list[Tensor], list[Tensor], Batch | None]:
        """The values and parameters of a call, in the program's order, and its batch."""
        values, batch = values_of(arguments)
        return values, [own[name] if name in own else getattr(layer, name) for own, name, layer in self.owners], batch


_PROGRAMS: WeakKeyDictionary[nn.Module, Traced] = WeakKeyDictionary()


def traced(module: nn.Module, arguments: Sequence[Any]) -> Traced | None:
    """The program of a module with what it needs; None where the module has to run itself."""
    if global_hooks():
        return None
    known = _PROGRAMS.get(module)
    if known is not None and known.holds():
        return known
    if not _plain(module):
        return None
    program = _shared(trace(module, arguments))
    layers = tuple((m, m.__dict__.get("_op"), m.training) for m in module.modules())
    children = tuple((m._modules, name, c) for m in module.modules() for name, c in m._modules.items() if c is not None)
    owners: list[tuple[dict[str, Any], str, nn.Module]] = []
    for name in program.parameters:
        path, _, attribute = name.rpartition(".")
        layer = module.get_submodule(path)
        owners.append((layer._parameters if attribute in layer._parameters else layer._buffers, attribute, layer))
    found = Traced(program, layers, children, tuple(owners))
    _PROGRAMS[module] = found
    return found


@lru_cache(maxsize=256)
def _shared(program: Program) -> Program:
    """One object for all equal programs, so that caches find it without comparing steps."""
    return program


def is_layer(module: nn.Module) -> bool:
    """Whether it is a layer of this library and no subclass of one: then its forward is made of operations."""
    return type(module).__module__.startswith("anygatr.nn.")


def _plain(module: nn.Module) -> bool:
    """Whether all modules inside are layers of this library or torch's containers, without hooks and compiled regions."""
    for layer in module.modules():
        if _looked_into(layer.__dict__) or not (is_layer(layer) or type(layer).__module__ == "torch.nn.modules.container"):
            return False
    return True


def _looked_into(own: dict[str, Any]) -> bool:
    """Whether a layer has hooks, a compiled region or another forward."""
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return True
    return "forward" in own or own.get("_compiled_call_impl") is not None
