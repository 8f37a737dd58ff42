"""Files made to do harm: they are refused by one line that names them, before memory is taken on their word."""

import base64
import io
import resource
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from anygatr.files.reading import UnreadableFileError
from anygatr.lab.cli import main
from anygatr.lab.data.arteries.store import ArteryFile, BadArteryError
from anygatr.lab.data.arteries.surface import read_surface
from anygatr.lab.data.files.arrays import checked_offsets, read_arrays
from anygatr.lab.data.files.inspect import inspect
from anygatr.lab.system import memory
from anygatr.lab.system.memory import Budget, limited

LIMIT = 0.05  # GB
GROWTH = 64 * 1024  # KiB that the process may grow while it refuses


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def compressed_zeros(path: Path) -> None:
    """300 MB of zeros in 0.3 MB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(header((300_000_000,), "|i1"))
        for _ in range(300):
            member.write(bytes(1_000_000))


def tebibytes(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header((2**40,)) + bytes(100))


def negative(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header((-3,)) + bytes(100))


def forged_size(path: Path) -> None:
    """The table of contents says less than the member unpacks to."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header((10,)) + bytes(1_000_000))


def fill_value(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape=(10**11, 3), dtype="f8", fillvalue=1.0, chunks=(1000, 3))


def chunk(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape=(10,), maxshape=(None,), dtype="f8", chunks=(10**8,))


def soft_link(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = h5py.SoftLink("/nowhere")


def external_link(path: Path) -> None:
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["secret"] = np.ones(3)
    with h5py.File(path, "w") as file:
        file["x"] = h5py.ExternalLink("other.h5", "/secret")


def external_storage(path: Path) -> None:
    path.with_name("raw").write_bytes(bytes(800))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape=(100,), dtype="f8", external=[(str(path.with_name("raw")), 0, 800)])


def virtual(path: Path) -> None:
    layout = h5py.VirtualLayout(shape=(3,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "secret", shape=(3,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def empty(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = h5py.Empty("f8")


def two_dimensional_split(path: Path) -> None:
    np.savez(path, x=np.ones((4, 2, 3)), y=np.ones((4, 2, 3)), split=np.array([["train", "val"], ["train", "val"]]))


ARRAYS = {
    "compressed zeros.npz": (compressed_zeros, "asks for 0.3 GB.*--memory"),
    "tebibytes.npz": (tebibytes, "--memory"),
    "negative.npz": (negative, "negative length"),
    "forged size.npz": (forged_size, "bytes for the shape"),
    "fill value.h5": (fill_value, "--memory"),
    "chunk.h5": (chunk, "a chunk of /x asks for"),
    "soft link.h5": (soft_link, "is a link"),
    "external link.h5": (external_link, "is a link"),
    "external storage.h5": (external_storage, "in other files"),
    "virtual.h5": (virtual, "in other files"),
    "empty.h5": (empty, "is empty"),
}


def refused(call, path: Path, words: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with limited(LIMIT), pytest.raises(ValueError, match=words) as error:
        call(path)
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_ask_for_too_much_are_refused(name, tmp_path):
    write, words = ARRAYS[name]
    write(tmp_path / name)
    refused(read_arrays, tmp_path / name, words)


def test_members_that_are_not_asked_for_cost_nothing(tmp_path):
    compressed_zeros(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("y.npy", header((2,)) + bytes(16))
    with limited(LIMIT):
        assert read_arrays(tmp_path / "a.npz", only=("y",))["y"].tolist() == [0.0, 0.0]


def test_several_files_share_one_limit(tmp_path):
    for split in ("train", "val"):
        np.savez(tmp_path / f"{split}.npz", x=np.zeros(4_000_000))
    with limited(LIMIT), pytest.raises(ValueError, match=r"asks for 0.032 GB, in all 0.064 GB"):
        inspect(tmp_path)


def vtp(path: Path, blocks: list[tuple[bytes, int]], size: int, last: int) -> None:
    body = [zlib.compress(raw)[:keep] for raw, keep in blocks]
    head = struct.pack(f"<{3 + len(body)}I", len(body), size, last, *map(len, body))
    text = (base64.b64encode(head) + base64.b64encode(b"".join(body))).decode()
    path.write_text(
        '<VTKFile type="PolyData" byte_order="LittleEndian" header_type="UInt32" compressor="vtkZLibDataCompressor">'
        f'<PolyData><Piece><Points><DataArray type="Float32" NumberOfComponents="3" format="binary">{text}</DataArray>'
        '</Points><Polys><DataArray type="Int32" Name="connectivity" format="ascii"></DataArray>'
        '<DataArray type="Int32" Name="offsets" format="ascii"></DataArray></Polys></Piece></PolyData></VTKFile>'
    )


def ply(path: Path, *lines: str, body: bytes = b"", form: str = "ascii") -> None:
    path.write_bytes("\n".join(["ply", f"format {form} 1.0", *lines, "end_header", ""]).encode() + body)


XYZ = ("property float x", "property float y", "property float z")
FACE = "property list uchar int vertex_indices"
SURFACES = {
    "bomb.vtp": (lambda p: vtp(p, [(bytes(2**28), 10**9)], 2**28, 0), "--memory"),
    "liar.vtp": (lambda p: vtp(p, [(bytes(2**20), 10**9)], 1000, 0), "does not unpack to the 1000 bytes"),
    "short.vtp": (lambda p: vtp(p, [(bytes(1200), 5)], 1200, 0), "unpack|incomplete"),
    "entities.vtp": (lambda p: p.write_text('<!DOCTYPE x [<!ENTITY a "aa">]><VTKFile>&a;</VTKFile>'), "entities"),
    "offset.vtp": (
        lambda p: p.write_text(
            '<VTKFile><PolyData><Piece><Points><DataArray type="Float32" format="appended" offset="-9"/></Points><Polys>'
            '<DataArray type="Int32" Name="connectivity"/><DataArray type="Int32" Name="offsets"/></Polys>'
            '</Piece></PolyData><AppendedData encoding="raw">_aaaa</AppendedData></VTKFile>'
        ),
        "offset=-9 lies outside",
    ),
    "rows.ply": (lambda p: ply(p, "element vertex 1000000000000", *XYZ), "more than the file can hold"),
    "nothing.ply": (lambda p: ply(p, "element vertex 1000000000000"), "more than the file can hold"),
    "digits.ply": (lambda p: ply(p, f"element vertex {'9' * 40}", *XYZ), "declares .* rows"),
    "negative.ply": (lambda p: ply(p, "element vertex -1", *XYZ), "declares '-1' rows"),
    "early.ply": (lambda p: ply(p, "element vertex 1", *XYZ, "element face 1", FACE, body=b"0 0 0 3 0"), "ends too early"),
    "list.ply": (
        lambda p: ply(
            p, "element face 1", FACE.replace("uchar", "int"), body=b"\xff\xff\xff\xff", form="binary_little_endian"
        ),
        "a list declares -1 numbers",
    ),
    "no axis.ply": (lambda p: ply(p, "element vertex 1", *XYZ[:2], body=b"0 0"), "have no z"),
    "property.ply": (lambda p: ply(p, "property float x"), "before any element"),
    "type.ply": (lambda p: ply(p, "element vertex 1", "property quaternion x"), "declares no property"),
    "format.ply": (lambda p: ply(p, form="xml"), "format='xml'"),
    "outside.ply": (
        lambda p: ply(p, "element vertex 1", *XYZ, "element face 1", FACE, body=b"0 0 0 3 0 1 2"),
        "faces refer to vertices 0 to 2 of 1",
    ),
    "count.stl": (
        lambda p: p.write_bytes(bytes(80) + struct.pack("<I", 2**31) + bytes(50)),
        "bytes for 2147483648 triangles",
    ),
}


@pytest.mark.parametrize("name", SURFACES)
def test_surfaces_that_make_no_sense_are_refused(name, tmp_path):
    write, words = SURFACES[name]
    write(tmp_path / name)
    refused(read_surface, tmp_path / name, words)


def test_an_artery_that_asks_for_too_much_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("sample_0001")
        group.create_dataset("pos", shape=(10**10, 3), dtype="f4", chunks=(1000, 3))
        for name in ("face", "wss", "inlet_idcs"):
            group[name] = np.zeros((1, 3))
        other = file.create_group("sample_0002")
        for name in ("face", "wss", "inlet_idcs"):
            other[name] = np.zeros((1, 3))
        other["pos"] = h5py.ExternalLink("b.h5", "/pos")
    found = ArteryFile(tmp_path / "a.h5")
    for name, words in (("sample_0001", "--memory"), ("sample_0002", "is a link")):
        with pytest.raises(BadArteryError, match=words):
            found.read(name)


def test_labels_of_two_dimensions_are_refused(tmp_path):
    two_dimensional_split(tmp_path / "a.npz")
    inspect(tmp_path / "a.npz")
    with pytest.raises(SystemExit, match="split has shape"):
        main(["train", "--data", str(tmp_path / "a.npz"), "--inputs", "x:point", "--target", "y:point"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
def test_offsets_of_any_integers(dtype):
    assert checked_offsets(np.array([0, 3, 100], dtype)).tolist() == [0, 3, 100]
    for wrong in ([0, 100, 3], [1, 2], [0], [0, 0]):
        with pytest.raises(ValueError, match="growing end"):
            checked_offsets(np.array(wrong, dtype))


def test_offsets_are_integers():
    with pytest.raises(ValueError, match="hold float64, not integers"):
        checked_offsets(np.array([0.0, 1.5]))


def test_values_too_large_to_be_squared_are_refused(tmp_path, capsys):
    x = 1e200 * np.random.default_rng(0).normal(size=(20, 4, 3))
    np.savez(tmp_path / "a.npz", x=x, y=x + 1)
    with pytest.raises(SystemExit, match=r"holds values as large as .*e\+200.*change its unit"):
        main(["train", "--data", str(tmp_path / "a.npz"), "--inputs", "x:point", "--target", "y:point"])
    main(["inspect", str(tmp_path / "a.npz")])


def test_the_limit_comes_from_the_machine_or_the_command(tmp_path, monkeypatch, capsys):
    assert 0 < memory.limit() <= memory.free()
    with limited(1.5):
        assert memory.limit() == 1_500_000_000
        with limited(None):
            assert memory.limit() == 1_500_000_000
    monkeypatch.setattr(memory, "free", lambda: 1000)
    assert Budget().size == 500
    np.savez(tmp_path / "a.npz", x=np.zeros((20, 2, 3)))
    with pytest.raises(SystemExit, match="--memory"):
        main(["inspect", str(tmp_path / "a.npz")])
    main(["inspect", str(tmp_path / "a.npz"), "--memory", "0.1"])
    for wrong in ("0", "nan", "-1"):
        with pytest.raises(SystemExit, match="must be a positive number of gigabytes"):
            main(["inspect", str(tmp_path / "a.npz"), "--memory", wrong])


def endless_heap(path: Path) -> None:
    """A group whose list of free space leads back to its own beginning."""
    with h5py.File(path, "w") as file:
        file.create_group("a")["x"] = np.zeros(3)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"HEAP") + 8
    _, free, address = struct.unpack_from("<QQQ", raw, at)
    struct.pack_into("<Q", raw, address + free, free)
    path.write_bytes(raw)


def test_a_list_without_end_in_hdf5_is_bounded(tmp_path):
    endless_heap(tmp_path / "a.h5")
    before, bound = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, resource.getrlimit(resource.RLIMIT_AS)
    with limited(LIMIT), pytest.raises(UnreadableFileError, match=r"a\.h5"):
        inspect(tmp_path / "a.h5")
    with limited(LIMIT), pytest.raises(UnreadableFileError, match=r"a\.h5"):
        ArteryFile(tmp_path / "a.h5")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 * 1024
    assert resource.getrlimit(resource.RLIMIT_AS) == bound


@pytest.mark.parametrize("order", "<>")
def test_text_that_is_no_unicode_is_refused(tmp_path, order):
    words = np.array([0x110000, ord("a")], order + "u4").view(order + "U2")
    np.savez(tmp_path / "a.npz", split=words)
    with pytest.raises(UnreadableFileError, match="'split' holds text that is no Unicode"):
        read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", split=np.array(["train", ""], order + "U5"))
    assert read_arrays(tmp_path / "b.npz")["split"].tolist() == ["train", ""]


def test_memory_of_a_container_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("123456\n")
    monkeypatch.setattr(memory, "CONTROL_GROUPS", (str(tmp_path / "memory.max"),))
    assert memory.free() == 123456
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free() > 123456


def test_errors_of_the_system_are_not_taken_for_damage(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_surface_of_directory(tmp_path)


def read_surface_of_directory(folder: Path) -> None:
    (folder / "a.ply").mkdir()
    try:
        read_surface(folder / "a.ply")
    except UnreadableFileError as error:
        raise AssertionError(str(error)) from error
