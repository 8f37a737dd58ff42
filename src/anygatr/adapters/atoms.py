"""Atoms of ASE as named arrays, recognised by their methods."""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from anygatr.lab.data.files.packing import Fields, packed

POSITION, SYMBOL, NUMBER, ENERGY, FORCES = "position", "symbol", "number", "energy", "forces"


def from_ase(atoms: Any) -> Fields:
    """position, symbol and number of each atom; energy and forces where a calculator has computed them.

    Of a list of Atoms all are packed, with `offsets`; energies and forces are kept if all have them. Cells are left out with
    a warning, because networks here know no periodic images.
    """
    if hasattr(atoms, "get_positions"):
        return _fields(atoms)
    if not isinstance(atoms, Iterable):
        raise ValueError(f"atoms is a {type(atoms).__name__}; pass ASE Atoms or a list of them")
    return packed([_fields(one) for one in atoms], POSITION)


def _fields(atoms: Any) -> Fields:
    if bool(np.any(atoms.get_pbc())):
        warnings.warn(f"{atoms.symbols} is periodic: its cell is left out, atoms see no images of each other", stacklevel=3)
    found: dict[str, Any] = {POSITION: atoms.get_positions(), NUMBER: atoms.get_atomic_numbers()}
    found[SYMBOL] = np.array(atoms.get_chemical_symbols())
    results = getattr(getattr(atoms, "calc", None), "results", {})
    if ENERGY in results:
        found[ENERGY] = np.asarray(float(results[ENERGY]))
    if FORCES in results:
        found[FORCES] = np.asarray(results[FORCES])
    return found
