"""VTK PolyData files (.vtp): read every encoding that VTK writes, write the plain one.

Arrays are ASCII, inline base64 or appended (raw or base64), optionally in zlib blocks; headers are 32 or 64 bit.
"""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from anygatr.files.whole import write_text

DTYPES = {
    "Float32": "f4", "Float64": "f8", "Int8": "i1", "UInt8": "u1", "Int16": "i2", "UInt16": "u2",
    "Int32": "i4", "UInt32": "u4", "Int64": "i8", "UInt64": "u8",
}  # fmt: skip
VTK_NAMES = {"f4": "Float32", "f8": "Float64", "i4": "Int32", "i8": "Int64", "u1": "UInt8"}


def read_vtp(path: Path) -> tuple[NDArray[Any], list[NDArray[np.int64]], dict[str, NDArray[Any]]]:
    """Points (N, 3), the polygons' vertex lists, and the point data by name."""
    root, decode = _parse(path)
    piece = root.find("PolyData/Piece")
    if piece is None:
        raise ValueError(f"{path}: no PolyData piece; only surfaces (.vtp) can be read")
    points = piece.find("Points/DataArray")
    if points is None:
        raise ValueError(f"{path}: no points")
    polys = {array.get("Name"): decode(array) for array in piece.findall("Polys/DataArray")}
    if not {"connectivity", "offsets"} <= polys.keys():
        raise ValueError(f"{path}: no polygons; triangle strips are not read, triangulate the surface first")
    offsets = polys["offsets"].astype(np.int64).ravel()
    polygons = np.split(polys["connectivity"].astype(np.int64).ravel(), offsets[:-1]) if len(offsets) else []
    data = {str(array.get("Name")): decode(array) for array in piece.findall("PointData/DataArray")}
    return decode(points).reshape(-1, 3), polygons, data


def write_vtp(path: Path, pos: NDArray[Any], face: NDArray[np.int64], data: dict[str, NDArray[Any]]) -> None:
    """Write a triangulated surface with point data (N,) or (N, c), for ParaView; atomically."""
    for name, array in data.items():
        if len(array) != len(pos):
            raise ValueError(f"data[{name!r}] has {len(array)} rows for {len(pos)} vertices")
    offsets = 3 * np.arange(1, len(face) + 1)
    lines = [
        '<?xml version="1.0"?>',
        '<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian" header_type="UInt64">',
        f'<PolyData><Piece NumberOfPoints="{len(pos)}" NumberOfPolys="{len(face)}">',
        "<PointData>",
        *[_element(name, array) for name, array in data.items()],
        "</PointData><Points>",
        _element("Points", pos),
        "</Points><Polys>",
        _element("connectivity", face.ravel()),
        _element("offsets", offsets),
        "</Polys></Piece></PolyData></VTKFile>",
    ]
    write_text(path, "\n".join(lines) + "\n")


def _element(name: str, array: NDArray[Any]) -> str:
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    code = array.dtype.str[1:]
    if code not in VTK_NAMES:
        raise ValueError(f"array {name!r} has type {array.dtype}, which is not written; use float32 or float64")
    raw = np.ascontiguousarray(array, dtype="<" + code).tobytes()
    text = base64.b64encode(np.uint64(len(raw)).tobytes() + raw).decode()
    components = f' NumberOfComponents="{array.shape[1]}"' if array.ndim == 2 else ""
    return f'<DataArray type="{VTK_NAMES[code]}" Name="{name}"{components} format="binary">{text}</DataArray>'


def _parse(path: Path) -> tuple[ElementTree.Element, _Decoder]:
    raw = Path(path).read_bytes()
    appended = re.search(rb'<AppendedData[^>]*encoding="(\w+)"[^>]*>\s*_', raw)
    xml = raw if appended is None else raw[: appended.start()] + b"</VTKFile>"  # raw bytes are not XML
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not a VTK XML file: {error}") from error
    tail = b"" if appended is None else raw[appended.end() :]
    encoding = "" if appended is None else appended.group(1).decode()
    return root, _Decoder(root, tail, encoding)


class _Decoder:
    """Turns a DataArray element into a numpy array."""

    def __init__(self, root: ElementTree.Element, tail: bytes, encoding: str) -> None:
        self.order = "<" if root.get("byte_order", "LittleEndian") == "LittleEndian" else ">"
        self.header = np.dtype(self.order + DTYPES[root.get("header_type", "UInt32")])
        compressor = root.get("compressor")
        if compressor not in {None, "vtkZLibDataCompressor"}:
            raise ValueError(f"compressor {compressor} is not supported; save with zlib or without compression")
        self.compressed = compressor is not None
        self.tail, self.encoding = tail, encoding

    def __call__(self, element: ElementTree.Element) -> NDArray[Any]:
        name, kind = element.get("type", ""), element.get("format", "ascii")
        if name not in DTYPES:
            raise ValueError(f"array {element.get('Name')!r} has type {name!r}, which is not supported")
        dtype = np.dtype(self.order + DTYPES[name])
        if kind == "ascii":
            values = np.array((element.text or "").split(), dtype=dtype)
        else:
            if kind == "appended":
                source, is_text = self.tail[int(element.get("offset", "0")) :], self.encoding == "base64"
            else:
                source, is_text = (element.text or "").strip().encode(), True
            values = np.frombuffer(self._payload(source, is_text), dtype=dtype)
        components = int(element.get("NumberOfComponents", "1"))
        return values.reshape(-1, components) if components > 1 else values

    def _payload(self, source: bytes, is_text: bool) -> bytes:
        take = _take_text if is_text else _take_raw
        width = self.header.itemsize
        if not self.compressed:
            size = int(np.frombuffer(take(source, 0, width)[0], self.header)[0])
            return take(source, 0, width + size)[0][width:]
        blocks = int(np.frombuffer(take(source, 0, width)[0], self.header)[0])
        head, start = take(source, 0, (3 + blocks) * width)
        sizes = np.frombuffer(head, self.header)[3:].astype(int)
        body, _ = take(source, start, int(sizes.sum()))
        ends = np.cumsum(sizes)
        return b"".join(zlib.decompress(body[end - size : end]) for end, size in zip(ends, sizes, strict=True))


def _take_raw(source: bytes, start: int, count: int) -> tuple[bytes, int]:
    return source[start : start + count], start + count


def _take_text(source: bytes, start: int, count: int) -> tuple[bytes, int]:
    """The first `count` bytes of a base64 stream, and where the stream of that length ends."""
    end = start + 4 * -(-count // 3)
    return base64.b64decode(source[start:end])[:count], end
