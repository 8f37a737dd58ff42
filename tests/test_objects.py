"""Every embedding: its round trip, its law under rotations, translations and mirrors, and its refusals."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from anygatr.spaces import existence
from anygatr.spaces.embeddings.isometries import reflections
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.kinds import TABLE, presets_with
from anygatr.spaces.presets import geometry

GEOMETRIES = [geometry(name, dim) for name in ("E", "P", "C", "L") for dim in (1, 2, 3)] + [geometry("iP")]
few = settings(max_examples=4, deadline=None)
seeds = st.integers(0, 2**31)


def label(geo: Geometry) -> str:
    return f"{geo.name}{geo.dim}"


def random(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def orthogonal(geo: Geometry, normal: Callable[..., Tensor], determinant: int) -> Tensor:
    """A random matrix of that determinant preserving the metric of the axes, boosts included."""
    n, squares = len(geo.axes), torch.tensor(geo.split.space.squares, dtype=torch.float64)
    skew = normal(n, n)
    m = torch.linalg.matrix_exp((skew - skew.T) * squares)
    m[:, -1] *= determinant
    return m


@dataclass(frozen=True)
class Case:
    """How one kind is drawn, embedded, read back and moved; `odd` ones change sign under mirrors."""

    draw: Callable[[Geometry, Callable[..., Tensor]], tuple[Tensor, ...]]
    moved: Callable[..., tuple[Tensor, ...]]
    agree: Callable[..., list[tuple[Tensor, Tensor]]]
    odd: bool = False


def fixed(geo, m, t, *args):
    return args


def direction(geo, m, t, v):
    return (v @ m.T,)


def position(geo, m, t, x):
    return (x @ m.T + t,)


def flat_or_mirror(geo, m, t, normal, *point):
    return normal @ m.T, *(p @ m.T + t for p in point)


def line(geo, m, t, point, along):
    return point @ m.T + t, along @ m.T


def conjugate(geo, m, t, rotation, shift=None):
    """The rotation M R M^-1, read from its axis (an axial vector), and the translation of g R g^-1."""
    determinant = torch.linalg.det(m)
    if geo.dim == 2:
        turned = rotation * determinant
    else:
        space = m[-3:, -3:]
        turned = torch.cat([determinant * rotation[..., :3] @ space.T, rotation[..., 3:]], -1)
    return (turned,) if shift is None else (turned, shift @ m.T + t - geo.rotate(turned, t.expand_as(shift)))


def draw_rotation(geo, normal):
    return normal(5) if geo.dim == 2 else torch.nn.functional.normalize(normal(5, 4), dim=-1)


def same_rotation(geo, a, b):
    x = torch.eye(len(geo.axes), dtype=torch.float64)[:, None]
    return [
        (
            geo.rotate(a.expand(len(x), *a.shape), x.expand(-1, 5, -1)),
            geo.rotate(b.expand(len(x), *b.shape), x.expand(-1, 5, -1)),
        )
    ]


def same(geo, *pairs):
    half = len(pairs) // 2
    return list(zip(pairs[:half], pairs[half:], strict=True))


def same_plane(geo, normal, point, normal2, point2):
    squares = torch.tensor(geo.split.space.squares)
    return [(normal, normal2), ((normal * point * squares).sum(-1), (normal * point2 * squares).sum(-1))]


def same_line(geo, point, along, point2, along2):
    gap = point - point2
    across = gap - (gap * along).sum(-1, keepdim=True) * along / along.square().sum(-1, keepdim=True)
    return [(along, along2), (across, 0 * across)]


def same_motor(geo, q, t, q2, t2):
    return [*same_rotation(geo, q, q2), (t, t2)]


def same_mirror(geo, normal, *points_and_found):
    squares = torch.tensor(geo.split.space.squares)
    unit = normal / (normal.square() * squares).sum(-1, keepdim=True).abs().sqrt()
    *point, normal2, point2 = points_and_found
    height = (unit * point[0]).sum(-1) if point else torch.zeros(5, dtype=torch.float64)
    return [(unit, normal2), (height, (unit * point2 * squares).sum(-1))]


CASES = {
    "scalar": Case(lambda geo, normal: (normal(5),), fixed, same),
    "pseudoscalar": Case(lambda geo, normal: (normal(5),), fixed, same, odd=True),
    "vector": Case(lambda geo, normal: (normal(5, len(geo.axes)),), direction, same),
    "momentum": Case(lambda geo, normal: (normal(5, len(geo.axes)),), direction, same),
    "point": Case(lambda geo, normal: (normal(5, geo.dim),), position, same),
    "oriented_point": Case(lambda geo, normal: (normal(5, geo.dim),), position, same, odd=True),
    "plane": Case(lambda geo, normal: (normal(5, geo.dim), normal(5, geo.dim)), flat_or_mirror, same_plane),
    "line": Case(lambda geo, normal: (normal(5, geo.dim), normal(5, geo.dim)), line, same_line, odd=True),
    "rotation": Case(lambda geo, normal: (draw_rotation(geo, normal),), conjugate, same_rotation),
    "translation": Case(lambda geo, normal: (normal(5, geo.dim),), direction, same),
    "motor": Case(lambda geo, normal: (draw_rotation(geo, normal), normal(5, geo.dim)), conjugate, same_motor),
    "reflection": Case(lambda geo, normal: (normal(5, len(geo.axes)), normal(5, geo.dim)), flat_or_mirror, same_mirror),
    "sphere": Case(
        lambda geo, normal: (normal(5, geo.dim), normal(5).exp()), lambda geo, m, t, c, r: (c @ m.T + t, r), same
    ),
    "circle": Case(
        lambda geo, normal: (normal(5, geo.dim), normal(5, geo.dim), normal(5).exp()),
        lambda geo, m, t, c, n, r: (c @ m.T + t, n @ m.T, r),
        same,
    ),
    "pair": Case(
        lambda geo, normal: (normal(5, geo.dim), normal(5, geo.dim)),
        lambda geo, m, t, a, b: (a @ m.T + t, b @ m.T + t),
        same,
        odd=True,
    ),
}


def embed(geo: Geometry, kind: str, *args: Tensor, **options) -> Tensor:
    if kind == "oriented_point":
        return geo.embed_point(*args, oriented=True, **options)
    return getattr(geo, f"embed_{kind}")(*args, **options)


def extract(geo: Geometry, kind: str, mv: Tensor, **options) -> tuple[Tensor, ...]:
    if kind == "oriented_point":
        return (geo.extract_point(mv, oriented=True, **options),)
    out = getattr(geo, f"extract_{kind}")(mv, **options)
    return out if isinstance(out, tuple) else (out,)


def drawn(geo: Geometry, kind: str, normal: Callable[..., Tensor]) -> tuple[Tensor, ...]:
    args = CASES[kind].draw(geo, normal)
    # without infinity there are no planes elsewhere: every mirror goes through the origin
    return args[:1] if kind == "reflection" and not bool(geo.infinity.any()) else args


ABLE = [(geo, kind) for geo in GEOMETRIES for kind in CASES if kind in geo.kinds]
UNABLE = [(geo, kind) for geo in GEOMETRIES for kind in CASES if kind not in geo.kinds]
HAS_INVERSE = [(geo, kind) for geo, kind in ABLE if not (kind == "vector" and bool(geo.infinity.any()))]


def name(value) -> str:
    return label(value) if isinstance(value, Geometry) else str(value)


@pytest.mark.parametrize(("geo", "kind"), HAS_INVERSE, ids=name)
@given(seed=seeds)
@few
def test_extract_inverts_embed(geo, kind, seed):
    args = drawn(geo, kind, random(seed))
    for expected, found in CASES[kind].agree(geo, *args, *extract(geo, kind, embed(geo, kind, *args))):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("determinant", [1, -1], ids=["rotation", "mirror"])
@pytest.mark.parametrize(("geo", "kind"), ABLE, ids=name)
@given(seed=seeds)
@few
def test_embedding_is_equivariant(geo, kind, determinant, seed):
    """embed(g x) = +-act(g, embed(x)): the sign is the determinant for odd kinds, and for the points of P and iP."""
    normal = random(seed)
    args, m = drawn(geo, kind, normal), orthogonal(geo, normal, determinant)
    t = 10 * normal(len(geo.axes)) * float(geo.infinity.any())
    if kind == "rotation":  # about the coordinate axes; moved elsewhere it is a motor
        turn = orthogonal(geometry("E", geo.dim), normal, determinant)
        t, m = 0 * t, torch.block_diag(torch.eye(len(m) - geo.dim).double(), turn)
    moved_args = CASES[kind].moved(geo, m, t, *args)
    expected = embed(geo, kind, *moved_args)
    found = geo.symmetry.act(geo.transform(m, t), embed(geo, kind, *args))
    odd = CASES[kind].odd or (kind == "point" and geo.point == "meet")
    sign = determinant if odd else 1
    if kind in ("rotation", "motor"):  # versors: a rotor and its negative are the same rotation
        sign = (expected * found).sum(-1, keepdim=True).sign()
    torch.testing.assert_close(found, sign * expected, rtol=1e-8, atol=1e-8)
    if odd and determinant < 0:
        assert (found - expected).abs().max() > 1e-3


@pytest.mark.parametrize(("geo", "kind"), UNABLE, ids=name)
def test_what_a_geometry_cannot_represent_raises_and_names_those_that_can(geo, kind):
    args = drawn(geometry("C"), kind, random(0)) if kind in geometry("C").kinds else (torch.randn(5, 4),)
    with pytest.raises(ValueError, match=f"{geo.name!r}.*cannot represent a .*; these can: {presets_with(kind)}"):
        embed(geo, kind, *args)
    with pytest.raises(ValueError, match="cannot represent"):
        extract(geo, kind, torch.zeros(geo.algebra.dim))


# kinds that are multivectors of their own in some geometry
OWN = [kind for kind, made in TABLE.items() if not made.coded and made.exists is not existence.nowhere]


@pytest.mark.parametrize("kind", OWN)
def test_refusals_name_the_presets_that_have_the_kind(kind):
    able = [name for name in ("E", "P", "iP", "C", "L") if kind in geometry(name).kinds]
    assert able == presets_with(kind).split(" in ")[0].split(", ")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("point", "E, P, iP, C"),
        ("line", "P, iP, C in 2 or more dimensions"),
        ("rotation", "E, P, iP, C, L in 2 or 3 dimensions"),
        ("circle", "C in 3 dimensions"),
    ],
)
def test_refusals_name_the_dimensions(kind, expected):
    assert presets_with(kind) == expected


@pytest.mark.parametrize("kind", TABLE)
def test_kinds_travel_to_worker_processes(kind):
    assert repr(pickle.loads(pickle.dumps(TABLE[kind]))) == repr(TABLE[kind])


@pytest.mark.parametrize("kind", [kind for kind in OWN if kind != "oriented_point"])
def test_a_geometry_offers_the_embeddings_as_methods(kind):
    """`geo.embed_plane` is the function itself, with its name and documentation, and the table refers to the same one."""
    for verb in ("embed", "extract"):
        method = getattr(Geometry, f"{verb}_{kind}")
        assert method.__name__ == f"{verb}_{kind}"
        assert method.__module__.startswith("anygatr.spaces.embeddings.")
        assert method.__doc__


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if g.point], ids=label)
@given(seed=seeds)
@few
def test_positions_are_read_equivariantly_from_any_multivector(geo, seed):
    """For rotations and translations; mirrors too where points are even under them, up to the sign of P's oriented ones."""
    normal = random(seed)
    x = normal(7, geo.algebra.dim)
    x = x[geo.point_weight(x).abs() > 0.1]
    for determinant in (1, -1):
        m, t = orthogonal(geo, normal, determinant), normal(geo.dim) * float(geo.infinity.any())
        found = geo.extract_point(geo.symmetry.act(geo.transform(m, t), x))
        torch.testing.assert_close(found, geo.extract_point(x) @ m.T + t, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("geo", GEOMETRIES, ids=label)
@given(seed=seeds)
@few
def test_vectors_are_read_translation_invariantly_from_any_multivector(geo, seed):
    normal = random(seed)
    x, m = normal(7, geo.algebra.dim), orthogonal(geo, normal, -1)
    moved = geo.symmetry.act(geo.transform(m, normal(len(geo.axes))), x)
    torch.testing.assert_close(geo.extract_vector(moved), geo.extract_vector(x) @ m.T, rtol=1e-8, atol=1e-8)


def test_reading_e_i_in_the_conformal_geometry_is_not_translation_invariant():
    geo, normal = geometry("C"), random(1)
    x = normal(7, geo.algebra.dim)
    moved = geo.symmetry.act(geo.transform(torch.eye(3), normal(3)), x)
    naive = [x[..., geo.algebra.slices[1]][..., :3], moved[..., geo.algebra.slices[1]][..., :3]]
    assert (naive[0] - naive[1]).abs().max() > 0.1


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if g.point], ids=label)
def test_points_under_mirrors_at_coordinate_level(geo):
    """A network sees embed(M x): it equals act(M, embed(x)) in E and C. P and iP send -embed, so coordinates may fail."""
    normal = random(3)
    x, m = normal(5, geo.dim), orthogonal(geo, normal, -1)
    gap = geo.embed_point(x @ m.T) - geo.symmetry.act(geo.transform(m), geo.embed_point(x))
    assert (gap.abs().max() < 1e-12) == (geo.point != "meet")


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if g.point], ids=label)
def test_small_weights_are_replaced_when_reading_points(geo):
    x = torch.full((1, geo.dim), 2.0, dtype=torch.float64)
    point = geo.embed_point(x)
    weight = {"relative": 1.0}.get(geo.point or "", 5e-4)
    expected = x * weight / max(weight, 1e-3)
    torch.testing.assert_close(geo.extract_point(weight * point), expected)
    torch.testing.assert_close(geo.extract_point(-weight * point), -expected)
    assert torch.isfinite(geo.extract_point(0 * point)).all()


@pytest.mark.parametrize("kind", ["point", "plane", "line", "sphere", "circle", "pair"])
def test_the_origin_is_subtracted_and_added_in_float64(kind):
    geo, normal = geometry("C"), random(5)
    far = torch.full((3,), 1e7, dtype=torch.float64)
    args = drawn(geo, kind, normal)
    shifted = CASES[kind].moved(geo, torch.eye(3).double(), far, *args)
    mv = embed(geo, kind, *shifted, origin=far)
    torch.testing.assert_close(mv, embed(geo, kind, *args), rtol=1e-6, atol=1e-7)
    found = extract(geo, kind, mv, origin=far)
    for expected, value in CASES[kind].agree(geo, *shifted, *found):
        torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-6)
    single = extract(geo, kind, mv.float(), origin=far)
    assert any(part.dtype == torch.float64 for part in single)


def test_the_pga_point_has_the_signs_of_the_literature():
    geo = geometry("P")
    point = geo.embed_point(torch.tensor([1.0, 2.0, 3.0]))
    assert geo.algebra.format(point) == "-3 e012 + 2 e013 - e023 + e123"
    assert geo.algebra.format(geo.embed_translation(torch.tensor([2.0, 4.0, 6.0]))) == "1 - e01 - 2 e02 - 3 e03"
    quaternion = torch.tensor([0.1, 0.5, 0.7, 0.5]) / torch.tensor([0.1, 0.5, 0.7, 0.5]).norm()
    assert geo.algebra.format(geo.embed_rotation(quaternion), 2) == "0.5 - 0.7 e12 + 0.5 e13 - 0.1 e23"


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if g.dim == 3], ids=label)
def test_a_quaternion_turns_counterclockwise(geo):
    quarter = torch.tensor([0.0, 0.0, 0.5**0.5, 0.5**0.5], dtype=torch.float64)
    x, y = torch.eye(len(geo.axes), dtype=torch.float64)[-3:-1]
    torch.testing.assert_close(geo.rotate(quarter, x), y)
    moved = geo.symmetry.act(geo.embed_rotation(quarter), geo.embed_vector(x))
    torch.testing.assert_close(moved, geo.embed_vector(y))


@pytest.mark.parametrize("geo", [g for g in GEOMETRIES if "motor" in g.kinds], ids=label)
def test_versors_do_what_they_say(geo):
    normal = random(7)
    x, t, n, p = normal(5, geo.dim), normal(5, geo.dim), normal(5, geo.dim), normal(5, geo.dim)
    q = draw_rotation(geo, normal)
    act, point = geo.symmetry.act, geo.embed_point(x)
    torch.testing.assert_close(geo.extract_point(act(geo.embed_translation(t), point)), x + t)
    torch.testing.assert_close(geo.extract_point(act(geo.embed_motor(q, t), point)), geo.rotate(q, x) + t)
    mirrored = x - 2 * ((x - p) * n).sum(-1, keepdim=True) * n / n.square().sum(-1, keepdim=True)
    torch.testing.assert_close(geo.extract_point(act(geo.embed_reflection(n, p), point)), mirrored)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_incidence_and_distance_in_the_conformal_geometry(dim):
    """<P, Q> = -|p - q|^2 / 2, and a point lies on an object when its inner product with it vanishes."""
    geo, normal = geometry("C", dim), random(dim)
    p, q, n = normal(5, dim), normal(5, dim), normal(5, dim)
    inner = geo.algebra.inner(geo.embed_point(p), geo.embed_point(q))
    torch.testing.assert_close(inner, -(p - q).square().sum(-1) / 2)
    radius = (p - q).norm(dim=-1)
    torch.testing.assert_close(
        geo.algebra.inner(geo.embed_point(p), geo.embed_sphere(q, radius)), 0 * radius, atol=1e-12, rtol=0
    )
    torch.testing.assert_close(geo.algebra.inner(geo.embed_point(p), geo.embed_plane(n, p)), 0 * radius, atol=1e-12, rtol=0)
    assert geo.algebra.inner(geo.embed_point(p), geo.embed_sphere(q, radius + 1)).abs().min() > 0.1
    unoriented = geo.algebra.outer(geo.embed_point(p), geo.embed_point(q))
    dual = geo.algebra.geometric(unoriented, geo.algebra.pseudoscalar)
    torch.testing.assert_close(geo.embed_pair(p, q).abs(), dual.abs())


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1.0, 3.1415926535, torch.pi])
@pytest.mark.parametrize("determinant", [1, -1])
def test_reflections_compose_to_the_matrix_near_the_identity_and_far(angle, determinant):
    normal = random(11)
    skew = normal(3, 3)
    skew = (skew - skew.T) / (skew - skew.T).norm() * 2**0.5 * angle
    matrix = determinant * torch.linalg.matrix_exp(skew)
    product = torch.eye(3, dtype=torch.float64)
    for u in reflections(matrix, (1, 1, 1)):
        product = product @ (torch.eye(3, dtype=torch.float64) - 2 * torch.outer(u, u))
    torch.testing.assert_close(product, matrix, rtol=0, atol=1e-14)


def test_bad_input_names_the_argument():
    geo = geometry("C")
    good, scaled = torch.eye(3, dtype=torch.float64), 2 * torch.eye(3)
    for call, message in [
        (lambda: geo.embed_point(torch.zeros(5, 2)), r"x has shape \(5, 2\).*3 components"),
        (lambda: geo.embed_point(torch.zeros(5, 3).long()), "x is torch.int64; pass a floating point"),
        (lambda: geo.embed_point(torch.full((2, 3), torch.nan)), r"x contains NaN.*index \(0, 0\)"),
        (lambda: geo.embed_point(torch.zeros(5, 3), torch.zeros(2)), r"origin has shape \(2,\); give it 3 coordinates"),
        (lambda: geo.extract_point(torch.zeros(5, 16)), "32 blades"),
        (lambda: geo.extract_vector(torch.zeros(5, 16)), "32 blades"),
        (lambda: geo.extract_scalar(torch.zeros(5, 16)), "32 blades"),
        (lambda: geo.transform(scaled, torch.zeros(3)), "matrix is not orthogonal"),
        (lambda: geo.transform(good[:2, :2], torch.zeros(3)), r"matrix has shape \(2, 2\)"),
        (lambda: geo.transform(good, torch.zeros(2)), "translation has shape"),
        (lambda: geo.transform(good * torch.nan, torch.zeros(3)), "not orthogonal"),
        (lambda: geo.embed_rotation(torch.zeros(5, 4)), "zero quaternion"),
        (lambda: geo.embed_rotation(torch.zeros(5, 3)), "4 components"),
        (lambda: geo.embed_reflection(torch.zeros(5, 3)), "zero length"),
        (lambda: geo.origin(torch.zeros(5, 3), torch.zeros(4)), "weights has shape"),
        (lambda: geo.origin(torch.zeros(5, 3), torch.zeros(5)), "add up to zero"),
        (lambda: geo.origin(torch.zeros(5, 3), offsets=torch.tensor([0, 3, 2, 5])), "sample 1 ends before it starts"),
        (lambda: geo.origin(torch.zeros(5, 3), offsets=torch.tensor([0, 3, 3, 5])), "sample 1 is empty"),
        (lambda: geo.origin(torch.zeros(5, 3), offsets=torch.tensor([0, 3, 4])), "end at the number of tokens, 5"),
        (lambda: geo.origin(torch.zeros(5, 3), offsets=torch.tensor([0.0, 5.0])), "integer"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_the_origin_is_the_weighted_mean_of_each_sample():
    geo, normal = geometry("C"), random(13)
    x, w = normal(7, 3), normal(7).exp()
    offsets = torch.tensor([0, 3, 7])
    packed = geo.origin(x, w, offsets)
    for start, stop in ((0, 3), (3, 7)):
        one = geo.origin(x[start:stop], w[start:stop])
        torch.testing.assert_close(one, (w[start:stop] @ x[start:stop] / w[start:stop].sum())[None])
        torch.testing.assert_close(packed[start:stop], one.expand(stop - start, 3))
    assert geo.origin(normal(2, 7, 3)).shape == (2, 1, 3)
    far = normal(1000, 3).float() + 1e6
    assert geo.origin(far).dtype == torch.float32
    torch.testing.assert_close(geo.origin(far), far.double().mean(0, keepdim=True).float(), rtol=1e-7, atol=0)
