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

from anygatr.files.reading import reading
from anygatr.files.whole import write_text
from anygatr.lab.system.memory import Budget

DTYPES = {
    "Float32": "f4", "Float64": "f8", "Int8": "i1", "UInt8": "u1", "Int16": "i2", "UInt16": "u2",
    "Int32": "i4", "UInt32": "u4", "Int64": "i8", "UInt64": "u8",
}  # fmt: skip
WORDS, POLYGON = 32, 200  # bytes that Python takes for a byte of text that it splits, and for a polygon
Surface = tuple[NDArray[Any], list[NDArray[np.int64]], dict[str, NDArray[Any]]]
VTK_NAMES = {"f4": "Float32", "f8": "Float64", "i4": "Int32", "i8": "Int64", "u1": "UInt8"}


def read_vtp(path: Path) -> Surface:
    """Points (N, 3), the polygons' vertex lists, and the point data by name."""
    budget = Budget()
    with reading(path, "a VTK XML file"):
        return _surface(*_parse(Path(path), budget), budget)


def _surface(root: ElementTree.Element, decode: _Decoder, budget: Budget) -> Surface:
    piece = root.find("PolyData/Piece")
    if piece is None:
        raise ValueError("no PolyData piece; only surfaces (.vtp) can be read")
    points = piece.find("Points/DataArray")
    if points is None:
        raise ValueError("no points")
    polys = {array.get("Name"): decode(array) for array in piece.findall("Polys/DataArray")}
    if not {"connectivity", "offsets"} <= polys.keys():
        raise ValueError("no polygons; triangle strips are not read, triangulate the surface first")
    offsets, corners = (polys[name].astype(np.int64).ravel() for name in ("offsets", "connectivity"))
    if len(offsets) and (offsets[0] < 0 or (np.diff(offsets) < 0).any() or offsets[-1] != len(corners)):
        raise ValueError(f"the offsets of its polygons do not grow from 0 to the {len(corners)} corners")
    budget.take("its polygons", (len(offsets),), POLYGON)
    polygons = np.split(corners, offsets[:-1]) if len(offsets) else []
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


def _parse(path: Path, budget: Budget) -> tuple[ElementTree.Element, _Decoder]:
    budget.take(str(path), (path.stat().st_size,))
    raw = path.read_bytes()
    begin, end = raw.find(b"<AppendedData"), -1
    if begin >= 0:
        end = raw.find(b"_", raw.find(b">", begin))
    xml = raw if begin < 0 else raw[:begin] + b"</VTKFile>"  # raw bytes are not XML
    if b"<!" in xml.replace(b"<!--", b""):
        raise ValueError("it declares entities or a document type, which VTK does not write")
    root = ElementTree.fromstring(xml)
    tail = b"" if end < 0 else raw[end + 1 :]
    encoding = re.search(rb'encoding="(\w{1,20})"', raw[begin:end]) if end >= 0 else None
    return root, _Decoder(root, tail, encoding.group(1).decode() if encoding else "", budget)


class _Decoder:
    """Turns a DataArray element into a numpy array."""

    def __init__(self, root: ElementTree.Element, tail: bytes, encoding: str, budget: Budget) -> None:
        self.order = "<" if root.get("byte_order", "LittleEndian") == "LittleEndian" else ">"
        self.header = np.dtype(self.order + DTYPES[root.get("header_type", "UInt32")])
        if self.header.kind != "u":
            raise ValueError(f"header_type={root.get('header_type')!r} must be UInt32 or UInt64")
        compressor = root.get("compressor")
        if compressor not in {None, "vtkZLibDataCompressor"}:
            raise ValueError(f"compressor {compressor} is not supported; save with zlib or without compression")
        self.compressed = compressor is not None
        self.tail, self.encoding, self.budget = tail, encoding, budget

    def __call__(self, element: ElementTree.Element) -> NDArray[Any]:
        name, kind = element.get("type", ""), element.get("format", "ascii")
        place = f"the array {element.get('Name')!r}"
        if name not in DTYPES:
            raise ValueError(f"{place} has type {name!r}, which is not supported")
        dtype = np.dtype(self.order + DTYPES[name])
        if kind == "ascii":
            self.budget.take(place, (len(element.text or ""),), WORDS)
            values = np.array((element.text or "").split(), dtype=dtype)
        else:
            values = np.frombuffer(self._payload(*self._source(element, kind), place), dtype=dtype)
        components = int(element.get("NumberOfComponents", "1"))
        if components < 1:
            raise ValueError(f"{place} has {components} components")
        return values.reshape(-1, components) if components > 1 else values

    def _source(self, element: ElementTree.Element, kind: str) -> tuple[bytes, bool]:
        """Where an array's bytes begin, and whether they are base64."""
        if kind != "appended":
            return (element.text or "").strip().encode(), True
        offset = int(element.get("offset", "0"))
        if not 0 <= offset <= len(self.tail):
            raise ValueError(f"offset={offset} lies outside the {len(self.tail):,} bytes of appended data")
        return self.tail[offset:], self.encoding == "base64"

    def _payload(self, source: bytes, is_text: bool, place: str) -> bytes:
        take = _take_text if is_text else _take_raw
        width = self.header.itemsize
        first = int(np.frombuffer(take(source, 0, width)[0], self.header)[0])  # the bytes, or the number of blocks
        if not self.compressed:
            return take(source, 0, width + first)[0][width:]
        head, start = take(source, 0, (3 + first) * width)
        size, last, *sizes = (int(n) for n in np.frombuffer(head, self.header)[1:])
        self.budget.take(place, (first, size))
        body, _ = take(source, start, sum(sizes))
        ends = np.cumsum(sizes, dtype=object).tolist()
        blocks = [_inflated(body[end - n : end], size) for end, n in zip(ends, sizes, strict=True)]
        if blocks and len(blocks[-1]) != (last or size):
            raise ValueError(f"{place}: its last block has {len(blocks[-1])} bytes, {last or size} were declared")
        return b"".join(blocks)


def _inflated(block: bytes, size: int) -> bytes:
    """A block, of which no more is unpacked than was declared."""
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(block, size) if size else b""
    if unpacker.unconsumed_tail or (size and not unpacker.eof and len(unpacked) < size):
        raise ValueError(f"a block does not unpack to the {size} bytes that were declared")
    return unpacked


def _take_raw(source: bytes, start: int, count: int) -> tuple[bytes, int]:
    if start + count > len(source):
        raise ValueError(f"{count:,} bytes are declared, {max(len(source) - start, 0):,} are there")
    return source[start : start + count], start + count


def _take_text(source: bytes, start: int, count: int) -> tuple[bytes, int]:
    """The first `count` bytes of a base64 stream, and where the stream of that length ends."""
    end = start + 4 * -(-count // 3)
    if end > len(source) + 4:
        raise ValueError(f"{count:,} bytes are declared, fewer are there")
    found = base64.b64decode(source[start:end])[:count]
    if len(found) < count:
        raise ValueError(f"{count:,} bytes are declared, {len(found):,} are there")
    return found, end
