"""ASE's G2 molecules with their zero-point energies as g2.extxyz, and what ridge regression on their formulas achieves.

Molecules of elements that fewer than four of them have are left out: nothing can be learned about those.
"""

from collections import Counter
from typing import Any

import ase.io
import numpy as np
from ase.build import molecule
from ase.data.g2 import data as g2
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV

table: dict[str, Any] = {**g2}
names = [name for name, known in table.items() if known.get("ZPE") is not None]
frames = {name: molecule(name) for name in names}
common = Counter(element for atoms in frames.values() for element in set(atoms.get_chemical_symbols()))
names = [name for name in names if all(common[element] >= 4 for element in frames[name].get_chemical_symbols())]
order = np.random.default_rng(0).permutation(len(names))
for place, i in enumerate(order):
    part = "train" if place < 0.7 * len(names) else "val" if place < 0.85 * len(names) else "eval"
    frames[names[i]].info = {"zpe": table[names[i]]["ZPE"], "split": part}  # kcal/mol
ase.io.write("g2.extxyz", [frames[name] for name in names], format="extxyz")

elements = sorted({element for name in names for element in frames[name].get_chemical_symbols()})
counts = np.array([[frames[name].get_chemical_symbols().count(element) for element in elements] for name in names])
energy = np.array([table[name]["ZPE"] for name in names])
parts = np.array([frames[name].info["split"] for name in names])
print(f"{len(names)} molecules of {', '.join(elements)}: {dict(Counter(parts.tolist()))}")
for label, regressor in {
    "ridge on the formula": RidgeCV(np.logspace(-4, 2, 13)),
    "forest on the formula": RandomForestRegressor(300, random_state=0),
}.items():
    found = regressor.fit(counts[parts == "train"], energy[parts == "train"]).predict(counts[parts == "eval"])
    print(f"{label}: RMSE {np.sqrt(np.mean((found - energy[parts == 'eval']) ** 2)):.3f} kcal/mol")
