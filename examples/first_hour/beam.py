"""pyvista's beam of hexahedra, clamped at one end and pulled at the other: beam.npz with the displacement of every node.

The beams are tapered, curved and turned at random; displacements solve linear elasticity on pyvista's mesh.
"""

import numpy as np
import pyvista
from pyvista import examples
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV

mesh = pyvista.read(examples.hexbeamfile)
rest, cells = np.asarray(mesh.points, float), mesh.cells.reshape(-1, 9)[:, 1:]
height = rest[:, 2] / rest[:, 2].max()
clamped, tip = height < 1e-6, height > 1 - 1e-6

POISSON = 0.3
stiffness = np.zeros((6, 6))  # of Young's modulus 1, for strains xx, yy, zz, yz, xz, xy
stiffness[:3, :3] = POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
stiffness[range(6), range(6)] += np.repeat([1 / (1 + POISSON), 0.5 / (1 + POISSON)], 3)
CORNERS = np.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]])


def displacement(x: np.ndarray, force: np.ndarray) -> np.ndarray:
    """The solution of linear elasticity with trilinear elements, (nodes, 3)."""
    total = np.zeros((len(cells), 24, 24))
    for point in CORNERS / np.sqrt(3):
        p = 1 + CORNERS * point
        slope = CORNERS * np.stack([p[:, 1] * p[:, 2], p[:, 0] * p[:, 2], p[:, 0] * p[:, 1]], 1) / 8
        jacobian = np.einsum("ai,eaj->eij", slope, x[cells])
        d = np.einsum("eij,aj->eai", np.linalg.inv(jacobian), slope)
        strain = np.zeros((len(cells), 6, 8, 3))
        for i in range(3):
            strain[:, i, :, i] = d[:, :, i]
        for k, (i, j) in enumerate(((1, 2), (0, 2), (0, 1))):
            strain[:, 3 + k, :, i], strain[:, 3 + k, :, j] = d[:, :, j], d[:, :, i]
        flat = strain.reshape(len(cells), 6, 24)
        volume = np.abs(np.linalg.det(jacobian))
        total += np.einsum("eki,kl,elj,e->eij", flat, stiffness, flat, volume, optimize=True)
    freedom = (cells[:, :, None] * 3 + np.arange(3)).reshape(len(cells), 24)
    rows, columns = np.repeat(freedom, 24, 1).ravel(), np.tile(freedom, (1, 24)).ravel()
    matrix = coo_matrix((total.ravel(), (rows, columns)), (x.size, x.size)).tocsc()
    free, found = np.repeat(~clamped, 3), np.zeros(x.size)
    found[free] = spsolve(matrix[free][:, free], force.ravel()[free])
    return found.reshape(x.shape)


rng = np.random.default_rng(0)
samples = []
for _ in range(400):
    x, middle = rest.copy(), rest[:, :2].mean(0)
    x[:, :2] = middle + (x[:, :2] - middle) * (1 - rng.uniform(0, 0.4) * height)[:, None] * rng.uniform(0.7, 1.3, 2)
    x[:, :2] += rng.normal(scale=0.5, size=2) * height[:, None] ** 2
    x[:, 2] *= rng.uniform(0.7, 1.3)
    force = np.where(tip[:, None], rng.normal(scale=5e-5, size=3), 0.0)
    turn, shift = Rotation.random(random_state=rng).as_matrix(), rng.normal(size=3)
    samples.append((x @ turn.T + shift, force @ turn.T, clamped.astype(float), displacement(x, force) @ turn.T))
position, force, held, moved = (np.stack(columns) for columns in zip(*samples, strict=True))
part = np.repeat(["train", "val", "eval"], [280, 60, 60])
np.savez("beam.npz", position=position, force=force, clamped=held, displacement=moved, split=part)
print(f"{len(position)} beams of {position.shape[1]} nodes")

# per node: where it is from the middle of the clamped end, the force on the beam, its number's height and their products
root = position[:, clamped].mean(1, keepdims=True)
pull = np.broadcast_to(force.sum(1, keepdims=True), position.shape)
simple = np.concatenate(
    [position - root, pull * 1e4, pull * 1e4 * np.linalg.norm(position - root, axis=-1)[..., None] ** 2], -1
)
train, test = part == "train", part == "eval"
for label, model in {
    "ridge on coordinates": RidgeCV(np.logspace(-4, 4, 9)),
    "forest on coordinates": RandomForestRegressor(40, min_samples_leaf=5, max_samples=8000, random_state=0),
}.items():
    found = model.fit(simple[train].reshape(-1, 9), moved[train].reshape(-1, 3)).predict(simple[test].reshape(-1, 9))
    print(f"{label}: RMSE {np.sqrt(np.mean((found - moved[test].reshape(-1, 3)) ** 2)):.4f}")
