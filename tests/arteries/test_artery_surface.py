"""Geodesics, normals, surface checks and surface files."""

import base64
import struct
import time
import zlib

import numpy as np
import pytest
from artery_shapes import sphere, tube

from anygatr.lab.data.arteries.flow.grid import Resolution
from anygatr.lab.data.arteries.geodesic import geodesic_distance
from anygatr.lab.data.arteries.mesh import face_areas, surface_problems, vertex_normals
from anygatr.lab.data.arteries.preprocess import preprocess
from anygatr.lab.data.arteries.store import BadArteryError
from anygatr.lab.data.arteries.surface import find_cap, read_surface, surface_sample
from anygatr.lab.data.vtp import write_vtp


def test_geodesic_on_a_sphere_is_the_angle():
    errors = []
    for subdivisions in (3, 4, 5):
        pos, face = sphere(subdivisions)
        exact = np.arccos(np.clip(pos @ pos[4], -1, 1))
        errors.append(np.abs(geodesic_distance(pos, face, np.array([4])) - exact).mean())
    assert errors[2] < 0.02
    assert errors[2] < 0.7 * errors[1] < 0.7**2 * errors[0]


def test_geodesic_on_a_tube_is_the_height():
    artery = tube()
    wall = np.hypot(artery.pos[:, 0], artery.pos[:, 1]) > 0.199
    height = artery.pos[:, 2]
    distance = geodesic_distance(artery.pos, artery.face, artery.inlet)
    assert np.abs(distance - height)[wall].max() < 0.01
    one = geodesic_distance(artery.pos, artery.face, artery.inlet[:1])
    around = np.argmin(np.linalg.norm(artery.pos[artery.inlet] + artery.pos[artery.inlet[0]] * [1, 1, 0], axis=1))
    assert one[artery.inlet[around]] == pytest.approx(0.4, rel=0.1)  # across the cap, not around the rim


def test_geodesic_is_invariant_and_refuses_unreachable_parts():
    pos, face = sphere(2)
    turned = pos @ np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0] + 5.0
    np.testing.assert_allclose(
        geodesic_distance(turned, face, np.array([0])), geodesic_distance(pos, face, np.array([0])), atol=1e-9
    )
    two = np.concatenate([pos, pos + 3]), np.concatenate([face, face + len(pos)])
    with pytest.raises(ValueError, match="1 of 2 separate parts"):
        geodesic_distance(*two, np.array([0]))
    with pytest.raises(ValueError, match="sources is empty"):
        geodesic_distance(pos, face, np.array([], dtype=int))


def test_sphere_normals_and_area():
    pos, face = sphere(4)
    assert np.abs(vertex_normals(pos, face) - pos).max() < 0.02
    assert face_areas(pos, face).sum() == pytest.approx(4 * np.pi, rel=0.01)
    assert surface_problems(pos, face) == []


def broken(what):
    pos, face = sphere(1)
    if what == "open":
        return pos, face[1:]
    if what == "out of range":
        return pos, np.where(face == 3, 99, face)
    if what == "no area":
        return np.where((np.arange(len(pos)) == face[0, 0])[:, None], pos[face[0, 1]], pos), face
    if what == "manifold":
        return np.concatenate([pos, [[9.0, 0, 0]]]), np.concatenate([face, [[face[0, 0], face[0, 1], len(pos)]]])
    if what == "oriented":
        return pos, np.concatenate([face[:1, ::-1], face[1:]])
    if what == "no face":
        return np.concatenate([pos, [[9.0, 0, 0]]]), face
    if what == "not finite":
        return np.where(np.arange(len(pos))[:, None] == 2, np.nan, pos), face
    raise AssertionError(what)


WORDS = {
    "open": "open surface: 3 edges",
    "out of range": "99",
    "no area": "no area",
    "manifold": "not a manifold: 1 edge",
    "oriented": "oriented",
    "no face": "1 vertices belong to no face",
    "not finite": "1 vertices are not finite",
}


@pytest.mark.parametrize("what", WORDS)
def test_surface_problems_are_named(what):
    assert WORDS[what] in " ".join(surface_problems(*broken(what)))


@pytest.mark.slow  # a busy machine takes longer
def test_seven_thousand_nodes_are_prepared_in_two_seconds():
    artery = tube(resolution=Resolution(5, 1, 86))
    assert len(artery.pos) > 7000
    started = time.process_time()
    preprocess(artery)
    assert time.process_time() - started < 2.0


def write_stl(path, pos, face, text):
    if text:
        lines = ["solid wall"]
        for corners in pos[face]:
            lines += ["facet normal 0 0 0", "outer loop"]
            lines += [f"vertex {x:.9g} {y:.9g} {z:.9g}" for x, y, z in corners] + ["endloop", "endfacet"]
        path.write_text("\n".join([*lines, "endsolid"]))
        return
    records = [struct.pack("<12fH", 0, 0, 0, *corners.ravel(), 0) for corners in pos[face]]
    path.write_bytes(b"solid, yet binary".ljust(80) + struct.pack("<I", len(face)) + b"".join(records))


def write_ply(path, pos, face, form):
    head = f"ply\nformat {form} 1.0\ncomment test\nelement vertex {len(pos)}\nproperty float x\nproperty float y\n"
    head += "property float z\nproperty uchar quality\n"
    head += f"element face {len(face)}\nproperty list uchar int vertex_indices\nend_header\n"
    if form == "ascii":
        body = "".join(f"{x:.9g} {y:.9g} {z:.9g} 7\n" for x, y, z in pos) + "".join(f"3 {a} {b} {c}\n" for a, b, c in face)
        path.write_bytes((head + body).encode())
        return
    o = "<" if "little" in form else ">"
    body = b"".join(struct.pack(o + "3fB", *p, 7) for p in pos) + b"".join(struct.pack(o + "B3i", 3, *f) for f in face)
    path.write_bytes(head.encode() + body)


def write_foreign_vtp(path, pos, face, form):
    """The encodings that other programs choose, written independently of the package."""
    arrays = [
        ("Points", pos.astype("<f4")),
        ("connectivity", face.astype("<i4")),
        ("offsets", 3 * np.arange(1, len(face) + 1, dtype="<i4")),
    ]
    compressed = "zlib" in form
    texts, tail = [], b""
    for _, array in arrays:
        raw = array.tobytes()
        if compressed:
            blocks = [raw[i : i + 1000] for i in range(0, len(raw), 1000)]
            packed = [zlib.compress(b) for b in blocks]
            head = struct.pack(f"<{3 + len(blocks)}I", len(blocks), 1000, len(blocks[-1]), *map(len, packed))
            parts = [head, b"".join(packed)]
        else:
            parts = [struct.pack("<I", len(raw)) + raw]
        data = b"".join(parts) if "raw" in form else b"".join(base64.b64encode(p) for p in parts)
        if form == "ascii":
            texts.append(('format="ascii"', " ".join(map(str, array.ravel().tolist()))))
        elif "appended" in form:
            texts.append((f'format="appended" offset="{len(tail)}"', ""))
            tail += data
        else:
            texts.append(('format="binary"', data.decode()))
    compressor = ' compressor="vtkZLibDataCompressor"' if compressed else ""
    elements = [
        f'<DataArray type="{"Float32" if name == "Points" else "Int32"}" Name="{name}" '
        f'NumberOfComponents="{3 if name == "Points" else 1}" {options}>{text}</DataArray>'
        for (name, _), (options, text) in zip(arrays, texts, strict=True)
    ]
    xml = f'<VTKFile type="PolyData" byte_order="LittleEndian" header_type="UInt32"{compressor}><PolyData><Piece>'
    xml += f"<Points>{elements[0]}</Points><Polys>{elements[1]}{elements[2]}</Polys></Piece></PolyData>"
    encoding = "raw" if "raw" in form else "base64"
    appended = f'<AppendedData encoding="{encoding}">_'.encode() + tail + b"</AppendedData>" if tail else b""
    path.write_bytes(xml.encode() + appended + b"</VTKFile>")


WRITERS = {
    "binary.stl": lambda *a: write_stl(*a, text=False),
    "text.stl": lambda *a: write_stl(*a, text=True),
    "ascii.ply": lambda *a: write_ply(*a, "ascii"),
    "little.ply": lambda *a: write_ply(*a, "binary_little_endian"),
    "big.ply": lambda *a: write_ply(*a, "binary_big_endian"),
    "ours.vtp": lambda p, pos, face: write_vtp(p, pos, face, {}),
}
for form in ("ascii", "binary", "binary_zlib", "raw_appended", "base64_appended", "raw_zlib_appended", "zlib_appended"):
    WRITERS[f"{form}.vtp"] = lambda *a, form=form: write_foreign_vtp(*a, form)


@pytest.mark.parametrize("name", WRITERS)
def test_surface_formats(name, tmp_path):
    artery = tube(resolution=Resolution(1, 1, 6))
    WRITERS[name](tmp_path / name, artery.pos, artery.face)
    surface = read_surface(tmp_path / name)
    assert surface_problems(surface.pos, surface.face) == []
    corners = np.sort(surface.pos[surface.face].reshape(-1, 9).round(5), axis=0)
    np.testing.assert_allclose(corners, np.sort(artery.pos[artery.face].reshape(-1, 9).round(5), axis=0), atol=2e-5)


def test_vtp_keeps_point_data(tmp_path):
    artery = tube(resolution=Resolution(1, 1, 6))
    path = tmp_path / "wall.vtp"
    marked = np.isin(np.arange(len(artery.pos)), artery.inlet)
    write_vtp(path, artery.pos, artery.face, {"wss": artery.wss, "inlet_idcs": marked})
    np.testing.assert_array_equal(read_surface(path).arrays["wss"], artery.wss)
    sample = surface_sample(path)
    by_point = surface_sample(path, inlet=(0.0, 0.0, 0.0))
    np.testing.assert_array_equal(sample.geo, by_point.geo)
    with pytest.raises(ValueError, match="3 rows for"):
        write_vtp(path, artery.pos, artery.face, {"short": np.zeros(3)})


def test_inlet_cap_of_a_surface(tmp_path):
    artery = tube()
    path = tmp_path / "wall.stl"
    write_stl(path, 10 * artery.pos, artery.face, text=False)  # millimetres
    surface = read_surface(path)
    cap = find_cap(surface, (0.0, 0.0, 0.5))
    assert len(cap) == len(artery.inlet)
    assert np.abs(surface.pos[cap, 2]).max() < 1e-6
    with pytest.raises(BadArteryError, match="curved wall"):
        find_cap(surface, (2.0, 0.0, 30.0))
    expected = preprocess(artery)
    sample = surface_sample(path, inlet=(0.0, 0.0, 0.0), scale=0.1)
    assert len(sample.pos) == len(expected.pos)
    np.testing.assert_allclose(np.sort(sample.geo), np.sort(expected.geo), atol=1e-4)
    with pytest.raises(ValueError, match="does not mark its inlet"):
        surface_sample(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("wall.obj", b"", "must end in one of .vtp, .stl, .ply"),
        ("wall.stl", b"nonsense" * 30, "not a .stl file"),
        ("wall.ply", b"ply\nformat ascii 1.0\n", "not a .ply file"),
        ("wall.vtp", b"<VTKFile", "not a VTK XML file"),
        ("wall.vtp", b'<VTKFile type="ImageData"/>', "no PolyData piece"),
    ],
)
def test_bad_surface_files_are_refused(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_surface(tmp_path / name)
