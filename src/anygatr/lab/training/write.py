"""Predicted fields as files, each of which appears when it is complete: arrays, tables, surfaces."""

import csv
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anygatr.files.whole import replacing
from anygatr.lab.data.dataset import Dataset


def write_arrays(path: Path, fields: dict[str, Tensor], data: Dataset | None = None) -> None:
    """Fields as .npz, .h5 or .csv; of packed samples with their `offsets`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = data is not None and data.offsets is not None and data.surface is None
    layout = {"offsets": data.offsets} if data is not None and packed else {}
    arrays = {name: x.numpy() for name, x in (fields | layout).items() if x is not None}
    with replacing(path) as temporary:
        if path.suffix == ".csv":
            _write_csv(temporary, {name: x.numpy() for name, x in fields.items()}, data)
        elif path.suffix == ".npz":
            with temporary.open("wb") as stream:
                np.savez(stream, **arrays)  # type: ignore[arg-type]
        else:
            import h5py

            with h5py.File(temporary, "w") as file:
                for name, array in arrays.items():
                    file[name] = array


def _write_csv(path: Path, arrays: dict[str, np.ndarray], data: Dataset | None) -> None:
    """A row per token, or per sample where predictions are theirs: the number of the sample, of the token, and columns."""
    if len({len(array) if data is None or data.offsets is not None else array.ndim for array in arrays.values()}) > 1:
        raise ValueError("predictions of tokens and of samples do not fit into one table; write them as .npz or .h5")
    index, rows = _index(arrays, data)
    table: dict[str, np.ndarray] = index
    for name, array in arrays.items():
        flat = array.reshape(rows, -1)
        names = [name] if flat.shape[1] == 1 else [f"{name}_{axis}" for axis in _axes(flat.shape[1])]
        table |= dict(zip(names, flat.T, strict=True))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))


def _index(arrays: dict[str, np.ndarray], data: Dataset | None) -> tuple[dict[str, np.ndarray], int]:
    if data is None or data.per == "sample" or data.surface is not None:
        rows = len(next(iter(arrays.values())))
        return {"vertex" if data is not None and data.surface is not None else "sample": np.arange(rows)}, rows
    counts = data.counts.numpy()
    sample = np.repeat(np.arange(len(counts)), counts)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return {"sample": sample, "token": np.arange(len(sample)) - first[sample]}, len(sample)


def _axes(width: int) -> list[str]:
    return list("xyz"[:width]) if width <= 3 else [str(i) for i in range(width)]


def on_whole_surface(data: Dataset, fields: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fields of a sample from a surface file at all vertices of that file, nan where nothing was predicted."""
    if data.surface is None:
        return fields
    whole = {}
    for name, x in fields.items():
        rows = x.reshape(len(data.surface.kept), *x.shape[2 if data.offsets is None else 1 :]).double()
        every = rows.new_full((len(data.surface.points), *rows.shape[1:]), torch.nan)
        whole[name] = every.index_copy(0, data.surface.kept, rows)
    return whole


def surface_paths(path: Path, count: int) -> list[Path]:
    """The files of `count` surfaces: the path itself, or numbered ones beside it."""
    digits = len(str(count - 1))
    return [path] if count == 1 else [path.with_stem(f"{path.stem}-{i:0{digits}d}") for i in range(count)]


def write_surfaces(paths: list[Path], data: Dataset, predicted: dict[str, Tensor]) -> None:
    """A .vtp file per sample for ParaView: its nodes, triangles, inputs and predictions; `scored` marks trusted nodes.

    Nodes that are not scored lie near the cut ends, where a network is not trained. A surface from a file keeps all its
    vertices, in the file's order and unit.
    """
    from anygatr.lab.data.vtp import write_vtp

    packed = data.packed()
    assert packed.faces is not None
    assert packed.offsets is not None
    place = next(name for name, kind in data.input_kinds.items() if kind == "point")
    shown = {name: packed.fields[name] for name, kind in data.input_kinds.items() if kind == "scalar"}
    shown |= {name: x if data.offsets is not None else x.flatten(0, 1) for name, x in predicted.items()}
    if data.surface is not None:
        whole = on_whole_surface(packed, shown)
        scored = torch.zeros(len(data.surface.points), dtype=torch.bool)
        scored[data.surface.kept] = True if packed.scored is None else packed.scored
        arrays = {name: x.numpy() for name, x in (whole | {"scored": scored}).items()}
        write_vtp(paths[0], data.surface.points.numpy(), data.surface.faces.numpy(), arrays)
        return
    if packed.scored is not None:
        shown["scored"] = packed.scored
    for i, (start, end) in enumerate(zip(packed.offsets[:-1].tolist(), packed.offsets[1:].tolist(), strict=True)):
        arrays = {name: x[start:end].numpy() for name, x in shown.items()}
        write_vtp(paths[i], packed.fields[place][start:end].numpy(), packed.faces[i].numpy(), arrays)
