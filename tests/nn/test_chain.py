"""Layers that run as one node of torch's graph give what they give one by one."""

import copy

import pytest
import torch
from family import GEOMETRIES, WIDTH, name, stream
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.modules.module import register_module_forward_hook

from anygatr import GATr
from anygatr.kernels import native
from anygatr.kernels.maps_source import TOKENS
from anygatr.kernels.packed import pack
from anygatr.nn import Block, SelfAttention, Width
from anygatr.nn.batch import Batch, reference
from anygatr.spaces.presets import geometry

WIDE = Width(16, 6)  # channels that products in C take


def batches(geo, rng, width):
    """A dense, a masked and a packed stream, each with its batch."""
    x, s = stream(geo, rng, (3, 5), width)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    yield x, s, Batch(reference(x, geo), x[..., :0])
    yield x, s, Batch(reference(x, geo, mask), x[..., :0], mask)
    x, s = stream(geo, rng, (11,), width)
    packed = pack(torch.tensor([0, 5, 7, 11]))
    yield x, s, Batch(reference(x, geo, None, packed), x[..., :0], None, packed)


def results(layer, x, s, batch, look=False, **more):
    """Outputs and gradients; every layer inside is looked at, so that each runs by itself, on demand."""
    inside = [module for module in layer.modules() if module is not layer]
    hooks = [module.register_forward_hook(lambda *_: None) for module in inside] if look else []
    given = [t.detach().clone().requires_grad_() for t in (x, s)]
    y, t = layer(*given, batch, **more)
    for hook in hooks:
        hook.remove()
    weights = [p for p in layer.parameters() if p.requires_grad]
    loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() + t.square().sum()
    return [y, t, *torch.autograd.grad(loss, [*given, *weights])]


def difference(a, b):
    return max(
        float((p - q).detach().abs().max() / q.detach().abs().max().clamp(min=1e-12)) for p, q in zip(a, b, strict=True)
    )


def nodes(y):
    """The operations of ours behind a result."""
    found, todo = set(), [y.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [below for below, _ in node.next_functions]
    return sorted(node.name() for node in found if node.name().startswith("_"))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=["64", "32"])
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_a_block_is_its_layers(geo, dtype, bound, rng):
    block = Block(geo, WIDTH, heads=2).to(dtype)
    for x, s, batch in batches(geo, rng, WIDTH):
        batch = Batch(*(t.to(dtype) if torch.is_tensor(t) and t.dtype != torch.bool else t for t in batch))
        together = results(block, x.to(dtype), s.to(dtype), batch)
        assert difference(together, results(block, x.to(dtype), s.to(dtype), batch, look=True)) < bound


@pytest.mark.parametrize("preset", ["E", "P", "iP", "C"])
def test_a_block_is_two_nodes(preset, rng):
    geo = geometry(preset)
    block = Block(geo, WIDE, heads=2).double()
    for x, s, batch in batches(geo, rng, WIDE):
        y, _ = block(x, s, batch)
        assert nodes(y) == ["_ChainBackward"] * 2
        assert difference(results(block, x, s, batch), results(block, x, s, batch, look=True)) < 1e-12
        hook = block.mlp.activation.register_forward_hook(lambda *_: None)
        y, _ = block(x, s, batch)
        hook.remove()
        assert nodes(y).count("_ChainBackward") == 1  # one that is looked at runs by itself


def test_another_stream_may_be_added_to(rng):
    geo = geometry("iP")
    layer = SelfAttention(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng)
    batch = Batch(reference(x, geo), x[..., :0])
    onto = tuple(torch.randn_like(t).requires_grad_() for t in (x, s))
    y, t = layer(x, s, batch, onto=onto)
    alone = layer(x, s, batch)
    assert difference([y, t], [a + b for a, b in zip(onto, alone, strict=True)]) < 1e-12
    found = torch.autograd.grad([y, t], onto, [torch.full_like(y, 2.0), torch.full_like(t, 3.0)])
    assert [set(g.flatten().tolist()) for g in found] == [{2.0}, {3.0}]
    ways = zip(results(layer, x, s, batch, onto=onto), results(layer, x, s, batch, look=True, onto=onto), strict=True)
    assert all(difference([a], [b]) < 1e-12 for a, b in ways)


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_two_results_may_be_unused(which, rng):
    geo = geometry("C")
    block = Block(geo, WIDTH, heads=2).double()
    x, s = stream(geo, rng)
    batch = Batch(reference(x, geo), x[..., :0])
    found = []
    for look in (False, True):
        hook = block.attention.attend.register_forward_hook(lambda *_: None) if look else None
        given = [t.detach().clone().requires_grad_() for t in (x, s)]
        found.append(torch.autograd.grad(block(*given, batch)[which].square().sum(), given))
        if hook is not None:
            hook.remove()
    assert difference(*found) < 1e-12


def test_gradients_of_a_chain_survive_the_loss_of_the_compiler(rng, monkeypatch):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2).double()
    x, s = (t.requires_grad_() for t in stream(geo, rng, width=WIDE))
    batch = Batch(reference(x, geo).detach(), x[..., :0])
    expected = torch.autograd.grad(block(x, s, batch)[0].square().sum(), (x, s))
    y, _ = block(x, s, batch)
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert difference(torch.autograd.grad(y.square().sum(), (x, s)), expected) < 1e-12


def test_nothing_is_kept_of_tensors_without_numbers():
    """Networks also run on tensors that have only shapes; real ones must not meet what those leave behind."""
    net = GATr(geometry("E"), Width(1, 1), Width(16, 8), Width(1, 1), blocks=1, heads=2)
    inputs = [torch.randn(2, 19, 1, net.geometry.algebra.dim), torch.randn(2, 19, 1)]  # a length no other test has
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y, _ = net(*(mode.from_tensor(t) for t in inputs))
        assert isinstance(y, FakeTensor)
    assert net(*inputs)[0].isfinite().all()


def test_nothing_is_kept_of_tensors_that_torch_transforms():
    net = GATr(geometry("E"), Width(1, 1), Width(16, 8), Width(1, 1), blocks=1, heads=2)
    inputs = torch.randn(2, 23, 1, net.geometry.algebra.dim), torch.randn(2, 23, 1)  # a length no other test has
    weights = {key: p.detach() for key, p in net.named_parameters()}
    found = torch.func.grad(lambda weights: torch.func.functional_call(net, weights, inputs)[0].square().sum())(weights)
    net(*inputs)[0].square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad is None or torch.allclose(found[key], p.grad, atol=1e-4 * float(p.grad.abs().max()))


@pytest.mark.parametrize("grad", [True, False])
def test_tensors_that_outlive_a_transformation_are_taken(grad):
    net = GATr(geometry("E"), Width(1, 1), Width(16, 8), Width(1, 1), blocks=1, heads=2)
    x, s = torch.randn(2, 7, 1, net.geometry.algebra.dim), torch.randn(2, 7, 1)
    left = []
    torch.func.grad(lambda t: (left.append(t), t.sum())[1])(x)
    block, inside = net.blocks[0], torch.randn(net.geometry.algebra.dim, 2, 7, 16)
    torch.func.grad(lambda t: (left.append(t), t.sum())[1])(inside)
    scalars, batch = torch.randn(2, 7, 8), Batch(torch.ones(1), inside[..., :0])
    with torch.set_grad_enabled(grad):
        assert torch.equal(net(left[0], s)[0], net(x, s)[0])
        assert torch.equal(block(left[1], scalars, batch)[0], block(inside, scalars, batch)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("geo", GEOMETRIES, ids=name)
def test_without_derivatives_every_digit_is_the_same(geo, dtype, rng):
    block = Block(geo, WIDE, heads=2).to(dtype)
    plain, weight = copy.deepcopy(block), block.mlp.out.s_to_s
    weight.data = weight.data.T.contiguous().T  # C has to be given a copy
    assert not weight.is_contiguous()
    for x, s, batch in batches(geo, rng, WIDE):
        batch = Batch(*(t.to(dtype) if torch.is_tensor(t) and t.dtype != torch.bool else t for t in batch))
        expected = plain(x.to(dtype), s.to(dtype), batch)
        with torch.no_grad():
            found = block(x.to(dtype), s.to(dtype), batch)
        with torch.inference_mode():
            alone = block.attention(x.to(dtype), s.to(dtype), batch)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert not any(t.requires_grad for t in found)
        assert all(torch.equal(a, b) for a, b in zip(alone, block.attention(x.to(dtype), s.to(dtype), batch), strict=True))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("samples", "length"), [(150, 1), (9, 17), (5, 64), (2, 65), (1, 200)])
@pytest.mark.parametrize("preset", ["iP", "C"])
def test_samples_of_any_length_are_whole_in_their_tiles(preset, samples, length, threads, rng):
    """Without derivatives attention on short samples runs inside the tiles of the maps around it.

    Tiles of another length may round a token's last digit otherwise.
    """
    geo = geometry(preset)
    block = Block(geo, WIDE, heads=4, multi_query=samples % 2 == 0)
    for log_weight in block.attention.attend.log_weights:
        torch.nn.init.normal_(log_weight)
    x, s = (t.float() for t in stream(geo, rng, (samples, length), WIDE))
    batch, before = Batch(reference(x, geo), x[..., :0]), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = block(x, s, batch)
        with torch.no_grad():
            found = block(x, s, batch)
    finally:
        torch.set_num_threads(before)
    assert difference(found, expected) <= (1e-6 if TOKENS % length and length < TOKENS else 0)


def test_tangents_are_not_lost_without_derivatives(rng):
    """Forward-mode derivatives exist without a graph; there are none of chains, and that is said."""
    geo = geometry("E")
    block = Block(geo, WIDE, heads=2).double()
    x, s = stream(geo, rng, width=WIDE)
    batch = Batch(reference(x, geo), x[..., :0])
    with torch.no_grad(), forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        block(forward_ad.make_dual(x, torch.ones_like(x)), s, batch)


@pytest.mark.parametrize("grad", [True, False])
def test_hooks_on_all_modules_see_all_layers(grad, rng):
    geo = geometry("iP")
    block = Block(geo, WIDE, heads=2).double()
    x, s = stream(geo, rng, width=WIDE)
    batch, seen = Batch(reference(x, geo), x[..., :0]), set()
    hook = register_module_forward_hook(lambda module, *_: seen.add(module))
    with torch.set_grad_enabled(grad):
        block(x, s, batch)
    hook.remove()
    assert {block.norm, block.attention.qkv, block.attention.attend, block.mlp.bilinear.out, block.mlp.activation} <= seen
