"""Arteries as a Dataset of named fields: position, wall plane and distance to the inlet in, wall shear stress out.

Where the flow differs from artery to artery, as in the files that we make, its mean velocity at the inlet is an input too:
the same wall has other stresses in another flow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch

from anygatr.files.reading import UnreadableFileError, reading
from anygatr.lab.data.arteries.corners import corner_sample
from anygatr.lab.data.arteries.dataset import ArteryDataset, splits
from anygatr.lab.data.arteries.names import FULL, INFLOW, INPUTS, TARGETS
from anygatr.lab.data.arteries.preprocess import Sample
from anygatr.lab.data.arteries.store import ArteryFile
from anygatr.lab.data.arteries.surface import read_surface, surface_sample
from anygatr.lab.data.dataset import Dataset, WholeSurface
from anygatr.lab.system.memory import confined

SURFACES = (".vtp", ".stl", ".ply")


def load(path: str | Path, nodes: str) -> Dataset:
    """The arteries of a file, each in its fixed orientation; damaged ones are dropped with a warning that names them.

    nodes="corners" keeps the corner nodes of the flow solver's mesh in train, val and eval, and adds the test arteries with
    all nodes as a split of its own; nodes="all" keeps all of them.
    """
    whole = ArteryDataset(path, rotated=True)
    whole.prepare()
    named = splits(whole.names)
    if not named["val"]:
        raise ValueError(f"data={str(path)!r} has {len(whole)} usable arteries; training needs three or more")
    parts = {name: list(_only(whole, names)) for name, names in zip(("train", "val", "eval"), named.values(), strict=True)}
    if nodes == "corners":
        mesh = _mesh(path)
        if mesh is None:
            raise ValueError(f"nodes='corners': {path} does not say which nodes are corners of elements; use --wall all")
        full = parts["eval"]
        parts = {name: [corner_sample(sample, mesh) for sample in part] for name, part in parts.items()} | {FULL: full}
    data = dataset([sample for part in parts.values() for sample in part], velocities(path))
    ends = np.cumsum([0, *map(len, parts.values())]).tolist()
    data.splits.update({name: torch.arange(ends[i], ends[i + 1]) for i, name in enumerate(parts)})
    return data


def load_inputs(
    path: str | Path,
    inlet: tuple[float, float, float] | None = None,
    scale: float = 1.0,
    inflow: float | None = None,
    extensions: bool = True,
) -> Dataset:
    """Walls to predict on: a surface file (see `surface_sample`), or all arteries of a file as they are stored.

    Without extensions no ends are cut off a surface.
    """
    if Path(path).suffix.lower() in SURFACES:
        mesh = read_surface(path)
        sample = surface_sample(path, inlet, scale=scale, kind="single" if extensions else "bifurcating")
        data = dataset([sample], None if inflow is None else {sample.name: inflow}, has_targets=False)
        found = WholeSurface(*(torch.from_numpy(array) for array in (mesh.pos, mesh.face, sample.vertex)))
        return replace(data, surface=found)
    whole = ArteryDataset(path)
    whole.prepare()
    known = velocities(path) if inflow is None else dict.fromkeys(whole.names, inflow)
    return dataset(list(whole), known, has_targets=False)


def dataset(samples: list[Sample], inflow: Mapping[str, float] | None = None, has_targets: bool = True) -> Dataset:
    """Prepared samples as packed fields; `inflow` is the velocity at the inlet of each, by name."""
    fields = {
        "position": _packed(sample.pos for sample in samples),
        "wall": _packed(np.concatenate([sample.normals, sample.pos], axis=1) for sample in samples),
        "geodesic": _packed(sample.geo for sample in samples),
    }
    if inflow is not None:
        fields[INFLOW] = _packed(np.full(len(sample.pos), inflow[sample.name]) for sample in samples)
    if has_targets:
        fields["wss"] = _packed(sample.wss for sample in samples)
    return Dataset(
        fields=fields,
        kinds=INPUTS | ({} if inflow is None else {INFLOW: "scalar"}) | (TARGETS if has_targets else {}),
        targets=tuple(TARGETS) if has_targets else (),
        dim=3,
        offsets=torch.from_numpy(np.cumsum([0, *(len(sample.pos) for sample in samples)])),
        scored=torch.from_numpy(np.concatenate([sample.mask for sample in samples])),
        faces=tuple(torch.from_numpy(sample.face) for sample in samples),
        reinsert=("position",),
    )


def velocities(path: str | Path) -> dict[str, float] | None:
    """The mean velocity at the inlet of every artery of a file that we made, cm/s; None for other files."""
    with reading(path, "an artery file"), confined(), h5py.File(path, "r") as file:
        if not {"viscosity", "density"} <= set(file.attrs):
            return None
        kinematic = float(file.attrs["viscosity"] / file.attrs["density"])
        made = {name: json.loads(group.attrs["parameters"]) for name, group in file.items()}
        return {name: float(vessel["reynolds"] * kinematic / (2 * vessel["radius"])) for name, vessel in made.items()}


def is_artery_file(path: str | Path) -> bool:
    """Whether a file has the layout of the published arteries: a group per artery with its surface and its stress."""
    if not Path(path).is_file():
        return False
    try:
        with reading(path, "an HDF5 file"), confined(), h5py.File(path, "r") as file:
            first = next(iter(file.values()), None)
            return isinstance(first, h5py.Group) and {"pos", "face", "wss"} <= set(first)
    except (OSError, UnreadableFileError):
        return False


def default_nodes(path: str | Path) -> str:
    """The corners where the file knows them, else all nodes."""
    return "all" if _mesh(path) is None else "corners"


def describe(path: str | Path) -> str:
    """One line for the report."""
    file = ArteryFile(path)
    made = "made by anygatr" if "settings" in file.attributes else "not made by anygatr"
    return f"{len(file)} artery walls, {made}; predict the wall shear stress vector; each wall in its own orientation"


def _mesh(path: str | Path) -> tuple[int, int, int] | None:
    """The mesh of the flow solver, in files that we made."""
    text = ArteryFile(path).attributes.get("mesh")
    if text is None:
        return None
    with reading(path, "an artery file of ours"):
        core, rings, layers = (int(n) for n in json.loads(text))
    return core, rings, layers


def _only(whole: ArteryDataset, names: Iterable[str]) -> Iterable[Sample]:
    number = {name: i for i, name in enumerate(whole.names)}
    return (whole[number[name]] for name in names)


def _packed(arrays: Iterable[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(list(arrays)).astype(np.float64))
