"""Pairs: dense grids equal lists of edges, whatever the layout; they follow motions; cells do not care where an atom is."""

import pytest
import torch

import anygatr
from anygatr import GATr, Width, geometry, model
from anygatr.checkpoint import load, save
from anygatr.export import program
from anygatr.interface.conservative import ConservativeModel
from anygatr.nn.pairs import PairTerms
from anygatr.ops import pairs as operation
from anygatr.ops.pairs import Bucket, pair_attention
from anygatr.testing import certify

GEOMETRIES = [(name, mirrors) for name in ("E", "P", "iP", "C") for mirrors in (True, False)]
FIELDS = {"bond": "category*3", "distance": "scalar", "shift": "vector"}


def built(geo="iP", pairs=FIELDS, target="scalar", **options):
    torch.manual_seed(0)
    geo = geometry(geo[0], mirrors=geo[1]) if isinstance(geo, tuple) else geometry(geo)
    inputs = {"position": "point", "mass": "scalar"}
    return model(geo, inputs, {"out": target}, Width(2, 4), blocks=2, heads=2, unit=None, pairs=pairs, **options).double()


def sample(n, seed=0):
    """Tokens, a dense grid of some pairs, and the same pairs as edges."""
    rng = torch.Generator().manual_seed(seed)
    tokens = {"position": torch.randn(n, 3, generator=rng).double(), "mass": torch.rand(n, generator=rng).double()}
    on = torch.rand(n, n, generator=rng) < 0.4
    shift = (tokens["position"][None] - tokens["position"][:, None]) * on.unsqueeze(-1)
    bond = torch.where(on, torch.randint(0, 3, (n, n), generator=rng), -1)
    grid = {"bond": bond, "distance": shift.norm(dim=-1), "shift": shift}
    receiver, sender = on.nonzero(as_tuple=True)
    listed = {name: x[receiver, sender] for name, x in grid.items()}
    return tokens, grid, listed, torch.stack([sender, receiver])


@pytest.mark.parametrize("multi_query", [True, False])
@pytest.mark.parametrize("geo", ["E", "P", "iP", "C"])
def test_a_grid_equals_its_edges_packed_and_padded(geo, multi_query):
    net, lengths = built(geo, multi_query=multi_query), (5, 2, 6, 6)
    parts = [sample(n, seed) for seed, n in enumerate(lengths)]
    single = torch.cat([net(**tokens, pairs=grid)["out"] for tokens, grid, _, _ in parts])
    listed = torch.cat([net(**tokens, pairs=few, edges=edges)["out"] for tokens, _, few, edges in parts])
    torch.testing.assert_close(listed, single, rtol=1e-10, atol=1e-12)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    together = {name: torch.cat([part[0][name] for part in parts]) for name in parts[0][0]}
    few = {name: torch.cat([part[2][name] for part in parts]) for name in FIELDS}
    edges = torch.cat([part[3] + start for part, start in zip(parts, offsets, strict=False)], 1)
    packed = net(**together, pairs=few, edges=edges, offsets=offsets)["out"]
    torch.testing.assert_close(packed, single, rtol=1e-10, atol=1e-12)

    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    padded = {name: torch.nn.utils.rnn.pad_sequence([part[0][name] for part in parts], True) for name in parts[0][0]}
    grids = {name: x.new_full((4, 6, 6, *x.shape[2:]), 1) for name, x in parts[0][1].items()}  # what padding says is ignored
    for row, (n, part) in enumerate(zip(lengths, parts, strict=True)):
        for name, x in part[1].items():
            grids[name][row, :n, :n] = x
    masked = net(**padded, pairs=grids, mask=mask)["out"]
    torch.testing.assert_close(masked[mask], single, rtol=1e-10, atol=1e-12)
    places = torch.cat([part[3] + 6 * row for row, part in enumerate(parts)], 1)
    torch.testing.assert_close(net(**padded, pairs=few, edges=places, mask=mask)["out"], masked, rtol=1e-10, atol=1e-12)


def test_each_field_matters_and_none_is_the_network_without():
    net, (tokens, grid, few, edges) = built(), sample(6)
    out = net(**tokens, pairs=grid)["out"]
    for name, x in few.items():
        changed = few | {name: (x + 1) % 3 if name == "bond" else 2 * x}
        assert (net(**tokens, pairs=changed, edges=edges)["out"] - out).abs().max() > 1e-4, name
    flipped = net(**tokens, pairs=few, edges=edges.flip(0))["out"]
    assert (flipped - out).abs().max() > 1e-4
    plain = built(pairs=None)
    assert set(plain.state_dict()) == {name for name in net.state_dict() if "pair_terms" not in name}
    torch.testing.assert_close(
        dict(plain.named_parameters()), {k: v for k, v in net.named_parameters() if "pair_terms" not in k}
    )
    nothing = {name: x[:0] for name, x in few.items()}
    without = net(**tokens, pairs=nothing, edges=edges[:, :0])["out"]
    torch.testing.assert_close(without, plain(**tokens)["out"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("geo", GEOMETRIES, ids=str)
def test_certified(geo):
    certificate = certify(built(geo, target="scalar" if geo[0] == "P" else "vector"), dtypes=[torch.float64])
    assert certificate.ok, str(certificate)


@pytest.mark.parametrize("geo", ["E", "P", "iP", "C"])
def test_networks_of_multivectors_are_certified(geo):
    certificate = certify(GATr(geometry(geo), (1, 1), (2, 4), (1, 1), 1, 2, pairs=(2, 1)), dtypes=[torch.float64])
    assert certificate.ok, str(certificate)


def test_a_map_that_mixes_coordinates_is_caught(monkeypatch):
    def spoiled(self, pairs, made=PairTerms.forward):
        out = made(self, pairs)
        return out._replace(bias=out.bias + pairs.x[1:3].sum((0, 2)).unsqueeze(-1))

    monkeypatch.setattr(PairTerms, "forward", spoiled)
    assert not certify(built("E", target="vector"), dtypes=[torch.float64]).ok


def test_order_of_pairs_does_not_matter():
    net, (tokens, _, few, edges) = built(), sample(6)
    order = torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(0))
    shuffled = net(**tokens, pairs={name: x[order] for name, x in few.items()}, edges=edges[:, order])["out"]
    torch.testing.assert_close(shuffled, net(**tokens, pairs=few, edges=edges)["out"], rtol=1e-10, atol=1e-12)


def test_tiles_equal_the_whole_and_their_gradients(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(11, h, 3, generator=rng, dtype=torch.float64, requires_grad=True) for h in (4, 2, 2))
    logits = torch.randn(9, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    values = torch.randn(9, 2, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    slots = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 4]])
    cells = torch.randint(0, 16, (5,), generator=rng)
    real = torch.tensor([[True] * 4, [True, True, True, False]])
    rest = torch.tensor([[7, 8, 9, 10]])
    places = (
        Bucket(slots, real, torch.tensor([0, 2, 4, 6, 8]), cells),
        Bucket(rest, None, torch.tensor([1, 3, 5, 7]), torch.tensor([15, 2, 2, 7])),
    )
    whole = pair_attention(q, k, v, logits, values, places, 0.7)
    # the last two of the second bucket have the same ends: they add up
    sums = torch.eye(9, dtype=torch.float64)
    sums[3, 5] = 1
    once = places[1]._replace(pairs=torch.tensor([1, 3, 7]), cells=torch.tensor([15, 2, 7]))
    added = torch.einsum("de,egw->dgw", sums, values)
    again = pair_attention(q, k, v, sums @ logits, added, (places[0], once), 0.7)
    torch.testing.assert_close(again, whole, rtol=1e-12, atol=1e-13)
    for tile in (16, 40, 80):
        monkeypatch.setattr(operation, "TILE", tile)
        given = (q, k, v, logits, values)
        torch.testing.assert_close(pair_attention(*given, places, 0.7), whole, rtol=1e-12, atol=1e-13)
        assert torch.autograd.gradcheck(lambda *t: pair_attention(*t, places, 0.7), given, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *t: pair_attention(*t, places, 0.7), given, fast_mode=True)


@pytest.mark.parametrize("geo", ["E", "iP"])
def test_forces_are_minus_the_slope_and_can_be_trained(geo):
    net = built(geo, {"shift": "vector"}, per="sample")
    forces = ConservativeModel(net, "position", "out", "force")
    position, mass = torch.randn(5, 3).double(), torch.rand(5).double()

    def energy(place):
        near = anygatr.neighbours(place, 1.5)
        return net(position=place, mass=mass, edges=near.edges, pairs={"shift": near.shift * near.smooth[:, None]})["out"]

    place = position.clone().requires_grad_()
    near = anygatr.neighbours(place, 1.5)
    told = {"shift": near.shift * near.smooth[:, None]}
    force = forces(position=place, mass=mass, edges=near.edges, pairs=told)["force"]
    step = 1e-5 * torch.randn(5, 3).double()
    slope = (energy(position + step) - energy(position - step)) / 2
    torch.testing.assert_close(-(force * step).sum(), slope, rtol=1e-6, atol=1e-12)
    force.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.net.pair_terms.parameters() if p.requires_grad)
    with pytest.raises(ValueError, match="requires_grad_"):
        forces(position=position, mass=mass, edges=near.edges, pairs={"shift": near.shift.detach()})


def test_checkpoints_and_units(tmp_path):
    torch.manual_seed(0)
    net = model("E", {"mass": "scalar"}, {"out": "vector"}, Width(4, 8), blocks=1, heads=2, pairs=FIELDS)
    tokens, grid, few, edges = sample(6)
    given = {name: x.float() if x.is_floating_point() else x for name, x in few.items()}
    given["shift"] = given["shift"] * 100
    out = net(mass=tokens["mass"].float(), pairs=given, edges=edges)
    assert 32 <= net.units.values["shift"] <= 512
    other = dict(grid, shift=grid["shift"] * 100)
    assert net.fit_unit(mass=tokens["mass"], pairs=other)["shift"] == net.units.values["shift"]
    save(net, tmp_path / "net.safetensors")
    again = load(tmp_path / "net.safetensors")
    torch.testing.assert_close(again(mass=tokens["mass"].float(), pairs=given, edges=edges), out)
    assert again.config["pairs"] == FIELDS


def test_what_is_refused():
    net, (tokens, grid, few, edges) = built(), sample(4)
    batch = {name: torch.stack([x, x]) for name, x in tokens.items()}
    with pytest.raises(ValueError, match="pairs has None; this model takes bond, distance, shift"):
        net(**tokens)
    with pytest.raises(ValueError, match="the model has none; declare them"):
        built(pairs=None)(**tokens, pairs=grid)
    with pytest.raises(ValueError, match="is a scalar, a category, a pseudoscalar or a vector"):
        built(pairs={"middle": "point"})
    with pytest.raises(ValueError, match="is an input of tokens already"):
        built(pairs={"mass": "scalar"})
    with pytest.raises(ValueError, match="names token 9"):
        net(**tokens, pairs=few, edges=edges.clone().fill_(9))
    with pytest.raises(ValueError, match="joins samples 1 and 0"):
        net(**batch, pairs=few, edges=edges + torch.tensor([[4], [0]]))
    mask = torch.tensor([True, True, True, False])
    with pytest.raises(ValueError, match="has padding at an end"):
        net(**tokens, mask=mask, pairs=few, edges=torch.full_like(edges, 3))
    with pytest.raises(ValueError, match="packed samples have no grid"):
        net(**tokens, offsets=torch.tensor([0, 4]), pairs=grid)
    with pytest.raises(ValueError, match="has the category 9; it was declared with 3 classes"):
        net(**tokens, pairs=grid | {"bond": grid["bond"] + 8})
    with pytest.raises(ValueError, match=r"these pairs, receiver before sender, need \(4, 4, 3\)"):
        net(**tokens, pairs=grid | {"shift": grid["shift"][:3]})
    with pytest.raises(ValueError, match="sparse attention has no pairs"):
        built(large="anchors")
    with pytest.raises(ValueError, match="is not narrowed"):
        net.narrow()
    with pytest.raises(ValueError, match="is not compiled"):
        net.compile()
    with pytest.raises(ValueError, match="pairs cannot be exported"):
        program(net)


# --- cells ---

CELLS = {
    "cubic": torch.eye(3).double() * 3,
    "orthorhombic": torch.diag(torch.tensor([2.0, 3.0, 4.5]).double()),
    "triclinic": torch.tensor([[3.0, 0, 0], [1.4, 2.6, 0], [-0.9, 1.1, 2.2]]).double(),
    "flat": torch.tensor([[3.0, 0, 0], [7.3, 2.0, 0], [0.3, -4.1, 2.2]]).double(),
}


def atoms(cell, n=6):
    rng = torch.Generator().manual_seed(3)
    return torch.rand(n, 3, generator=rng).double() @ cell, torch.randint(0, 2, (n,), generator=rng)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("cutoff", [None, 2.0, 3.9])
def test_neighbours_are_those_of_a_large_crystal(name, cutoff):
    cell, (points, _) = CELLS[name], atoms(CELLS[name])
    found = anygatr.neighbours(points + torch.randint(-2, 3, (6, 1)).double() * cell[0], cutoff, cell)
    every = torch.cartesian_prod(*[torch.arange(-12, 13)] * 3)
    for i in range(len(points)):
        lengths = ((points[:, None] + every.double() @ cell) - points[i]).norm(dim=-1)
        mine = found.shift[found.edges[1] == i].norm(dim=-1).sort().values
        others = torch.cat([lengths[:i], lengths[i + 1 :]])
        expected = others.min(1).values if cutoff is None else lengths[(lengths < cutoff) & (lengths > 0)]
        torch.testing.assert_close(mine, expected.flatten().sort().values, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("geo", ["E", "iP", "C"])
def test_a_crystal_does_not_care_in_which_image_an_atom_is_given(geo, name):
    torch.manual_seed(0)
    cell, (points, kind) = CELLS[name], atoms(CELLS[name])
    target = "vector" if geo == "E" else "scalar"  # iP and C make vectors of points, of which there are none here
    net = model(geo, {"kind": "category*2"}, {"out": target}, Width(4, 8), 2, heads=2, unit=None, pairs={"shift": "vector"})
    net = net.double()

    def predicted(points, cell, **options):
        near = anygatr.neighbours(points, 2.2, cell, **options)
        return net(kind=kind, pairs={"shift": near.shift * near.smooth[:, None]}, edges=near.edges)["out"]

    still = predicted(points, cell)
    turns = torch.randint(-3, 4, (6, 3), generator=torch.Generator().manual_seed(4)).double()
    assert (predicted(points + turns @ cell, cell) - still).abs().max() < 1e-12
    assert (predicted(points + torch.tensor([0.7, -1.3, 5.1]).double(), cell) - still).abs().max() < 1e-12
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    rotation = rotation * torch.linalg.det(rotation)
    moved = still @ rotation.T if geo == "E" else still
    assert (predicted(points @ rotation.T, cell @ rotation.T) - moved).abs().max() < 1e-12
    # negative controls: without the cell, or where the cell does not repeat, the image matters
    assert (predicted(points + turns @ cell, None) - predicted(points, None)).abs().max() > 1e-4
    assert (predicted(points + turns @ cell, cell, pbc=(True, False, True)) - still).abs().max() > 1e-4


def test_smooth_edges_come_and_go_without_a_jump():
    torch.manual_seed(0)
    net = model(
        "E", {"m": "scalar"}, {"u": "scalar"}, Width(4, 8), 2, heads=2, unit=None, pairs={"shift": "vector"}
    ).double()

    def energy(distance, smooth=True):
        near = anygatr.neighbours(torch.tensor([[0.0, 0, 0], [distance, 0, 0]]).double(), 1.0)
        shift = near.shift * near.smooth[:, None] if smooth else near.shift
        return net(m=torch.ones(2).double(), pairs={"shift": shift}, edges=near.edges)["u"][0]

    assert (energy(1 - 1e-6) - energy(1 + 1e-6)).abs() < 1e-9
    assert (energy(1 - 1e-6, False) - energy(1 + 1e-6, False)).abs() > 1e-4


def test_neighbours_of_batches():
    points = torch.rand(2, 4, 3).double()
    cells = torch.stack([CELLS["cubic"], CELLS["triclinic"]])
    both = anygatr.neighbours(points, 2.0, cells)
    one, two = (anygatr.neighbours(points[i], 2.0, cells[i]) for i in range(2))
    torch.testing.assert_close(both.shift, torch.cat([one.shift, two.shift]))
    assert both.edges.equal(torch.cat([one.edges, two.edges + 4], 1))
    packed = anygatr.neighbours(points.flatten(0, 1), 2.0, cells, offsets=torch.tensor([0, 4, 8]))
    assert all(a.equal(b) for a, b in zip(packed, both, strict=True))
    mask = torch.tensor([[True] * 4, [True, False, True, True]])
    assert not (anygatr.neighbours(points, 2.0, cells, mask=mask).edges == 5).any()
    with pytest.raises(ValueError, match="cell has no volume"):
        anygatr.neighbours(points[0], 1.0, torch.zeros(3, 3))
    with pytest.raises(ValueError, match="cutoff=-1"):
        anygatr.neighbours(points[0], -1.0)
    with pytest.raises(ValueError, match="pass its vectors as rows"):
        anygatr.neighbours(points, 1.0, torch.eye(3).expand(3, 3, 3))
