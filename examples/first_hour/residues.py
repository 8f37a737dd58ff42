"""Backbone and C-beta of every residue of adenylate kinase in MDAnalysis' trajectory, as adk.npz; and three baselines.

Residues are shared out, not frames: frames are alike, and a residue that was seen is no test.
"""

import warnings

import MDAnalysis
import numpy as np
from MDAnalysisTests.datafiles import DCD, PSF
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV

warnings.simplefilter("ignore")
universe = MDAnalysis.Universe(PSF, DCD)
atoms = ("N", "CA", "C", "CB")
residues = [residue for residue in universe.residues if set(atoms) <= set(residue.atoms.names)]  # all but glycine
index = np.array([[residue.atoms[residue.atoms.names == name][0].index for name in atoms] for residue in residues])
places = np.stack([universe.atoms.positions[index] for _ in universe.trajectory[::10]])  # frames, residues, atoms, 3
tenth = np.random.default_rng(0).permutation(len(residues)) * 10 // len(residues)
part = np.tile(np.where(tenth < 7, "train", np.where(tenth < 8, "val", "eval")), len(places))
name = np.tile([residue.resname for residue in residues], len(places))
n, ca, c, cb = places.reshape(-1, 4, 3).swapaxes(0, 1)
np.savez("adk.npz", n=n, ca=ca, c=c, cb=cb, residue=name, split=part)
print(f"{len(cb)} residues in {len(places)} frames; to learn from: {(part == 'train').sum()}")


def frame(n: np.ndarray, ca: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The axes of each residue, (residues, 3, 3): along CA-C, towards N, and their cross product."""
    a = (c - ca) / np.linalg.norm(c - ca, axis=1, keepdims=True)
    b = (n - ca) - ((n - ca) * a).sum(1, keepdims=True) * a
    b /= np.linalg.norm(b, axis=1, keepdims=True)
    return np.stack([a, b, np.cross(a, b)], 1)


train, held = part == "train", part == "eval"
axes = frame(n, ca, c)
turned = [np.einsum("nij,nj->ni", axes, x - ca) for x in (n, c, cb)]
classes = (name[:, None] == np.unique(name)).astype(float)
inputs = {"raw": np.hstack([n - ca, c - ca]), "in its own frame": np.hstack([turned[0], turned[1], classes])}
targets = {"raw": cb - ca, "in its own frame": turned[2]}
for label, model, seen in (
    ("ridge on coordinates", RidgeCV(np.logspace(-4, 4, 9)), "raw"),
    ("forest on coordinates", RandomForestRegressor(100, random_state=0), "raw"),
    ("ridge in the frame of the residue", RidgeCV(np.logspace(-4, 4, 9)), "in its own frame"),
):
    found = model.fit(inputs[seen][train], targets[seen][train]).predict(inputs[seen][held])
    print(f"{label}: RMSE {np.sqrt(np.mean((found - targets[seen][held]) ** 2)):.4f} angstrom")
