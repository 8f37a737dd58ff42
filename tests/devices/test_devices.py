"""Networks on another device: nothing is left on the CPU, nothing waits for the device, and the numbers are the CPU's."""

import copy
from unittest import mock

import pretend
import pytest
import torch
from pretend import DEVICE, download, recording, upload
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import anygatr
from anygatr import AxialGATr, ConditionalGATr, GATr, Width, model, reach
from anygatr.checkpoint import load, save
from anygatr.nn import Block
from anygatr.ops import ragged, sdpa
from anygatr.ops.attention import Attention
from anygatr.ops.ragged import jagged_attention, pack, packed_attention
from anygatr.spaces.coordinates import unchecked
from anygatr.spaces.presets import geometry
from anygatr.testing import certify

PRESETS = ["E", "P", "iP", "C", "L"]
BOUND = 1e-11
READ = 1e-7  # reading a point divides by its weight, which an untrained network leaves near zero
IN, HIDDEN, OUT = Width(2, 3), Width(4, 8), Width(1, 2)
FIELDS = {"position": "point", "velocity": "vector", "mass": "scalar"}


@pytest.fixture(autouse=True)
def dispatched():
    with pretend.Dispatch():
        yield


def gatr(preset, **options):
    return GATr(geometry(preset), IN, HIDDEN, OUT, blocks=2, heads=2, **options).double()


def tokens(preset, shape, rng, width=IN):
    k = geometry(preset).algebra.dim
    x = torch.randn(*shape, width.mv, k, generator=rng, dtype=torch.float64)
    return x, torch.randn(*shape, width.s, generator=rng, dtype=torch.float64)


def offsets_of(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def on_side(side, t):
    return upload(t) if side == "device" else t


def step(net, batch, more=()):
    """Outputs and the gradients of inputs and parameters; a gradient that is not used counts as zero."""
    leaves = [t.requires_grad_() for t in batch.values() if t.is_floating_point()]
    out = net(**batch, **dict(more))
    out = list(out.values()) if isinstance(out, dict) else list(out)
    leaves += [p for p in net.parameters() if p.requires_grad]
    return out + list(torch.autograd.grad(sum(y.square().mean() for y in out), leaves, materialize_grads=True))


def assert_same(net, batch, more=(), bound=BOUND):
    """A step on the device against one on the CPU, where the C kernels run; what the device recorded.

    Tensors in `more` that are on the CPU stay there.
    """
    expected = step(net, batch, download(more))
    there = copy.deepcopy(net).to(DEVICE)
    with recording() as seen:
        found = step(there, upload({k: v.detach() for k, v in batch.items()}), more)
    assert worst(found, expected) <= bound
    return seen


def worst(found, expected):
    """The largest difference, relative to the largest number of each tensor where that is above one."""
    pairs = [(a, b.detach()) for a, b in zip(download(found), expected, strict=True) if b.numel()]
    return max(float((a - b).abs().max()) / max(float(b.abs().max()), 1.0) for a, b in pairs)


CASES = {
    "dense": {},
    "options": {"rope": True, "reinsert": (0,), "reinsert_s": (1,), "inner_norm": True, "multi_query": False},
    "checkpointed": {"checkpoint": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("preset", PRESETS)
def test_dense_and_masked_networks_wait_for_nothing(preset, case, rng):
    net = gatr(preset, **CASES[case])
    x, s = tokens(preset, (3, 5), rng)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    for more in ({}, {"mask": upload(mask)}):
        seen = assert_same(net, {"x": x, "s": s}, more)
        assert not seen.syncs, seen
        assert not seen.uploads, seen


@pytest.mark.parametrize("side", ["device", "cpu"])
@pytest.mark.parametrize("lengths", [(5, 2, 4), (150, 3, 140)], ids=["short", "long"])
@pytest.mark.parametrize("preset", PRESETS)
def test_packed_networks_wait_once(preset, lengths, side, rng):
    """Long samples are those of which the logits are not kept. The offsets may be on either side."""
    net = gatr(preset)
    x, s = tokens(preset, (sum(lengths),), rng)
    seen = assert_same(net, {"x": x, "s": s}, {"offsets": on_side(side, offsets_of(*lengths))})
    assert sum(seen.syncs.values()) == (side == "device"), seen
    assert sum(seen.uploads.values()) == 1, seen  # the plan of its buckets


def test_a_narrowed_network_waits_once(rng):
    net = gatr("E")
    reach.narrow(net, (0, 1), (1,))
    x, s = tokens("E", (2, 5), rng)
    x[..., 4:] = 0  # planes and the volume
    with anygatr.backend("torch"):  # kernels for the narrowed plans would have to be built
        seen = assert_same(net, {"x": x, "s": s})
    assert (sum(seen.syncs.values()), sum(seen.uploads.values())) == (1, 0), seen


@pytest.mark.parametrize("preset", PRESETS)
def test_conditional_and_axial_networks(preset, rng):
    geo = geometry(preset)
    net = ConditionalGATr(geo, IN, Width(1, 2), HIDDEN, OUT, blocks=1, heads=2).double()
    (x, s), (cx, cs) = tokens(preset, (2, 4), rng), tokens(preset, (2, 3), rng, Width(1, 2))
    masks = {"mask": torch.rand(2, 4, generator=rng) < 0.7, "condition_mask": torch.rand(2, 3, generator=rng) < 0.7}
    seen = [assert_same(net, {"x": x, "s": s, "cx": cx, "cs": cs}, upload(masks))]
    net = AxialGATr(geo, IN, HIDDEN, OUT, blocks=2, heads=2, rope=True).double()
    x, s = tokens(preset, (2, 3, 4), rng)
    seen.append(assert_same(net, {"x": x, "s": s}))
    assert not any(record.syncs or record.uploads for record in seen), [*map(str, seen)]


def fields(preset, shape, rng):
    draw = lambda *size: torch.randn(*size, generator=rng, dtype=torch.float64)  # noqa: E731
    if preset == "L":
        return {"momentum": draw(*shape, 4), "mass": draw(*shape).abs()}
    return {"position": draw(*shape, 3), "velocity": draw(*shape, 3), "mass": draw(*shape).abs()}


def fields_model(preset, **options):
    inputs = {"momentum": "momentum", "mass": "scalar"} if preset == "L" else FIELDS
    targets = {"energy": "scalar"} if preset == "L" else {"final": "point", "energy": "scalar"}
    options = {
        "origin": "mean" if preset == "L" else "mass",
        "per": {name: "sample" if name == "energy" else "token" for name in targets},
        **options,
    }
    return model(preset, inputs, targets, hidden=HIDDEN, blocks=1, heads=2, **options).double()


@pytest.mark.parametrize("preset", PRESETS)
def test_models_wait_once(preset, rng):
    net = fields_model(preset)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    for more in ({}, {"mask": upload(mask)}):
        seen = assert_same(net, fields(preset, (3, 5), rng), more, bound=READ)
        assert sum(seen.syncs.values()) <= 1, seen
        assert not seen.uploads, seen


@pytest.mark.parametrize("side", ["device", "cpu"])
def test_packed_models_wait_once(side, rng):
    """The offsets are read back with the checks; wrong ones are named all the same."""
    net, batch = fields_model("iP"), fields("iP", (11,), rng)
    seen = assert_same(net, batch, {"offsets": on_side(side, offsets_of(5, 2, 4))}, bound=READ)
    assert sum(seen.syncs.values()) <= 1, seen
    there, batch = copy.deepcopy(net).to(DEVICE), upload({name: x.detach() for name, x in batch.items()})
    for lengths, said in (((5, 2, 3), "end at the number of tokens, 11"), ((5, 0, 6), "sample 1 is empty")):
        with pytest.raises(ValueError, match=said):
            there(**batch, offsets=on_side(side, offsets_of(*lengths)))


@pytest.mark.parametrize("preset", PRESETS)
def test_second_derivatives_on_a_device(preset, rng):
    net, (x, s) = gatr(preset), tokens(preset, (2, 3), rng)

    def forces(net, x, s):
        energy = net(x.requires_grad_(), s)[1].square().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        weights = [p for p in net.blocks.parameters() if p.requires_grad]
        return [force, *torch.autograd.grad(force.square().sum(), weights, materialize_grads=True)]

    expected = forces(net, x, s)
    assert worst(forces(copy.deepcopy(net).to(DEVICE), *upload((x.detach(), s))), expected) < 1e-9


@pytest.mark.parametrize("preset", PRESETS)
def test_certificates_and_checkpoints(preset, tmp_path, rng):
    """A network is certified where it is; one that was loaded can be moved."""
    net = fields_model(preset)
    save(net, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert_same(loaded, fields(preset, (2, 5), rng), bound=READ)
    certificate = certify(loaded.to(DEVICE), dtypes=(torch.float64,))
    assert certificate.ok, certificate


def test_without_checks_models_wait_for_nothing(rng):
    net, batch = fields_model("iP").to(DEVICE), upload(fields("iP", (3, 5), rng))
    net.fit_unit(**batch)
    with recording() as seen, unchecked():
        net(**batch)
    assert not seen.syncs, seen
    batch["mass"].inner[1, 2] = torch.nan
    with unchecked():
        net(**batch)
    with pytest.raises(ValueError, match=r"mass contains NaN or infinity, first at index \(1, 2, 0\)"):
        net(**batch)


@pytest.mark.parametrize(
    "layer", ["linear_in", "blocks.0.norm", "blocks.0.attention.attend", "blocks.1.mlp.bilinear.products"]
)
def test_a_buffer_left_behind_is_noticed(layer, rng):
    """The negative control: one table on the CPU, whichever, and the step fails or copies it."""
    net = gatr("iP").to(DEVICE)
    buffers = net.get_submodule(layer)._buffers
    name = next(iter(buffers))
    buffers[name] = download(buffers[name])
    try:
        with recording() as seen:
            net(*upload(tokens("iP", (2, 5), rng)))
    except RuntimeError as error:
        assert "a tensor on the CPU meets one on pretend:0" in str(error)  # noqa: PT017
    else:
        assert seen.uploads


@pytest.mark.parametrize("preset", ["iP", pytest.param("C", marks=pytest.mark.slow)])
def test_fifty_steps_follow_the_cpu(preset, rng):
    net = GATr(geometry(preset), IN, Width(2, 4), OUT, blocks=1, heads=1).double()
    x, s = tokens(preset, (4, 6), rng)
    there, curves = copy.deepcopy(net).to(DEVICE), []
    for trained, batch in ((net, (x, s)), (there, upload((x, s)))):
        optimizer, losses = torch.optim.SGD(trained.parameters(), lr=0.05, momentum=0.9, foreach=False), []
        for _ in range(50):
            optimizer.zero_grad()
            y, t = trained(*batch)
            loss = (y[..., :1] - batch[0][..., :1, :1]).square().mean() + (t - batch[1][..., :2]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(download(loss))
        curves.append(torch.stack(losses).detach())
    assert curves[0][-1] < 0.7 * curves[0][0]
    assert float((curves[1] / curves[0] - 1).abs().max()) < 1e-8


class Tape(TorchDispatchMode):
    """What a CUDA graph is: the operators of a step with the memory they read and write, to be run again as they are."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        assert any(isinstance(t, pretend.DeviceTensor) for t in tree_flatten((args, out))[0]), f"{func} on the CPU"
        self.made.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        for func, args, kwargs, out in self.made:
            if func.is_view:
                continue
            again = pretend._run(func, args, kwargs)  # below autograd
            for old, new in zip(tree_flatten(out)[0], tree_flatten(again)[0], strict=True):
                if isinstance(old, pretend.DeviceTensor) and old is not new:
                    old.inner.copy_(new.inner)


def test_a_training_step_can_be_recorded(rng):
    """Recorded with one batch and run again with another's numbers in the same memory: nothing comes from the host."""
    net = gatr("iP")
    there, first, second = copy.deepcopy(net).to(DEVICE), tokens("iP", (2, 5), rng), tokens("iP", (2, 5), rng)
    static = dict(zip("xs", upload(first), strict=True))
    step(there, static)  # what is done once: tables moved, plans made
    with recording() as seen, Tape() as tape:
        found = step(there, static)
    assert not seen.syncs, seen
    assert not seen.uploads, seen
    for memory, numbers in zip(static.values(), second, strict=True):
        memory.inner.copy_(numbers)
    expected = step(net, dict(zip("xs", second, strict=True)))
    assert worst(found, expected) > 1e-2
    tape.replay()
    assert worst(found, expected) <= BOUND


def test_a_step_that_asks_the_host_cannot_be_recorded(rng):
    """The negative control: a number read back is that of the batch that was recorded."""
    x, other = upload(torch.rand(3, generator=rng)), torch.rand(3, generator=rng)
    with Tape() as tape:
        y = x * float(x.sum())
    x.inner.copy_(other)
    tape.replay()
    assert worst([y], [other * other.sum()]) > 1e-2


@pytest.mark.parametrize("key_heads", [1, 4])
def test_attention_over_jagged_tensors_is_that_of_buckets(key_heads, rng):
    """What CUDA devices run for ragged batches, here on the CPU, where torch has a slow version of the same."""
    plan = pack(offsets_of(3, 17, 1, 9))
    draw = lambda heads, width: torch.randn(30, heads, width, generator=rng).requires_grad_()  # noqa: E731
    tensors = [draw(4, 11), draw(key_heads, 11), draw(key_heads, 7)]
    made = [jagged_attention(*tensors, plan, 0.3), packed_attention(*tensors, plan, 0.3)]
    found, expected = ([y, *torch.autograd.grad(y.square().sum(), tensors)] for y in made)
    assert worst(found, expected) < 1e-5


def test_ragged_networks_over_jagged_tensors(rng, monkeypatch):
    """A packed network as on CUDA devices, values and gradients; precise features as halves of 16 bits."""
    net, lengths = gatr("iP").float(), (40, 3, 17)
    x, s = (t.float() for t in tokens("iP", (sum(lengths),), rng))
    offsets = {"offsets": offsets_of(*lengths)}
    with anygatr.backend("torch"):
        expected, short = step(net, {"x": x, "s": s}, offsets), _sixteen_bit_rows(net, x, s, offsets)
        monkeypatch.setattr(ragged, "takes_jagged", lambda q: True)
        found = step(net, {"x": x, "s": s}, offsets)
        assert worst(found, expected) < 1e-4
        assert worst(_sixteen_bit_rows(net, x, s, offsets), short) < 2e-2


def _sixteen_bit_rows(net, x, s, offsets):
    """What a network gives whose attention multiplies the rows that GPUs are given under autocast."""

    def halved(op, *args, mixture=Attention.mixture):
        q, k, v, values, batch = args
        rows = op.halved(q, torch.bfloat16, False), op.halved(k, torch.bfloat16, True), v.bfloat16()
        return tuple(t.to(values[0].dtype) for t in mixture(op, *rows, values, batch))

    with mock.patch.object(Attention, "mixture", halved):
        return step(net, {"x": x, "s": s}, offsets)


def test_second_derivatives_where_kernels_have_none(rng):
    """A fast way whose gradient cannot be differentiated, as those of flash attention cannot."""

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.clone()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad

    q, k, v = (torch.randn(2, 1, n, 3, generator=rng, dtype=torch.float64, requires_grad=True) for n in (4, 5, 5))
    slow = lambda q, k, v: sdpa.explicit(q, k, v, 0.5, None)  # noqa: E731
    fast = lambda q, k, v: Once.apply(slow(q, k, v))  # noqa: E731
    call = lambda q, k, v: sdpa.twice_differentiable(fast, slow, q, k, v)  # noqa: E731
    assert gradcheck(call, (q, k, v), fast_mode=True)
    assert gradgradcheck(call, (q, k, v), fast_mode=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradgradcheck(fast, (q, k, v), fast_mode=True)


@pytest.mark.parametrize("preset", ["iP", "C"])
def test_precise_features_in_two_halves(preset, rng):
    """Logits from 16-bit rows: 30 times closer to those of float32 than rounding alone, and no float32 rows are left."""
    op = Block(geometry(preset), Width(4, 8), heads=2).attention.attend.op
    width = sum(f.size for f in op.features) * op.head[0] + op.head[1]
    q, k = (10 * torch.randn(6, n, width, generator=rng) for n in (2, 1))
    exact = torch.einsum("nhf,mgf->nmh", q.double(), k.double())
    error = lambda a, b: float((torch.einsum("nhf,mgf->nmh", a.double(), b.double()) - exact).abs().max())  # noqa: E731
    halves = op.halved(q, torch.bfloat16, False), op.halved(k, torch.bfloat16, True)
    scalars = slice(width - op.head[1], None)
    q[..., scalars], k[..., scalars] = q[..., scalars].bfloat16().float(), k[..., scalars].bfloat16().float()
    exact = torch.einsum("nhf,mgf->nmh", q.double(), k.double())
    assert halves[0].dtype is torch.bfloat16
    if all(f.precise for f in op.features):
        assert error(*halves) < error(q.bfloat16(), k.bfloat16()) / 30


def test_autocast_on_a_device_follows_the_cpu(rng):
    net, (x, s) = gatr("C").float(), (t.float() for t in tokens("C", (2, 40), rng))
    with torch.no_grad():
        expected = net(x, s)
        with torch.autocast(DEVICE.type, torch.bfloat16), recording() as seen:
            found = copy.deepcopy(net).to(DEVICE)(*upload((x, s)))
    assert not seen.syncs, seen
    assert all(
        float((a.float() - b).abs().max() / b.abs().max()) < 0.05 for a, b in zip(download(found), expected, strict=True)
    )
