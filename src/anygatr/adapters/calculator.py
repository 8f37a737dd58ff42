"""An ASE calculator from a trained run: energies and forces for optimisers and molecular dynamics."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

try:
    from ase.calculators.calculator import Calculator as _Calculator
    from ase.calculators.calculator import all_changes
except ImportError as error:
    raise ImportError("Calculator needs ASE: pip install 'anygatr[ase]'", name="ase") from error


class Calculator(_Calculator):
    """Energy of a trained run, and forces as its gradient: `atoms.calc = Calculator("runs/x")`.

    The run predicts one scalar of each sample from one point of each atom and perhaps a category: symbols or atomic
    numbers, as it was trained. Other inputs are taken from `atoms.arrays` by their names. `energy_unit` and `length_unit`
    are the run's units in eV and angstrom. Computed in float64, so that optimisers converge.
    """

    implemented_properties = ["energy", "forces"]  # noqa: RUF012  as ASE declares it

    def __init__(self, run: Any, energy_unit: float = 1.0, length_unit: float = 1.0, **options: Any):
        super().__init__(**options)
        if isinstance(run, str | Path):
            from anygatr import load_run

            run = load_run(run)
        self.run, self.energy_unit, self.length_unit = run, float(energy_unit), float(length_unit)
        self.run.model.double()
        self.position = _only(run.inputs, "point", "input")
        self.energy = _only(run.targets, "scalar", "target")

    def calculate(self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes) -> None:
        """Fill `results` for these atoms."""
        super().calculate(atoms, properties, system_changes)
        atoms = self.atoms if atoms is None else atoms
        if bool(np.any(atoms.get_pbc())):
            raise ValueError("atoms are periodic, but runs have no pairs and see no images of atoms; set atoms.pbc = False")
        fields = {name: torch.as_tensor(x).unsqueeze(0) for name, x in self._fields(atoms).items()}
        place = fields[self.position].requires_grad_()
        with torch.enable_grad():
            energy = self.run.model(**fields)[self.energy].sum()
            (slope,) = torch.autograd.grad(energy, place)
        forces = -slope[0].detach().numpy() * (self.energy_unit / self.length_unit)
        self.results = {"energy": float(energy.detach()) * self.energy_unit, "forces": forces}

    def _fields(self, atoms: Any) -> dict[str, torch.Tensor]:
        known = self.run.run.task.vocabulary
        found: dict[str, Any] = {}
        for name, kind in self.run.inputs.items():
            if name == self.position:
                found[name] = atoms.get_positions() / self.length_unit
            elif kind.startswith("category") and name not in atoms.arrays:
                is_text = isinstance(known.get(name, (0,))[0], str)
                found[name] = np.array(atoms.get_chemical_symbols()) if is_text else atoms.get_atomic_numbers()
            elif name in atoms.arrays:
                found[name] = atoms.arrays[name]
            else:
                raise ValueError(f"the run takes {name!r}, which atoms.arrays does not have; atoms.set_array({name!r}, ...)")
        return self.run.tensors(found)


def _only(fields: dict[str, str], kind: str, side: str) -> str:
    names = [name for name, found in fields.items() if found == kind]
    if len(names) != 1:
        raise ValueError(f"a calculator needs one {side} of kind {kind!r}, the run has {names or 'none'} among {fields}")
    return names[0]
