"""SEGNN and the SE(3)-Transformer: symmetry with negative controls, e3nn as an independent oracle, batches, learning."""

from dataclasses import replace

import pytest
import torch
from samples import DRIFT, drift

from anygatr.lab.baselines.bodies import Bodies
from anygatr.lab.baselines.segnn import SIGMOID, SILU, Attribute, Features, SteeredProduct, degree_one
from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.task import Task
from anygatr.lab.training.metrics import trivial_mse
from anygatr.lab.training.models import build
from anygatr.lab.training.objective import Objective

o3 = pytest.importorskip("e3nn.o3")

INPUTS = {"position": "point", "velocity": "vector", "mass": "scalar"}
TASK = Task(INPUTS, {"final": "point"}, 3, "token")
MODELS = ("segnn", "se3_transformer")


def bodies(*shape: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    x, v = torch.randn(2, *shape, 3, dtype=torch.float64)
    return {"position": x, "velocity": v, "mass": torch.rand(*shape, dtype=torch.float64) + 0.1}


def network(name: str, task: Task = TASK) -> torch.nn.Module:
    torch.manual_seed(4)
    return build(task, recipe("paper", name)).double()


def rotation(sign: float = 1.0) -> torch.Tensor:
    matrix = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)))[0]
    return sign * matrix * torch.linalg.det(matrix)


@torch.no_grad()
def deviation(net: torch.nn.Module, matrix: torch.Tensor, shift: torch.Tensor, target: str = "final") -> float:
    fields = bodies(2, 5)
    moved = fields | {"position": fields["position"] @ matrix.T + shift, "velocity": fields["velocity"] @ matrix.T}
    expected = net(**fields)[target] @ matrix.T + (shift if target == "final" else 0)
    return float((net(**moved)[target] - expected).abs().max())


@pytest.mark.parametrize("size", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("name", MODELS)
def test_follows_motions(name, size):
    shift = size * torch.tensor([0.3, -0.8, 0.5], dtype=torch.float64)
    assert deviation(network(name), rotation(), shift) < 1e-10
    vector = replace(TASK, targets={"force": "vector"})
    assert deviation(network(name, vector), rotation(), shift, "force") < 1e-10


def test_mirrors_belong_to_segnn_alone():
    nothing = torch.zeros(3, dtype=torch.float64)
    assert deviation(network("segnn"), rotation(-1.0), nothing) < 1e-10
    assert deviation(network("se3_transformer"), rotation(-1.0), nothing) > 1e-3


def test_the_check_rejects_a_network_without_symmetry():
    nothing = torch.zeros(3, dtype=torch.float64)
    assert deviation(network("transformer"), rotation(), nothing) > 1e-3
    assert deviation(network("transformer"), torch.eye(3, dtype=torch.float64), nothing + 1) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_follows_order_and_depends_on_every_input(name):
    net, fields, order = network(name), bodies(1, 6), torch.tensor([4, 0, 5, 2, 1, 3])
    out = net(**fields)["final"]
    assert torch.allclose(net(**{k: x[:, order] for k, x in fields.items()})["final"], out[:, order])
    factors = torch.linspace(1, 1.5, 6, dtype=torch.float64)
    for field, x in fields.items():
        changed = fields | {field: x * factors.view(1, 6, *[1] * (x.dim() - 2))}
        moved = net(**changed)["final"] - changed["position"] - (out - fields["position"])
        assert moved.abs().max() > 1e-6, field


@pytest.mark.parametrize("name", MODELS)
def test_samples_and_padding_do_not_meet(name):
    """Packed, padded and alone are the same, down to a body with no other."""
    net, fields = network(name), bodies(8)
    packed = net(**fields, offsets=torch.tensor([0, 3, 7, 8]))["final"]
    parts = (slice(3), slice(3, 7), slice(7, 8))
    alone = [net(**{k: x[None, part] for k, x in fields.items()})["final"][0] for part in parts]
    assert torch.allclose(packed, torch.cat(alone))
    padded = {k: torch.stack([x[:4], torch.cat([x[:3], torch.full_like(x[:1], torch.nan)])]) for k, x in fields.items()}
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    found = net(**padded, mask=mask)["final"]
    assert torch.allclose(found[1, :3], alone[0])
    assert (found[1, 3] == 0).all()
    found.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(("name", "steps"), [("segnn", 60), ("se3_transformer", 60)])
def test_overfits_a_tiny_set(name, steps, tmp_path):
    config = TrainConfig(data=str(drift(tmp_path / "drift.npz")), **DRIFT)
    few = spec_of(config).load().split("train").subset(3)
    task = Task.of(few)
    torch.manual_seed(0)
    module = build(task, recipe("laptop", name))
    objective, optimiser = Objective(module, task, 0.0), torch.optim.Adam(module.parameters(), lr=5e-3)
    for _ in range(steps):
        loss, error = objective(module, few.batch())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert error.item() < 0.2 * trivial_mse(few, few)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": {"position": "point", "mass": "scalar"}}, "one point, one vector and one scalar"),
        ({"inputs": INPUTS | {"charge": "scalar"}}, "one point, one vector and one scalar"),
        ({"dim": 2}, "three dimensions"),
        ({"targets": {"energy": "scalar"}}, "one point or one vector per body"),
        ({"per": "sample"}, "per sample"),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_refuses_what_it_cannot_take(name, change, said):
    with pytest.raises(ValueError, match=said):
        build(replace(TASK, **change), recipe("paper", name))


def test_steered_product_is_the_tensor_product_of_e3nn():
    """Same weights, same result: FullyConnectedTensorProduct with its 1 / sqrt(fan in) undone."""
    product = SteeredProduct((3, 2), (4, 5)).double()
    oracle = o3.FullyConnectedTensorProduct("3x0e + 2x1o", "1x0e + 1x1o", "4x0e + 5x1o").double()
    s, v, a = (torch.randn(7, *shape, dtype=torch.float64) for shape in ((3,), (3, 2), (3,)))
    paths = {(0, 0, 0): product.scalars[:, :4], (0, 1, 1): product.scalars[:, 4:]}
    paths |= {(1, 1, 0): product.vectors[:, :4], (1, 0, 1): product.vectors[:, 4:]}
    with torch.no_grad():
        for instruction, view in zip(oracle.instructions, oracle.weight_views(), strict=True):
            view[:] = paths[tuple(instruction[:3])].unsqueeze(1)
        found = product(Features(s, v), Attribute(0.7, a))
        out = oracle(torch.cat([s, v.transpose(1, 2).flatten(1)], 1), torch.cat([torch.full((7, 1), 0.7), a], 1)) * 5**0.5
    assert torch.allclose(found.s, out[:, :4] + product.bias)
    assert torch.allclose(found.v.transpose(1, 2).flatten(1), out[:, 4:])


def test_constants_are_those_of_e3nn():
    from e3nn.math import normalize2mom

    x = torch.randn(5, 3, dtype=torch.float64)
    assert torch.allclose(degree_one(x), o3.spherical_harmonics(1, x, normalize=True, normalization="integral"))
    assert normalize2mom(torch.nn.functional.silu).cst == pytest.approx(SILU, rel=1e-2)  # e3nn samples, we integrate
    assert normalize2mom(torch.sigmoid).cst == pytest.approx(SIGMOID, rel=1e-2)


def test_turn_matrices_are_those_of_e3nn():
    from anygatr.lab.baselines.pairs import polar_frames, turn_matrices

    x = torch.randn(6, 3, dtype=torch.float64)
    frames = polar_frames(x)
    polar = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.allclose(torch.einsum("pij,pj->pi", frames, x), x.norm(dim=1, keepdim=True) * polar)
    for degree, found in enumerate(turn_matrices(frames, 3)):
        assert torch.allclose(found, o3.Irrep(degree, 1).D_from_matrix(frames), atol=1e-6)


def test_kernel_is_the_sum_over_frequencies():
    """Against the definition: K = sum_J R_J(r) sum_M Q_J[:, :, M] Y_J[M](d), edge by edge, without any frame."""
    from anygatr.lab.baselines.pairs import Pairs
    from anygatr.lab.baselines.se3_kernel import PairKernel

    torch.manual_seed(0)
    kernel = PairKernel({0: 2, 1: 2, 3: 2}, [1, 2, 1], 2).double()
    fields, n = bodies(1, 3), 3
    group = Bodies(fields["position"], fields["velocity"], fields["mass"], torch.ones(1, n, dtype=torch.bool))
    pairs = Pairs.of(group, 3)
    x = {low: torch.randn(1, n, 2 * low + 1, 2, dtype=torch.float64) for low in (0, 1, 3)}
    found = kernel(x, pairs)
    hidden = kernel.radial(pairs.invariants)
    nets = [(out, low) for out in kernel.slots for low in kernel.degrees]
    number = {pair: p for p, pair in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))}
    edges = [(i, j) for i in range(n) for j in range(n) if i != j]
    for slot, degree in enumerate(kernel.slots):
        for e, (i, j) in enumerate(edges):
            d = group.place[0, i] - group.place[0, j]
            expected = torch.zeros(2 * degree + 1, 2, dtype=torch.float64)
            for k, (_, low) in enumerate(nets[slot * 3 : slot * 3 + 3], start=slot * 3):
                sender = x[low][0, j].clone()
                if low == 1:
                    sender[:, 0] += d
                group_of = kernel.frequencies.index(min(degree, low))
                member = kernel.members[min(degree, low)].index(k)
                h = hidden[k, number[min(i, j), max(i, j)]]
                radial = kernel.weights[group_of][member] @ h + kernel.biases[group_of][member]
                for f, r in enumerate(radial.unflatten(-1, (2, 2))):
                    big_j = abs(degree - low) + f
                    harmonic = o3.spherical_harmonics(big_j, d, normalize=True, normalization="integral")
                    q = torch.einsum("abm,m->ab", o3.wigner_3j(degree, low, big_j, dtype=torch.float64), harmonic)
                    expected += q @ sender @ r.T
            assert torch.allclose(found[slot][0, e], expected, atol=1e-9)
