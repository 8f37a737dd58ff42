"""Programs: what a block computes, as data that can be printed, compared and counted."""

import copy
import pickle

import pytest
import torch
from family import GEOMETRIES, name, stream
from torch.utils._python_dispatch import TorchDispatchMode

import anygatr
from anygatr import GATr, geometry
from anygatr.execution import execute
from anygatr.execution.c.schedule import FusedAttention, FusedLinear, Segment, schedule
from anygatr.execution.interpreter import interpret
from anygatr.execution.observed import traced
from anygatr.networks.network_program import network_program
from anygatr.nn import Block, EquiLinear, Width
from anygatr.ops import product
from anygatr.ops.batch import Batch, join_reference
from anygatr.program.program import Program
from anygatr.program.trace import trace, values_of

WIDTH = Width(8, 12)


def block_and_arguments(geo, **options):
    block = Block(geo, WIDTH, heads=2, **options).double()
    x, s = stream(geo, torch.Generator().manual_seed(0), (3, 5), WIDTH)
    return block, (x, s, Batch(join_reference(x, geo), x[..., :0], scalars=s[..., :0]))


def test_a_block_is_a_dozen_readable_lines():
    block, arguments = block_and_arguments(geometry("iP"))
    lines = str(trace(block, arguments)).splitlines()
    assert lines[0] == "program(x[8], s[12], reference[1], inputs[0], scalars[0])"
    assert lines[1].split("#")[0].strip() == "%5[8], %6[12] = norm<add 0.01>(x, s)"
    assert lines[2].endswith("# attention.qkv")
    assert "attention<2 heads, Inner(7), Distance(5)>" in lines[3]
    assert 12 <= len(lines) <= 16


@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_a_program_computes_what_its_module_does(geo):
    block, arguments = block_and_arguments(geo, rope=True, inner_norm=True)
    program = trace(block, arguments)
    values, batch = values_of(arguments)
    named = dict((*block.named_parameters(), *block.named_buffers()))
    found = interpret(program, values, [named[key] for key in program.parameters], batch)
    assert all(torch.equal(a, b) for a, b in zip(found, block(*arguments), strict=True))


def test_parameters_are_named_as_in_the_state_dict():
    block, arguments = block_and_arguments(geometry("C"))
    program = trace(block, arguments)
    buffers = dict(block.named_buffers())
    assert {key for key in program.parameters if key not in buffers} == set(block.state_dict())
    net = GATr(geometry("C"), Width(1, 1), WIDTH, Width(1, 1), blocks=2, heads=2, reinsert=(0,))
    whole = network_program(net)
    assert {key for key in whole.parameters if key not in dict(net.named_buffers())} == set(net.state_dict())


def test_equal_blocks_have_equal_programs():
    (first, arguments), (second, _) = (block_and_arguments(geometry("iP")) for _ in range(2))
    a, b = trace(first, arguments), trace(second, arguments)
    assert a == b
    assert hash(a) == hash(b)
    assert schedule(a, False) is schedule(b, False)  # and are scheduled once
    other, others = block_and_arguments(geometry("C"))
    assert trace(other, others) != a
    assert pickle.loads(pickle.dumps(a)) == a == copy.deepcopy(a)
    with pytest.raises(AttributeError):
        a.steps = ()


def test_a_module_is_traced_once_until_it_changes():
    block, arguments = block_and_arguments(geometry("E"))
    first = traced(block, arguments)
    assert traced(block, arguments) is first
    block.mlp.out = EquiLinear(geometry("E"), WIDTH * 2, WIDTH).double()
    changed = traced(block, arguments)
    assert changed is not first
    assert changed.program == first.program
    handle = block.norm.register_forward_hook(lambda *_: None)
    assert traced(block, arguments) is None
    handle.remove()
    assert traced(block, arguments) is not None


def test_norms_gates_products_and_sums_become_parts_of_linear_maps():
    block, arguments = block_and_arguments(geometry("iP"))
    (segment,) = schedule(trace(block, arguments), False)
    assert [type(kernel) for kernel in segment.kernels] == [FusedLinear, FusedAttention, *[FusedLinear] * 4]
    qkv, _, out, factors, products, last = segment.kernels
    assert [k.prologue.norm is not None for k in (qkv, out, factors, products, last)] == [True, False, True, False, False]
    assert products.prologue.products is not None
    assert products.prologue.scalars == "norm"  # its scalars are the normalised ones of the stream
    assert (last.prologue.gate, last.prologue.scalars) == (True, "exact")
    assert [k.residual is not None for k in (qkv, out, factors, products, last)] == [False, True, False, False, True]
    assert [len(chain) for chain in segment.training_chains] == [1, 1, 1, 3]
    assert [len(chain) for chain in segment.inference_chains_with_attention] == [3, 3]


def test_steps_without_a_kernel_cut_a_program_into_segments():
    block, arguments = block_and_arguments(geometry("iP"), inner_norm=True)
    items = schedule(trace(block, arguments), False)
    assert [isinstance(item, Segment) for item in items] == [True, False, True, False, True]
    block, arguments = block_and_arguments(geometry("iP"))
    items = schedule(trace(block, arguments), True)  # odd products whose reference is differentiated
    assert [isinstance(item, Segment) for item in items] == [True, False, True]
    assert isinstance(items[1].op, product.ScaledFactors)


FREE = ("empty", "empty_like", "empty_strided", "new_empty", "detach")


class Launches(TorchDispatchMode):
    """Counts operations that a device would have to launch: all but views and bare allocations."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not (func.is_view or func._schema.name.split("::")[1] in FREE)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("preset", "most"), [("E", 350), ("P", 400), ("iP", 450), ("C", 350)])
def test_the_torch_backend_needs_few_launches(preset, most, monkeypatch):
    """One block's training step of configuration a, with products as another device would compute them."""
    monkeypatch.setattr(product, "eager_on_cpu", lambda *_: False)
    geo, width = geometry(preset), Width(16, 128)
    block = Block(geo, width, heads=8)
    x, s = (t.float().requires_grad_() for t in stream(geo, torch.Generator().manual_seed(0), (4, 16), width))
    batch = Batch(torch.ones(4, 16, 1), x[..., :0].detach(), scalars=s[..., :0].detach())
    with anygatr.backend("torch"), Launches() as counted:
        y, t = execute(block, x, s, batch)
        torch.autograd.grad([y, t], [x, s, *(p for p in block.parameters() if p.requires_grad)], [y.detach(), t.detach()])
    assert counted.count <= most


def test_a_program_is_made_of_frozen_parts():
    block, arguments = block_and_arguments(geometry("E"))
    program = trace(block, arguments)
    assert isinstance(program, Program)
    assert all(hash(step.op) == hash(copy.deepcopy(step.op)) for step in program.steps)
