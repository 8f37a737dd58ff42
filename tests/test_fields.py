"""Kinds and fields: columns, substitutes, packing into channels, and the law each kind obeys on its way in and out."""

import pytest
import torch

from anygatr.interface.fields import Inputs, Targets
from anygatr.lab.data.kinds import parse_fields, roles
from anygatr.nn.width import Width
from anygatr.spaces import existence, kinds
from anygatr.spaces.embeddings import flats
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.kind import Kind
from anygatr.spaces.presets import geometry

GEOMETRIES = [geometry(name, dim) for name in ("E", "P", "C") for dim in (1, 2, 3)] + [geometry("L")]
CASES = []
for geo in GEOMETRIES:
    for kind in kinds.KINDS:
        try:
            kinds.parts(geo, kind)
        except ValueError:
            continue
        CASES.append((geo, kind))
PLACED = {"plane", "line", "motor"}  # read relative to the origin: their columns name one point of many, or a screw


def name(value):
    return f"{value.name}{value.dim}" if isinstance(value, Geometry) else str(value)


def motion(geo, seed, determinant=1):
    generator = torch.Generator().manual_seed(seed)
    n = len(geo.axes)
    skew = torch.randn(n, n, generator=generator, dtype=torch.float64)
    matrix = torch.linalg.matrix_exp((skew - skew.T) * torch.tensor(geo.split.space.squares))
    if geo.time is not None:  # rotations of space, which every kind of spacetime understands
        matrix = torch.block_diag(torch.eye(1), torch.linalg.qr(matrix[1:, 1:]).Q)
        matrix[:, -1] *= torch.linalg.det(matrix)
    matrix[:, -1] *= determinant
    return matrix.double(), 10 * torch.randn(n, generator=generator, dtype=torch.float64), generator


def reads_what_it_writes(geo, kind):
    """Whether a kind is read from the blades it is written to; elsewhere an equivariant layer has to lie in between."""
    if bool(geo.infinity.any()) and {"vector", "translation"} & set(kinds.parts(geo, kind)):
        return False
    return not (bool(geo.o.any()) and kind in ("plane", "line", "rotation", "motor"))


@pytest.mark.parametrize(("geo", "kind"), [case for case in CASES if reads_what_it_writes(*case)], ids=name)
def test_what_was_embedded_is_read_back(geo, kind):
    *_, generator = motion(geo, 1)
    values, origin = kinds.draw(geo, kind, 6, generator=generator), torch.randn(len(geo.axes)).double()
    for centre in (None, origin) if geo.point else (None,):
        found = kinds.read(geo, kind, kinds.embed(geo, kind, values, centre), centre)
        if kind == "plane":
            n, d = geo.dim, slice(geo.dim, None)
            expected = torch.cat([values[..., :n], (values[..., :n] * values[..., d]).sum(-1, keepdim=True)], -1)
            found = torch.cat([found[..., :n], (found[..., :n] * found[..., d]).sum(-1, keepdim=True)], -1)
        elif kind == "line":
            n = geo.dim
            unit = torch.nn.functional.normalize(values[..., n:], dim=-1)
            gap = values[..., :n] - found[..., :n]
            expected = values[..., n:]
            assert (gap - (gap * unit).sum(-1, keepdim=True) * unit).abs().max() < 1e-9
            found = found[..., n:]
        elif kind == "rotation" and geo.dim == 2:
            expected, found = values.cos(), found.cos()
        elif kind == "motor" and geo.dim == 2:
            expected, found = values[..., 1:], found[..., 1:]
        else:
            expected = values
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("determinant", [1, -1], ids=["rotation", "mirror"])
@pytest.mark.parametrize(("geo", "kind"), CASES, ids=name)
def test_embedding_and_reading_follow_the_motion_of_data_and_origin(geo, kind, determinant):
    """embed(g x, g o) = +-act(M, embed(x, o)) and read(act(M, mv), g o) = g read(mv, o), for any multivectors mv."""
    matrix, shift, generator = motion(geo, 2, determinant)
    if geo.point is None:
        shift = 0 * shift
    values = kinds.draw(geo, kind, 6, generator=generator)
    origin = torch.randn(len(geo.axes), generator=generator, dtype=torch.float64) if geo.point else None
    moved_origin = None if origin is None else origin @ matrix.T + shift
    versor = geo.transform(matrix)

    still = kinds.embed(geo, kind, values, origin)
    moved = kinds.embed(geo, kind, kinds.move(geo, kind, values, matrix, shift), moved_origin)
    for part, before, after in zip(kinds.parts(geo, kind), still, moved, strict=True):
        before = geo.symmetry.act(versor, before)
        sign = determinant if part == "oriented_point" or (geo.point == "meet" and part in ("point", "line")) else 1
        torch.testing.assert_close(after, sign * before, rtol=1e-8, atol=1e-8)

    mvs = list(torch.randn(len(still), 6, geo.algebra.dim, generator=generator, dtype=torch.float64))
    read = kinds.read(geo, kind, mvs, origin)
    found = kinds.read(geo, kind, [geo.symmetry.act(versor, mv) for mv in mvs], moved_origin)
    expected = kinds.move(geo, kind, read, matrix, shift)
    if (
        kind == "line" and "line" in geo.kinds and geo.point == "meet" and determinant < 0
    ):  # as P's points, its lines are odd under mirrors
        expected = torch.cat([expected[..., : geo.dim], -expected[..., geo.dim :]], -1)
    if kind in ("rotation", "motor") and geo.dim == 2:
        found, expected = (torch.cat([x[..., :1].cos(), x[..., 1:]], -1) for x in (found, expected))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("geo", "kind"),
    [(geo, kind) for geo, kind in CASES if bool(geo.infinity.any()) and kind in geo.kinds and kind not in PLACED],
    ids=name,
)
def test_reading_needs_no_origin_where_translations_act(geo, kind):
    _, shift, generator = motion(geo, 3)
    mv = torch.randn(6, geo.algebra.dim, generator=generator, dtype=torch.float64)
    eye = torch.eye(geo.dim, dtype=torch.float64)
    moved = geo.symmetry.act(geo.transform(eye, shift), mv)
    found = kinds.read(geo, kind, [moved])
    torch.testing.assert_close(found, kinds.move(geo, kind, kinds.read(geo, kind, [mv]), eye, shift), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("geo", [geometry("P"), geometry("C"), geometry("C", 2)], ids=name)
def test_planes_are_read_at_their_place_without_an_origin(geo):
    _, shift, generator = motion(geo, 4)
    mv = torch.randn(6, geo.algebra.dim, generator=generator, dtype=torch.float64)
    eye = torch.eye(geo.dim, dtype=torch.float64)
    (normal, point), (normal2, point2) = (
        kinds.split(geo, "plane", kinds.read(geo, "plane", [x]))
        for x in (mv, geo.symmetry.act(geo.transform(eye, shift), mv))
    )
    torch.testing.assert_close(normal2, normal)
    torch.testing.assert_close((normal * point2).sum(-1), (normal * (point + shift)).sum(-1))


@pytest.mark.parametrize(
    ("name", "declaration", "width", "channels"),
    [
        # mass, position and velocity of a body: one channel wherever their grades differ
        ("E", {"mass": "scalar", "x": "point", "v": "vector"}, Width(2, 1), [0, 0, 1]),
        ("P", {"mass": "scalar", "x": "point", "v": "vector"}, Width(1, 1), [0, 0, 0]),
        ("C", {"mass": "scalar", "x": "point", "v": "vector"}, Width(1, 1), [0, 0, 0]),
        # a wall: its points and its tangent planes
        ("E", {"x": "point", "wall": "plane", "age": "scalar"}, Width(2, 2), [0, 1, 0, 1]),
        ("P", {"x": "point", "wall": "plane", "age": "scalar"}, Width(1, 1), [0, 0, 0]),
        ("C", {"x": "point", "wall": "plane", "age": "scalar"}, Width(2, 1), [0, 1, 0]),
        ("C", {"a": "scalar*3"}, Width(1, 3), [0, None, None]),
        ("C", {"a": "point*2"}, Width(2, 0), [0, 1]),
        ("P", {"ball": "sphere"}, Width(1, 1), [0, 0]),
        ("C", {"ball": "sphere"}, Width(1, 0), [0]),
        ("P", {"p": "momentum"}, Width(1, 1), [0, 0]),
        ("L", {"p": "momentum", "charge": "scalar"}, Width(1, 1), [0, 0]),
    ],
)
def test_fields_share_a_channel_where_grades_do_not_clash(name, declaration, width, channels):
    inputs = Inputs(geometry(name), declaration)
    assert inputs.width == width
    assert [slot.channel for slot in inputs.slots] == channels


@pytest.mark.parametrize("name", ["E", "P", "C"])
def test_every_field_survives_the_packing(name):
    """Different data give different channels: each field alone changes x or s."""
    geo = geometry(name)
    inputs = Inputs(geo, {"x": "point", "v": "vector*2", "wall": "plane", "q": "rotation", "a": "scalar*2"})
    values = {field.name: torch.cat([kinds.draw(geo, field.kind, 4)] * field.count, -1) for field in inputs.fields}
    x, s = inputs.embed(values)
    assert x.shape == (4, inputs.width.mv, geo.algebra.dim)
    assert s.shape == (4, inputs.width.s)
    for field in inputs.fields:
        other = {**values, field.name: values[field.name].flip(0)}
        y, t = inputs.embed(other)
        assert (y - x).abs().max() + ((t - s).abs().max() if s.numel() else 0) > 1e-3


def test_the_n_body_channel_of_the_literature():
    """Mass in the scalar part, the point in grade 3, the velocity in the blades of a translation."""
    geo = geometry("P")
    inputs = Inputs(geo, {"m": "scalar", "x": "point", "v": "vector"})
    x, s = inputs.embed(
        {"m": torch.tensor([[7.0]]), "x": torch.tensor([[1.0, 2.0, 3.0]]), "v": torch.tensor([[4.0, 5.0, 6.0]])}
    )
    assert geo.algebra.format(x[0, 0]) == "7 + 4 e01 + 5 e02 + 6 e03 - 3 e012 + 2 e013 - e023 + e123"
    assert s.tolist() == [[7.0]]
    translation = geo.embed_translation(torch.tensor([4.0, 5.0, 6.0]))
    torch.testing.assert_close(-2 * geo.algebra.grade(translation, 2), geo.algebra.grade(x[0, 0], 2))


@pytest.mark.parametrize(
    ("name", "declaration", "message"),
    [
        ("C", {"x": "pont"}, "x='pont': kind 'pont' is unknown; did you mean 'point'"),
        ("C", {"x": "point*0"}, "after . write how many"),
        ("C", {"x": "point*two"}, "after . write how many"),
        ("C", {}, "must name at least one field"),
        ("C", {"mask": "point"}, "named 'mask'"),
        ("C", {"my field": "point"}, "use an identifier"),
        ("L", {"x": "point"}, "x='point': geometry 'L'.*cannot represent a point; these can: E, P, iP, C"),
        ("L", {"x": "sphere"}, "cannot represent a sphere; these can: C"),
    ],
)
def test_bad_declarations(name, declaration, message):
    with pytest.raises(ValueError, match=message):
        Inputs(geometry(name), declaration)
    with pytest.raises(ValueError, match=message):
        Targets(geometry(name), declaration)


def test_a_rotation_needs_a_plane_to_turn_in():
    with pytest.raises(ValueError, match="cannot represent a rotation"):
        Inputs(geometry("E", 1), {"q": "rotation"})


def test_unknown_fields_are_named():
    inputs = Inputs(geometry("C"), {"position": "point"})
    with pytest.raises(ValueError, match="'positon' among position; did you mean 'position'"):
        inputs["positon"]


def test_a_new_kind_is_one_entry_of_the_table(monkeypatch):
    """Networks, motions, files and the command line take it without further ado: here, a place with an arrow."""
    arrow = Kind(
        columns=(("point", "position"), ("vector", "free")),
        exists=existence.with_time,
        embed=flats.embed_line,
        extract=flats.extract_line,
        substitute=("point", "vector"),
    )
    monkeypatch.setitem(kinds.KINDS, "arrow", arrow)
    geo = geometry("C")
    values, shift = kinds.draw(geo, "arrow", 4), torch.ones(3).double()
    x, _ = Inputs(geo, {"a": "arrow"}).embed({"a": values})
    seen = x.sum(-2) @ geo.basis.leave.T
    torch.testing.assert_close(seen, geo.embed_point(values[:, :3]) + geo.embed_vector(values[:, 3:]))
    moved = kinds.move(geo, "arrow", values, torch.eye(3).double(), shift)
    torch.testing.assert_close(moved - values, torch.cat([shift, 0 * shift]).expand(4, 6))
    assert roles("arrow", 3) == (("position", 3), ("free", 3))
    assert parse_fields(["a:arrow"]) == {"a": "arrow"}
