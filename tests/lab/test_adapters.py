"""Doors from other libraries: PyTorch Geometric by its attributes, ASE with a real optimiser and MD, meshes, .xyz files."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import anygatr
from anygatr import lab
from anygatr.adapters import from_ase, from_mesh, from_pyg, read_xyz
from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.files.inspect import inspect

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 16, "threads": 1}


class Graph(dict):
    """What PyTorch Geometric's Data offers: attributes, keys(), and items by name."""

    __getattr__ = dict.get


def graph(n: int, seed: int = 0) -> Graph:
    draw = torch.Generator().manual_seed(seed)
    pos, z = torch.randn(n, 3, generator=draw), torch.randint(1, 9, (n,), generator=draw)
    return Graph(pos=pos, z=z, edge_index=torch.zeros(2, 7), y=torch.rand(1))


def test_graphs_become_packed_fields():
    graphs = [graph(3), graph(5, 1)]
    with pytest.warns(UserWarning, match="edge_index are left out; pairs=True"):
        found = from_pyg(graphs, rename={"pos": "position"})
    assert found["offsets"].tolist() == [0, 3, 8]
    assert found["position"].shape == (8, 3)
    assert found["y"].shape == (2, 1)
    assert "edge_index" not in found
    batch = Graph(pos=torch.cat([g.pos for g in graphs]), z=torch.cat([g.z for g in graphs]), ptr=torch.tensor([0, 3, 8]))
    again = from_pyg(batch)
    assert np.array_equal(again["offsets"], found["offsets"])
    assert np.array_equal(again["pos"], found["position"])
    numbered = Graph(pos=batch.pos, batch=torch.tensor([0] * 3 + [1] * 5))
    assert from_pyg(numbered)["offsets"].tolist() == [0, 3, 8]
    with pytest.raises(ValueError, match="data is a int; pass a Data or Batch"):
        from_pyg(3)


def test_edges_of_graphs_reach_a_model():
    torch.manual_seed(0)
    graphs = [graph(3), graph(5, 1)]
    for g, size in zip(graphs, (3, 5), strict=True):
        g["edge_index"] = torch.randint(0, size, (2, 6))
        g["edge_attr"] = torch.randn(6, 2)
    net = anygatr.model(
        "E", {"pos": "point"}, {"out": "scalar"}, (4, 8), 1, heads=2, unit=1.0, pairs={"edge_attr": "scalar*2"}
    )

    def predicted(found):
        edges, told = torch.as_tensor(found["edges"]), {name: torch.as_tensor(x) for name, x in found["pairs"].items()}
        layout = {} if "offsets" not in found else {"offsets": torch.as_tensor(found["offsets"])}
        return net(pos=torch.as_tensor(found["pos"]), pairs=told, edges=edges, **layout)["out"]

    together = predicted(from_pyg(graphs, pairs=True))
    single = torch.cat([predicted(from_pyg(g, pairs=True)) for g in graphs])
    torch.testing.assert_close(together, single, rtol=1e-4, atol=1e-5)
    assert (
        predicted(from_pyg(graphs[1], pairs=True) | {"edges": graphs[1].edge_index.flip(0)}) - single[3:]
    ).abs().max() > 1e-4


def test_cells_of_atoms_become_neighbours():
    ase = pytest.importorskip("ase")
    crystal = ase.Atoms("NaCl", [[0, 0, 0], [0.5, 0.5, 0.5]], cell=[1, 1, 1], pbc=True)
    slab = ase.Atoms("Cu3", [[0, 0, 0], [1, 0, 0], [2, 0, 0]], cell=[3, 2, 0], pbc=[True, True, False])
    with pytest.warns(UserWarning, match="see no images of each other; give a cutoff"):
        found = from_ase([crystal, slab])
    assert found["cell"].shape == (2, 3, 3)
    assert found["pbc"].tolist() == [[True] * 3, [True, True, False]]
    near = from_ase(crystal, cutoff=0.9)
    assert near["edges"].shape[1] == 16  # eight corners around each
    assert np.allclose(np.linalg.norm(near["pairs"]["shift"], axis=1), np.sqrt(0.75))
    both = from_ase([crystal, slab], cutoff=1.1)
    assert both["edges"].shape[1] == 16 + 12 + 6
    assert both["edges"][:, 28:].min() == 2


EXTENDED = """2
Lattice="9 0 0 0 9 0 0 0 9" Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 config="a b" dipole="0 0 1"
O 0.0 0.0 0.0 0.1 0.2 0.3
H 0.0 0.0 1.0 -0.1 -0.2 -0.3
3
Properties=species:S:1:pos:R:3:forces:R:3 energy=-2.5 dipole="0 1 0"
O 0.0 0.0 0.0 0 0 0
H 0.0 0.0 1.0 0 0 0
H 0.0 1.0 0.0 0 0 0
"""


def test_extended_xyz_files_are_read_inspected_and_loaded(tmp_path):
    path = tmp_path / "water.extxyz"
    path.write_text(EXTENDED)
    with pytest.warns(UserWarning, match="has cells, which are left out: atoms see no images"):
        found = read_xyz(path)
    assert set(found) == {"species", "pos", "forces", "energy", "dipole", "offsets"}
    assert found["offsets"].tolist() == [0, 2, 5]
    assert found["energy"].tolist() == [-1.5, -2.5]
    assert found["species"].tolist() == ["O", "H", "O", "H", "H"]
    proposed = inspect(path)
    assert (proposed.inputs["pos"], proposed.inputs["species"], proposed.samples) == ("point", "category", 2)
    data = load(path, {"pos": "point", "species": "category"}, {"energy": "scalar", "forces": "vector"}, fractions=None)
    assert data.token_targets == ("forces",)
    plain = tmp_path / "plain.xyz"
    plain.write_text("1\nhello\nHe 1 2 3\n")
    assert read_xyz(plain)["pos"].tolist() == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no frame"),
        ("5\n\nH 0 0 0\n", "line 1: '5' should be the number of atoms"),
        ("1\n\nH 0 0\n", "fewer columns"),
        ("1\n\nH 0 0 x\n", "could not convert"),
        ("1\nProperties=species:S:1\nH\n", "no pos"),
    ],
)
def test_damaged_xyz_files_are_explained(tmp_path, text, said):
    (tmp_path / "x.xyz").write_text(text)
    with pytest.raises(ValueError, match=rf"x\.xyz' is damaged or not an \.xyz file .*{said}"):
        read_xyz(tmp_path / "x.xyz")


def test_meshes_of_either_library(tmp_path):
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=float)
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    ours = from_mesh(SimpleNamespace(vertices=points, faces=faces, vertex_attributes={"heat": np.arange(4.0)}))
    theirs = from_mesh(SimpleNamespace(points=points, cells_dict={"triangle": faces}, point_data={"heat": np.arange(4.0)}))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert np.allclose(np.linalg.norm(ours["normal"], axis=1), 1)
    assert (ours["normal"] * (points - points.mean(0))).sum(1).min() > 0  # outwards
    assert np.array_equal(ours["plane"], np.concatenate([ours["normal"], points], axis=1))
    with pytest.raises(ValueError, match="pass a mesh of trimesh or meshio"):
        from_mesh(3)
    trimesh, meshio = pytest.importorskip("trimesh"), pytest.importorskip("meshio")
    body = trimesh.creation.icosphere(subdivisions=1)
    body.export(tmp_path / "ball.stl")
    read = from_mesh(tmp_path / "ball.stl")
    assert np.allclose(np.linalg.norm(read["position"], axis=1), 1, atol=1e-6)
    mesh = meshio.Mesh(body.vertices, [("triangle", body.faces)])
    assert np.allclose(from_mesh(mesh)["normal"], from_mesh(body)["normal"])


@pytest.fixture(scope="module")
def molecule_run(tmp_path_factory):
    """Trained on a few hundred small clusters with the energy of a real ASE calculator, conservatively."""
    ase = pytest.importorskip("ase")
    from ase.calculators.lj import LennardJones

    folder, rng = tmp_path_factory.mktemp("ase"), np.random.default_rng(0)
    clusters = []
    for _ in range(200):
        place = 1.2 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])[: rng.integers(3, 5)]
        atoms = ase.Atoms(["Ar", "Kr", "Ar", "Kr"][: len(place)], place + 0.08 * rng.normal(size=place.shape))
        atoms.calc = LennardJones(rc=10.0, smooth=False)
        atoms.get_forces()
        clusters.append(atoms)
    np.savez(folder / "lj.npz", **from_ase(clusters))
    fields = {"inputs": ["position:point", "symbol:category"], "target": ["energy:scalar", "forces:vector"]}
    lab.train(
        **{"data": str(folder / "lj.npz"), "model": "E", "out": str(folder / "run"), "pool": "sum", "conservative": True},
        **{"steps": 150, "lr": 1e-2},
        **fields,
        **TINY,
    )
    return folder / "run"


def test_atoms_with_energies_and_forces_become_fields(molecule_run):
    data = np.load(molecule_run.parent / "lj.npz")
    assert data["energy"].shape == (200,)
    assert data["forces"].shape == data["position"].shape == (data["offsets"][-1], 3)
    assert set(data["symbol"]) == {"Ar", "Kr"}


def test_a_calculator_gives_forces_to_an_optimiser_and_to_molecular_dynamics(molecule_run):
    """Forces are the gradient of the energy, an optimiser finds a rest, and dynamics conserve the energy."""
    import ase
    from ase import units
    from ase.md.verlet import VelocityVerlet
    from ase.optimize import BFGS

    from anygatr.adapters import Calculator

    place = 1.2 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    atoms = ase.Atoms(["Ar", "Kr", "Ar", "Kr"], place)
    atoms.calc = Calculator(molecule_run)
    forces, energy = atoms.get_forces(), atoms.get_potential_energy()
    moved = atoms.copy()
    moved.calc = Calculator(anygatr.load_run(molecule_run))
    moved.positions[2, 1] += 1e-4
    slope = (moved.get_potential_energy() - energy) / 1e-4
    assert -slope == pytest.approx(0.5 * (forces[2, 1] + moved.get_forces()[2, 1]), rel=1e-4, abs=1e-6)
    before = np.abs(forces).max()
    BFGS(atoms, logfile=None).run(fmax=0.05 * before, steps=80)
    assert np.abs(atoms.get_forces()).max() < 0.5 * before
    assert atoms.get_potential_energy() < energy
    atoms.set_velocities(0.01 * np.random.default_rng(0).normal(size=(4, 3)))
    start = atoms.get_total_energy()
    VelocityVerlet(atoms, timestep=0.5 * units.fs).run(40)
    swing = max(abs(atoms.get_kinetic_energy()), 1e-6)
    assert abs(atoms.get_total_energy() - start) < 0.05 * swing
    atoms.pbc = True
    with pytest.raises(ValueError, match="atoms are periodic"):
        atoms.get_potential_energy()


def test_runs_that_fit_no_calculator_are_refused(tmp_path):
    pytest.importorskip("ase")
    from anygatr.adapters import Calculator

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", place=rng.normal(size=(30, 3, 3)), dipole=rng.normal(size=(30, 3)))
    fields = {"inputs": ["place:point"], "target": ["dipole:vector"], "per": "sample"}
    lab.train(data=str(tmp_path / "x.npz"), model="E", out=str(tmp_path / "run"), steps=2, **fields, **TINY)
    with pytest.raises(ValueError, match="a calculator needs one target of kind 'scalar'"):
        Calculator(tmp_path / "run")
