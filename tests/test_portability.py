"""Networks and geometries travel: copies, state dicts, functional calls, worker processes, two processes that train one.

And what training on forces and in 16 bits asks of layers: second derivatives, and delicate sums in float32.
"""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.autograd import gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call, grad, vmap
from torch.nn.parallel import DistributedDataParallel

from anygatr import AxialGATr, ConditionalGATr, GATr
from anygatr.interface.model import model
from anygatr.nn import (
    MLP,
    Block,
    ConditionalBlock,
    CrossAttention,
    EquiLinear,
    GatedGELU,
    GeometricBilinear,
    LayerNorm,
    SelfAttention,
    Width,
)
from anygatr.nn.attention import Attend
from anygatr.nn.bilinear import Products
from anygatr.ops.batch import Batch, join_reference
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

NAMES = ("E", "P", "iP", "C", "L")
NETWORKS = (*NAMES, "axial", "conditional", "model")
WIDTH = Width(2, 2)
LAYERS = {
    "linear": lambda geo: EquiLinear(geo, WIDTH, WIDTH),
    "norm": LayerNorm,
    "gate": lambda geo: GatedGELU(),
    "bilinear": lambda geo: GeometricBilinear(geo, WIDTH, WIDTH * 2),
    "attention": lambda geo: SelfAttention(geo, WIDTH, heads=2),
    "multi-head": lambda geo: SelfAttention(geo, WIDTH, heads=2, multi_query=False, reinsert=1, rope=True),
    "cross attention": lambda geo: CrossAttention(geo, WIDTH, WIDTH, heads=2),
    "mlp": lambda geo: MLP(geo, WIDTH),
    "block": lambda geo: Block(geo, WIDTH, heads=2),
    "conditional block": lambda geo: ConditionalBlock(geo, WIDTH, WIDTH, heads=2, dropout=0.0, multi_query=True),
}


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    sizes = {"inputs": Width(2, 1), "hidden": Width(4, 8), "outputs": Width(1, 2), "blocks": 2, "heads": 2}
    if name == "axial":
        net: nn.Module = AxialGATr(geometry("iP", 2), **sizes)
    elif name == "conditional":
        net = ConditionalGATr(geometry("C", 2), condition=Width(1, 3), **sizes)
    elif name == "model":
        net = model("iP", {"position": "point", "mass": "scalar"}, {"final": "point"}, sizes["hidden"], blocks=2, heads=2)
        net.double().fit_unit(position=torch.eye(3).double(), mass=torch.ones(3).double())
    else:
        net = GATr(geometry(name, 3 if name == "L" else 2), **sizes)
    return net.double()


def call(net: nn.Module, seed: int = 1) -> Tensor:
    """All outputs of a network for one sample, in one row."""
    torch.manual_seed(seed)
    if net.layout == "fields":
        return net(position=torch.randn(5, 3).double(), mass=torch.rand(5).double())["final"].flatten()
    return torch.cat([y.flatten() for y in net(*net.example(5))])


def described(geo: Geometry) -> tuple[str, list[float], int]:
    """What a worker finds in a geometry that was sent to it."""
    point = geo.embed_point(torch.ones(len(geo.axes)).double()) if "point" in geo.kinds else geo.infinity
    return str(geo), point.tolist(), hash(geo) == hash(geometry(geo.name, geo.dim))


@pytest.mark.parametrize("name", NETWORKS)
def test_copies_are_equal_and_independent(name):
    net = build(name)
    expected = call(net)
    loaded = build(name, seed=1)
    assert not torch.equal(call(loaded), expected)
    assert loaded.load_state_dict(net.state_dict()) == ([], [])
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), loaded):
        assert torch.equal(call(other), expected)
        with torch.no_grad():
            next(other.parameters()).add_(1)
        assert not torch.equal(call(other), expected)
    assert torch.equal(call(net), expected)
    state = {key for key in net.state_dict() if not key.endswith("_extra_state")}  # the units of a model
    assert state == {key for key, _ in net.named_parameters()}  # tables are not weights


@pytest.mark.parametrize("name", NETWORKS)
def test_functional_calls_take_other_weights(name):
    net, other = build(name), build(name, seed=1)
    weights = dict(other.named_parameters())

    class Caller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self) -> Tensor:
            return call(self.net)

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return functional_call(Caller(), {f"net.{key}": w for key, w in weights.items()}).square().sum()

    assert torch.allclose(loss(weights), call(other).square().sum(), rtol=1e-12)
    call(other).square().sum().backward()
    for key, gradient in grad(loss)({key: w.detach() for key, w in weights.items()}).items():
        expected = other.get_parameter(key).grad
        assert expected is None or torch.allclose(gradient, expected, rtol=1e-9, atol=1e-12), key


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_can_be_differentiated_again(name):
    """`create_graph=True` changes no gradient, and the second derivative is the change of the first along any direction."""
    net = build(name)
    weights = [p for p in net.parameters() if p.requires_grad]

    def gradients(**options: bool) -> tuple[Tensor, ...]:
        return torch.autograd.grad(call(net).square().sum(), weights, **options)

    plain, again = gradients(), gradients(create_graph=True)
    for a, b in zip(plain, again, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11)
    torch.manual_seed(2)
    left, right = ([torch.randn_like(p) for p in weights] for _ in range(2))
    found = torch.autograd.grad(again, weights, left)
    exact = sum(float((a * b).sum()) for a, b in zip(found, right, strict=True))
    ends, step = [], 1e-5
    with torch.no_grad():
        for sign in (1, -2):
            for p, direction in zip(weights, right, strict=True):
                p.add_(direction, alpha=sign * step)
            with torch.enable_grad():
                ends.append(sum(float((a * b).sum()) for a, b in zip(gradients(), left, strict=True)))
    assert exact == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", [n if n == "iP" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_layers_have_second_derivatives(name, layer, rng):
    """In their inputs and in all weights."""
    geo = geometry(name, 2)
    built = LAYERS[layer](geo).double()
    shapes = {key: p.shape for key, p in built.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]
    weights = torch.randn(max(sum(sizes), 1), generator=rng, dtype=torch.float64).mul_(0.5).requires_grad_()
    x = torch.randn(geo.algebra.dim, 3, 2, generator=rng, dtype=torch.float64, requires_grad=True)
    s = torch.randn(3, 2, generator=rng, dtype=torch.float64, requires_grad=True)

    def call(x: Tensor, s: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        number, nothing = join_reference(x, geo), x[..., :0]
        more: tuple[object, ...] = ()
        if layer in ("attention", "multi-head", "block"):
            more = (Batch(number, x[..., :1] if layer == "multi-head" else nothing, scalars=s[..., :0]),)
        elif layer in ("bilinear", "mlp"):
            more = (number,)
        elif layer.startswith("c"):
            more = (x.roll(1, 1), s.roll(1, 0), Batch(number, nothing, scalars=s[..., :0]))
        values = zip(shapes.items(), weights.split(sizes) if sizes else [], strict=True)
        return functional_call(built, {key: value.view(shape) for (key, shape), value in values}, (x, s, *more))

    assert gradgradcheck(call, (x, s, weights) if sizes else (x, s, weights.detach()), fast_mode=True)


class _Once(torch.autograd.Function):
    """x^2 with the gradient 2x, which forgets that it depends on x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0].detach()


def test_a_missing_second_derivative_is_seen():
    with pytest.raises(GradcheckError):
        gradgradcheck(_Once.apply, (torch.ones(3, dtype=torch.float64, requires_grad=True),), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", NAMES)
def test_delicate_sums_are_float32_under_autocast(name, dtype, rng):
    """Norms, products, distances and indefinite inner products give the same numbers, and linear maps of squared points."""
    geo = geometry(name)
    x, s = torch.randn(geo.algebra.dim, 5, 8, generator=rng), torch.randn(5, 8, generator=rng)
    norm, products, linear = LayerNorm(geo), Products(geo), EquiLinear(geo, Width(8, 8), WIDTH, delicate=False)
    parts, batch = 2 * len(geo.products), Batch(torch.ones(1), x[..., :0], scalars=s[..., :0])
    attend = Attend(geo, heads=2, key_heads=1, head=WIDTH)
    calls = [lambda: norm(x, s)[0], lambda: norm(x, s)[1], lambda: products(x.repeat(1, 1, parts), batch.reference)]
    if attend.op.precise:  # that of E and P is a sum of squares: no cancellation
        calls += [lambda: attend(x, s, batch)[0], lambda: attend(x, s, batch)[1]]
    if geo.precise:
        delicate = EquiLinear(geo, Width(8, 8), WIDTH)
        calls += [lambda: delicate(x, s)[0], lambda: delicate(x, s)[1]]
    with torch.no_grad():
        for call in calls:
            expected = call()
            with torch.autocast("cpu", dtype):
                assert call().dtype == torch.float32
                assert torch.equal(call(), expected)
        with torch.autocast("cpu", dtype):
            short = linear(x, s)[0]
        assert not torch.allclose(short.float(), linear(x, s)[0], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_another_type_are_named(name):
    net = build(name)
    x, s = net.example(5)
    with pytest.raises(ValueError, match=r"x has dtype torch.float32, the network's weights torch.float64; pass x.to"):
        net(x.float(), s)


def test_networks_can_be_mapped_over_samples():
    net = build("E")
    x, s = net.example(5)
    y, t = vmap(net)(torch.stack([x, 2 * x]), torch.stack([s, s]))
    for sample, scale in enumerate((1, 2)):
        assert torch.allclose(y[sample], net(scale * x, s)[0], atol=1e-12)
        assert torch.allclose(t[sample], net(scale * x, s)[1], atol=1e-12)


def test_geometries_and_networks_reach_worker_processes():
    geometries, nets = [geometry(name) for name in NAMES], [build("iP"), build("model")]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(described, geometries)) == [described(geo) for geo in geometries]
        assert all(described(geo)[2] for geo in geometries)
        with torch.no_grad():
            for net, found in zip(nets, pool.map(outputs, nets), strict=True):
                assert found == call(net).tolist()


def outputs(net: nn.Module) -> list[float]:
    torch.set_num_threads(1)
    with torch.no_grad():
        return call(net).tolist()


def test_two_processes_train_one_network(tmp_path):
    """Every parameter gets a gradient, without find_unused_parameters: the mean of what each process has."""
    torch.multiprocessing.spawn(train, args=(str(tmp_path),), nprocs=2)
    for name in NETWORKS:
        first, second = (torch.load(tmp_path / f"{name}{rank}.pt") for rank in range(2))
        net = build(name)
        (sum(call(net, seed=rank).square().sum() for rank in range(2)) / 2).backward()
        expected = {key: p.grad for key, p in net.named_parameters() if p.requires_grad}
        assert first.keys() == second.keys() == expected.keys()
        for key, gradient in expected.items():
            assert torch.equal(first[key], second[key]), (name, key)
            assert torch.allclose(first[key], gradient, rtol=1e-9, atol=1e-12), (name, key)


def train(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for name in NETWORKS:
        net = build(name)
        wrapped = DistributedDataParallel(Row(net, rank))
        for _ in range(2):  # an unused parameter is an error in the second step
            net.zero_grad()
            wrapped().square().sum().backward()
        gradients = {key: p.grad for key, p in net.named_parameters() if p.requires_grad}
        torch.save(gradients, f"{folder}/{name}{rank}.pt")
    _check_that_unused_parameters_are_found()
    distributed.barrier()
    distributed.destroy_process_group()


class Row(nn.Module):
    """`call` as a module, for one process's data."""

    def __init__(self, net: nn.Module, seed: int) -> None:
        super().__init__()
        self.net, self.seed = net, seed

    def forward(self) -> Tensor:
        return call(self.net, self.seed)


class _Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def _check_that_unused_parameters_are_found() -> None:
    wrapped = DistributedDataParallel(_Half())
    wrapped(torch.ones(1, 1)).sum().backward()
    with pytest.raises(RuntimeError, match="did not receive grad"):
        wrapped(torch.ones(1, 1)).sum().backward()
