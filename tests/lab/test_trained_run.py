"""A trained run in Python: predictions in the units of the data, copies, exports with units inside, forces."""

import numpy as np
import pytest
import torch

import anygatr
from anygatr import lab
from anygatr.interface.conservative import ConservativeModel

TINY = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 16, "threads": 1, "steps": 20}


def springs(path, samples: int = 60, factor: float = 1.0, ragged: bool = False) -> str:
    """Beads that are pulled to their centre, energies as sums over beads, two elements with names."""
    rng = np.random.default_rng(0)
    counts = rng.integers(3, 7, samples) if ragged else np.full(samples, 4)
    place = [factor * rng.normal(size=(n, 3)) + 100 for n in counts]
    stiff = [rng.choice(["a", "b"], n) for n in counts]
    k = {"a": 1.0, "b": 3.0}
    energy, forces = [], []
    for x, s in zip(place, stiff, strict=True):
        weight = np.array([k[name] for name in s])[:, None]
        pull = weight * (x - x.mean(0))
        energy.append(0.5 * (pull * (x - x.mean(0))).sum())
        forces.append(-(pull - pull.mean(0)))
    if ragged:
        arrays = {"place": np.concatenate(place), "bead": np.concatenate(stiff), "forces": np.concatenate(forces)}
        arrays["offsets"] = np.concatenate([[0], np.cumsum(counts)])
    else:
        arrays = {"place": np.stack(place), "bead": np.stack(stiff), "forces": np.stack(forces)}
    np.savez(path, **arrays, energy=np.array(energy))
    return str(path)


FIELDS = {"inputs": ["place:point", "bead:category"], "target": ["energy:scalar"]}
BOTH = {"inputs": FIELDS["inputs"], "target": ["energy:scalar", "forces:vector"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    lab.train(data=springs(folder / "s.npz"), model="E", out=str(folder / "e"), pool="sum", **FIELDS, **TINY)
    return folder / "e"


def test_predictions_are_those_of_the_command_in_the_units_of_the_data(run, tmp_path):
    data = str(run.parent / "s.npz")
    arrays = np.load(data)
    expected = lab.predict(str(run), data, out=str(tmp_path / "p.npz"))["energy"]
    trained = anygatr.load_run(run)
    several = trained.predict(place=arrays["place"], bead=arrays["bead"])["energy"]
    assert torch.allclose(several, expected, rtol=1e-5)
    one = trained.predict(place=arrays["place"][0].tolist(), bead=arrays["bead"][0])["energy"]
    assert one.shape == ()
    assert one.item() == pytest.approx(expected[0].item(), rel=1e-5)
    rows = {name: arrays[name][:3].reshape(12, *arrays[name].shape[2:]) for name in ("place", "bead")}
    packed = trained.predict(**rows, offsets=[0, 4, 8, 12])["energy"]
    assert torch.allclose(packed, expected[:3], rtol=1e-4)
    mask = np.ones((2, 4), dtype=bool)
    masked = trained.predict(place=arrays["place"][:2], bead=arrays["bead"][:2], mask=mask)["energy"]
    assert torch.allclose(masked, expected[:2], rtol=1e-4)
    assert "place:point" in repr(trained)
    assert trained.row["status"] == "ok"
    assert trained.certify().ok


def test_bad_fields_are_named(run):
    trained = anygatr.load_run(run)
    with pytest.raises(ValueError, match="no input field 'places'; did you mean place"):
        trained.predict(places=np.zeros((4, 3)), bead=["a"] * 4)
    with pytest.raises(ValueError, match="'bead' is missing"):
        trained.predict(place=np.zeros((4, 3)))
    with pytest.raises(ValueError, match="the category 'c', which was not there in training"):
        trained.predict(place=np.random.default_rng(0).normal(size=(2, 3)), bead=["a", "c"])


def test_a_copy_predicts_without_the_data(run, tmp_path):
    trained = anygatr.load_run(run)
    copy = anygatr.load_run(trained.save(tmp_path / "copy"))
    place = np.random.default_rng(0).normal(size=(3, 3))
    sample = {"place": place, "bead": ["a", "b", "b"]}
    assert torch.equal(copy.predict(**sample)["energy"], trained.predict(**sample)["energy"])
    assert not (tmp_path / "copy" / "state.safetensors").exists()
    with pytest.raises(ValueError, match="exists; choose a directory"):
        trained.save(tmp_path / "copy")


@pytest.mark.slow
def test_exports_have_the_units_inside(run, tmp_path):
    """Other numbers of samples and tokens than were traced; coordinates far from 0, as in the file."""
    trained = anygatr.load_run(run)
    rng = np.random.default_rng(1)
    place, bead = rng.normal(size=(2, 5, 3)) + 100, rng.integers(0, 2, size=(2, 5))
    expected = trained.predict(place=place, bead=np.array(["a", "b"])[bead])["energy"].numpy()
    graph = torch.export.load(trained.export(tmp_path / "e.pt2")).module()
    like = {"place": torch.from_numpy(place).float(), "bead": torch.from_numpy(bead).float()}
    assert np.allclose(graph(**like)["energy"].detach().numpy(), expected, rtol=1e-3, atol=1e-3)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(trained.export(tmp_path / "e.onnx")))
    (found,) = session.run(None, {name: x.numpy() for name, x in like.items()})
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=r"unknown suffix '\.bin'"):
        trained.export(tmp_path / "e.bin")


@pytest.mark.parametrize("ragged", [False, True])
def test_conservative_forces_are_the_gradient_of_the_energy(tmp_path, ragged):
    """By central differences of the energy, both in the units of the data, where lengths are far from one."""
    data = springs(tmp_path / "s.npz", factor=8.0, ragged=ragged)
    row = lab.train(data=data, model="E", out=str(tmp_path / "run"), pool="sum", conservative=True, **BOTH, **TINY)
    assert set(row["metrics"]["eval"]["targets"]) == {"energy", "forces"}
    trained = anygatr.load_run(tmp_path / "run")
    trained.model.double()
    assert isinstance(trained.network, ConservativeModel)
    rng = np.random.default_rng(3)
    place, bead = 8 * rng.normal(size=(5, 3)) + 100, ["a", "b", "a", "a", "b"]
    out = trained.predict(place=place, bead=bead)
    step, found = 1e-3, np.zeros((5, 3))
    for i, j in np.ndindex(5, 3):
        shifted = [place.copy(), place.copy()]
        shifted[0][i, j] += step
        shifted[1][i, j] -= step
        up, down = (trained.predict(place=x, bead=bead)["energy"].item() for x in shifted)
        found[i, j] = -(up - down) / (2 * step)
    assert np.abs(found).max() > 1e-3
    assert np.allclose(out["forces"].numpy(), found, rtol=1e-5, atol=1e-6 * np.abs(found).max())
    assert float(out["forces"].sum(0).abs().max()) < 1e-8 * np.abs(found).max()  # nothing pulls on the whole
    with pytest.raises(ValueError, match="cannot be exported"):
        trained.export(tmp_path / "x.onnx")


def test_energies_and_forces_without_a_gradient_and_refusals(tmp_path):
    data = springs(tmp_path / "s.npz")
    row = lab.train(data=data, model="E", out=str(tmp_path / "run"), pool="sum", **BOTH, **TINY)
    assert set(row["metrics"]["eval"]["targets"]) == {"energy", "forces"}
    assert set(row["baselines"]["eval"]) == {"mean", "linear"}
    found = anygatr.load_run(tmp_path / "run").predict(place=np.eye(3)[:2], bead=["a", "b"])
    assert found["forces"].shape == (2, 3)
    with pytest.raises(ValueError, match="conservative=True needs one point among the inputs and two targets"):
        lab.train(data=data, model="E", out=str(tmp_path / "a"), conservative=True, **FIELDS, **TINY)
    with pytest.raises(ValueError, match="choose a GATr"):
        lab.train(data=data, model="transformer", out=str(tmp_path / "b"), conservative=True, **BOTH, **TINY)
