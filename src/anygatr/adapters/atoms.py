"""Atoms of ASE as named arrays, recognised by their methods."""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from anygatr.interface.cells import neighbours
from anygatr.lab.data.files.packing import Fields, packed

POSITION, SYMBOL, NUMBER, ENERGY, FORCES = "position", "symbol", "number", "energy", "forces"


def from_ase(atoms: Any, cutoff: float | None = None) -> dict[str, Any]:
    """position, symbol and number of each atom; energy and forces where a calculator has computed them; cell and pbc.

    Of a list of Atoms all are packed, with `offsets`; energies and forces are kept if all have them. Cells, their vectors
    as rows, and `pbc` are there if some atoms are periodic. With a `cutoff` there are `edges` and `pairs`, of which "shift"
    is the difference from a neighbour or its image; without one a warning says that images are not seen.
    """
    if hasattr(atoms, "get_positions"):
        return _fields(atoms) | _cells([atoms], cutoff, single=True)
    if not isinstance(atoms, Iterable):
        raise ValueError(f"atoms is a {type(atoms).__name__}; pass ASE Atoms or a list of them")
    frames = list(atoms)
    return packed([_fields(one) for one in frames], POSITION) | _cells(frames, cutoff, single=False)


def _cells(frames: list[Any], cutoff: float | None, single: bool) -> dict[str, Any]:
    """Cells and what they repeat along; with a cutoff the neighbours, numbered through all frames."""
    found: dict[str, Any] = {}
    periodic = next((one for one in frames if bool(np.any(one.get_pbc()))), None)
    if periodic is not None:
        sides = {"cell": [np.asarray(one.get_cell()) for one in frames], "pbc": [one.get_pbc() for one in frames]}
        found = {name: np.asarray(side[0]) if single else np.stack(side) for name, side in sides.items()}
    if cutoff is None:
        if periodic is not None:
            message = f"{periodic.symbols} is periodic, but atoms without pairs see no images of each other; give a cutoff"
            warnings.warn(message, stacklevel=3)
        return found
    starts = np.concatenate([[0], np.cumsum([len(one) for one in frames])])
    near = [_neighbours(one, cutoff) for one in frames]
    edges = np.concatenate([edges + start for (edges, _), start in zip(near, starts, strict=False)], 1)
    return found | {"edges": edges, "pairs": {"shift": np.concatenate([shift for _, shift in near])}}


def _neighbours(atoms: Any, cutoff: float) -> tuple[np.ndarray, np.ndarray]:
    place, pbc = torch.as_tensor(atoms.get_positions()), [bool(x) for x in atoms.get_pbc()]
    complete = atoms.get_cell().complete() if any(pbc) else None  # vectors along which nothing repeats may be missing
    cell = None if complete is None else torch.as_tensor(np.array(complete))
    found = neighbours(place, cutoff, cell, pbc)
    return found.edges.numpy(), found.shift.numpy()


def _fields(atoms: Any) -> Fields:
    found: dict[str, Any] = {POSITION: atoms.get_positions(), NUMBER: atoms.get_atomic_numbers()}
    found[SYMBOL] = np.array(atoms.get_chemical_symbols())
    results = getattr(getattr(atoms, "calc", None), "results", {})
    if ENERGY in results:
        found[ENERGY] = np.asarray(float(results[ENERGY]))
    if FORCES in results:
        found[FORCES] = np.asarray(results[FORCES])
    return found
