"""Sight: what is said to be unreachable or blind is so in random networks, and what is not, is not."""

from dataclasses import replace

import pytest
import torch

from anygatr import geometry, model, sight
from anygatr.interface.model import Model
from anygatr.spaces import kinds

POINTS = {"position": "point"}
BODIES = {"position": "point", "velocity": "vector", "mass": "scalar"}
FOUR = dict.fromkeys("abcd", "point")
TASKS = [
    (POINTS, "scalar"),
    (POINTS, "point"),
    (POINTS, "vector"),
    (POINTS, "pseudoscalar"),
    (BODIES, "vector"),
    (BODIES, "scalar"),
    ({"v": "vector"}, "scalar"),
    ({"v": "vector", "w": "vector"}, "vector"),
    ({"wall": "plane"}, "vector"),
    ({"wall": "plane", "position": "point"}, "scalar"),
    (FOUR, "pseudoscalar"),
]
GEOMETRIES = [geometry(name, dim, mirrors) for name in ("E", "P", "iP", "C") for dim in (2, 3) for mirrors in (True, False)]


def label(value):
    if hasattr(value, "symmetry"):
        return f"{value.name}{value.dim}{'' if len(value.symmetry.mirrors) else '-'}"
    return "+".join(value.values()) if isinstance(value, dict) else str(value)


def network(geo, inputs, kind, invariants):
    """Random weights for all maps, of a size at which neither norms nor products dwarf the rest."""
    torch.manual_seed(0)
    net = Model(replace(geo, init="kaiming"), inputs, {"y": kind}, (8, 8), 4, 2, invariants=invariants, init="balanced")
    return net.double()


def drawn(geo, inputs, seed):
    rng = torch.Generator().manual_seed(seed)
    return {name: kinds.draw(geo, kind, 3, 6, generator=rng) for name, kind in inputs.items()}


def mirrored(geo, declaration, values):
    flip = torch.eye(geo.dim, dtype=torch.float64)
    flip[-1, -1] = -1
    still = flip.new_zeros(geo.dim)
    columns = {name: kinds.columns(geo, kind) for name, kind in declaration.items()}
    wide = {n: x if columns[n] > 1 or x.shape[-1] == 1 else x.unsqueeze(-1) for n, x in values.items()}
    return {n: kinds.move(geo, declaration[n], x, flip, still).reshape(values[n].shape) for n, x in wide.items()}


@pytest.mark.parametrize("invariants", [False, True], ids=["bare", "invariants"])
@pytest.mark.parametrize(("inputs", "kind"), TASKS, ids=label)
@pytest.mark.parametrize("geo", GEOMETRIES, ids=label)
def test_random_networks_see_what_is_said(geo, inputs, kind, invariants):
    """Zero if and only if unreachable, unmoved by an input if and only if blind to it, mirror-bound if and only if said."""
    said = sight(geo, inputs, {"y": kind}, invariants)["y"]
    net = network(geo, inputs, kind, invariants)
    values, others = drawn(geo, inputs, 0), drawn(geo, inputs, 1)

    def right(data):
        """The part of a prediction that follows mirrors."""
        y = net(**data)["y"]
        back = mirrored(geo, {"y": kind}, {"y": net(**mirrored(geo, inputs, data))["y"]})["y"]
        return (y + back) / 2, (y - back) / 2

    with torch.no_grad():
        y, wrong = right(values)
        size = max(float(net(**values)["y"].abs().max()), 1e-3)
        assert (float(y.abs().max()) > 1e-12 * size) == said.reachable
        for name in inputs:
            moved = float((right({**values, name: others[name]})[0] - y).abs().max())
            assert (moved > 1e-12 * size) == (name in said.influences), (name, moved)
        assert (float(wrong.abs().max()) < 1e-12 * size) == said.follows_mirrors
    assert set(said.blind) == set(inputs) - set(said.influences)


def test_the_table_that_started_it():
    """The silent failures, each said beforehand without invariants, and seen with them."""
    assert sight("P", POINTS, {"y": "scalar"}, invariants=False)["y"].constant
    assert sight("P", POINTS, {"y": "scalar"})["y"].learnable
    saddle = sight("iP", POINTS, {"volume": "scalar"}, invariants=False)["volume"]
    assert (saddle.influences, saddle.blocks) == ({"position": 2}, 2)  # attention, join, product: two layers of products
    for name in ("P", "iP"):
        assert sight(name, {"v": "vector"}, {"length": "scalar"}, invariants=False)["length"].blind == ("v",)
        assert sight(name, {"v": "vector"}, {"length": "scalar"})["length"].influences == {"v": 1}
    assert not sight("P", BODIES, {"force": "vector"})["force"].reachable
    assert sight("P", BODIES, {"energy": "scalar"}, invariants=False)["energy"].blind == ("position", "velocity")
    assert str(sight("P", BODIES, {"force": "vector"})["force"]) == "cannot be reached"


@pytest.mark.parametrize(
    ("geo", "inputs", "targets", "options", "message"),
    [
        ("P", BODIES, {"force": "vector"}, {}, "nothing made of them is a vector.*use geometry 'E' or geometry 'iP' or"),
        ("P", FOUR, {"volume": "pseudoscalar"}, {}, "use geometry 'E' or geometry 'iP' or geometry 'C'"),
        ("P", POINTS, {"energy": "scalar"}, {"invariants": False}, "none of them has any influence.*invariants=True"),
        ("iP", POINTS, {"energy": "scalar"}, {"invariants": False, "blocks": 1}, "use blocks=2"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_a_remedy(geo, inputs, targets, options, message):
    with pytest.raises(ValueError, match=message):
        model(geo, inputs, targets, hidden=(4, 8), heads=2, **options)


def test_looking_leaves_the_generator_alone():
    weights = []
    for inputs in ({"v": "vector"}, {"v": "vector"}):
        torch.manual_seed(0)
        model("E", inputs, {"y": "scalar"}, hidden=(4, 8), blocks=1, heads=2)
        weights.append(torch.rand(1))
    assert weights[0] == weights[1]
