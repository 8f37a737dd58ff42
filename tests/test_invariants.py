"""Invariants at the door: exactly invariant, smooth at zero, of order one near and of the size of the data far away."""

from itertools import pairwise

import pytest
import torch

from anygatr import geometry, model
from anygatr.checkpoint import load, save
from anygatr.interface.fields import Inputs
from anygatr.spaces import kinds
from anygatr.spaces.invariants import invariants, root
from anygatr.testing import certify

GEOMETRIES = [geometry(name, dim, mirrors) for name in ("E", "P", "iP", "C") for dim in (2, 3) for mirrors in (True, False)]
SMALL = {"hidden": (4, 8), "blocks": 1, "heads": 2}
FIVE = geometry("E", 5)


def label(geo):
    return f"{geo.name}{geo.dim}{'' if len(geo.symmetry.mirrors) else '-'}"


def declared(geo):
    """Every kind that the geometry takes, all in one token."""
    return {
        f"f{i}": kind
        for i, kind in enumerate(name for name, entry in kinds.KINDS.items() if not entry.coded)
        if (kind != "oriented_point" or geo.point != "relative") and (kind not in ("rotation", "motor") or geo.dim < 4)
    }


def drawn(geo, declaration, *shape):
    rng = torch.Generator().manual_seed(0)
    return {name: kinds.draw(geo, kind, *shape, generator=rng) for name, kind in declaration.items()}


def motion(geo, determinant):
    rng = torch.Generator().manual_seed(1)
    matrix = torch.linalg.qr(torch.randn(geo.dim, geo.dim, generator=rng, dtype=torch.float64)).Q
    matrix[:, -1] *= torch.linalg.det(matrix) * determinant
    return matrix, 3 * torch.randn(geo.dim, generator=rng, dtype=torch.float64)


def scalars(inputs, values, origin):
    return inputs.embed(values, origin)[1]


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("geo", [*GEOMETRIES, FIVE, geometry("iP", 5, False)], ids=label)
def test_invariants_of_every_kind_are_invariant(geo, anchored):
    """Under rotations and translations always, under mirrors where the group has any; elsewhere volumes see mirrors."""
    declaration = declared(geo)
    inputs = Inputs(geo, declaration, invariants=True, anchored=anchored)
    assert inputs.invariants > 3
    values, origin = drawn(geo, declaration, 2, 5), torch.randn(2, 1, geo.dim, dtype=torch.float64)
    has_mirrors, relative = bool(len(geo.symmetry.mirrors)), geo.point == "relative"
    origin = origin if inputs.anchored else None
    for determinant in (1, -1) if has_mirrors else (1,):
        matrix, shift = motion(geo, determinant)
        moved = {name: kinds.move(geo, declaration[name], x, matrix, shift) for name, x in values.items()}
        there = None if origin is None else origin @ matrix.T + shift
        torch.testing.assert_close(scalars(inputs, moved, there), scalars(inputs, values, origin), rtol=1e-11, atol=1e-11)
    matrix, shift = motion(geo, -1)
    moved = {name: kinds.move(geo, declaration[name], x, matrix, shift) for name, x in values.items()}
    there = None if origin is None else origin @ matrix.T + shift
    changed = (scalars(inputs, moved, there) - scalars(inputs, values, origin)).abs().max()
    assert has_mirrors or changed > 1e-2
    assert relative or anchored == inputs.anchored


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if g.point != "relative"], ids=label)
def test_a_plane_and_a_line_may_be_given_by_any_of_their_points(geo):
    """The negative control of taking objects apart: what is said of them does not depend on how they are written down."""
    rng = torch.Generator().manual_seed(0)
    n, p, v = torch.randn(3, 4, geo.dim, generator=rng, dtype=torch.float64)
    along = p - (p * n).sum(-1, keepdim=True) * n / n.square().sum(-1, keepdim=True)
    offset = (n * p).sum(-1, keepdim=True) * n / n.square().sum(-1, keepdim=True)
    two = [torch.cat([n, x], -1) for x in (offset + along, offset - along)]
    torch.testing.assert_close(*(invariants(geo, [("plane", x)]) for x in two))
    two = [torch.cat([x, v], -1) for x in (p, p + 3 * v)]
    torch.testing.assert_close(*(invariants(geo, [("line", x)]) for x in two))
    assert (invariants(geo, [("line", two[0])]) - invariants(geo, [("line", two[0] + 1)])).abs().max() > 0.1


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_roots_are_odd_increasing_and_smooth(degree):
    q = torch.linspace(-30, 30, 4001, dtype=torch.float64, requires_grad=True)
    y = root(q, degree)
    assert all(a < b for a, b in pairwise(y.tolist()))
    torch.testing.assert_close(y, -y.flip(0))
    large = torch.tensor(10.0 ** (6 * degree), dtype=torch.float64)
    assert root(large, degree).item() == pytest.approx(1e6, rel=1e-6)  # the size of the data, whatever the degree
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(root(zero, degree), zero, create_graph=True)
    assert first.item() == pytest.approx(0.5 ** (1 - degree))


@pytest.mark.parametrize("geo", [geometry("iP"), geometry("E", mirrors=False), geometry("C", 2)], ids=label)
def test_forces_exist_where_points_meet_the_origin(geo):
    """A single token lies at its mean; twice differentiable there, as training on forces needs."""
    net = model(geo, {"x": "point", "a": "vector", "b": "vector", "c": "vector"}, {"y": "scalar"}, per="sample", **SMALL)
    net = net.double()
    values = {name: torch.zeros(3, 1, geo.dim, dtype=torch.float64, requires_grad=True) for name in "xabc"}
    grads = torch.autograd.grad(net(**values)["y"].sum(), list(values.values()), create_graph=True)
    sum(g.square().sum() for g in grads).backward()
    assert all(torch.isfinite(g).all() for g in grads)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if g.dim == 3], ids=label)
def test_models_with_invariants_are_certified(geo):
    inputs = {"position": "point", "velocity": "vector", "wall": "plane", "mass": "scalar"}
    assert certify(model(geo, inputs, {"final": "point", "energy": "scalar"}, **SMALL)).ok


def test_they_are_recorded_and_older_checkpoints_have_none(tmp_path):
    inputs, targets = {"v": "vector"}, {"y": "scalar"}
    new, old = (model("E", inputs, targets, invariants=on, **SMALL) for on in (True, False))
    for net in (new, old):
        if net is old:
            del net.config["invariants"], net.config["init"]  # as files were before there were any
        save(net, tmp_path / "m.safetensors")
        again = load(tmp_path / "m.safetensors")
        v = torch.randn(2, 5, 3)
        torch.testing.assert_close(again(v=v)["y"], net(v=v)["y"], rtol=0, atol=0)
        assert again.inputs.invariants == (net is new)


def test_far_and_large_data_give_numbers_of_their_size():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(64, 5, generator=rng)
    for geo in (FIVE, geometry("E", 5, mirrors=False)):
        found = invariants(geo, [("vector", 1e6 * torch.roll(x, i, 0)) for i in range(5)])
        assert 1e3 < found.abs().median() < 1e7
        assert found.abs().max() < 1e8


def test_large_families_are_left_out():
    many = Inputs(geometry("E", mirrors=False), {"x": "point*24"}, invariants=True)
    assert many.invariants == 24
    few = Inputs(geometry("E", mirrors=False), {"x": "point*4"}, invariants=True)
    assert few.invariants == 4 + 6 + 4


def test_bad_switches():
    with pytest.raises(ValueError, match="invariants='yes' must be True or False"):
        model("E", {"v": "vector"}, {"y": "scalar"}, invariants="yes", **SMALL)
    with pytest.raises(ValueError, match="init='kaiming' is unknown; choose from 'paper', 'balanced'"):
        model("E", {"v": "vector"}, {"y": "scalar"}, init="kaiming", **SMALL)
