"""Arteries through the laboratory: fields and masks, training, evaluation at both resolutions, prediction on surfaces."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from anygatr.lab.comparison.plan import ComparisonPlan
from anygatr.lab.config.commands import CompareConfig, PredictConfig, TrainConfig
from anygatr.lab.config.json_files import write_json
from anygatr.lab.data.arteries.corners import corner_mesh, corner_sample
from anygatr.lab.data.arteries.dataset import ArteryDataset
from anygatr.lab.data.arteries.fields import dataset, load, velocities
from anygatr.lab.data.arteries.mesh import surface_problems
from anygatr.lab.data.arteries.names import FULL
from anygatr.lab.data.arteries.preprocess import Sample
from anygatr.lab.data.arteries.surface import read_surface
from anygatr.lab.data.normalise import Normaliser
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.task import Task
from anygatr.lab.data.vtp import write_vtp
from anygatr.lab.report import write_report
from anygatr.lab.report.rows import load as load_report
from anygatr.lab.report.surfaces import surfaces_figure
from anygatr.lab.training.evaluate import split_metrics
from anygatr.lab.training.metrics import sample_errors
from anygatr.lab.training.models import build
from anygatr.lab.training.predict import predict
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.train import fit, train
from anygatr.lab.training.vector_metrics import VectorMetrics

FILE = Path(__file__).parent.parent / "arteries" / "data" / "arteries.h5"
SMALL = {"steps": 2, "blocks": 1, "mv": 4, "s": 8, "heads": 2, "threads": 1}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """The sample file, copied, because prepared arteries are cached beside it."""
    return Path(shutil.copy(FILE, tmp_path_factory.mktemp("arteries")))


@pytest.fixture(scope="module")
def run(path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "iP"
    train(TrainConfig(data=str(path), model="iP", out=str(out), **SMALL))
    return out


def test_fields_masks_and_splits(path):
    data = load(path, "corners")
    assert data.input_kinds == {"position": "point", "wall": "plane", "geodesic": "scalar", "inflow": "scalar"}
    assert {name: len(index) for name, index in data.splits.items()} == {"train": 1, "val": 1, "eval": 1, FULL: 1}
    assert Task.of(data).reinsert == ("position",)
    full, coarse = data.split(FULL).packed(), data.split("eval").packed()
    share = len(coarse.fields["wss"]) / len(full.fields["wss"])
    assert share == pytest.approx(0.25, abs=0.03)
    assert 0.5 < float(full.scored.double().mean()) < 1
    raw = ArteryDataset(path, "test", rotated=True)[0]
    assert np.array_equal(full.fields["wss"].numpy(), raw.wss.astype(np.float64))
    assert np.array_equal(full.scored.numpy(), raw.mask)
    everything = {tuple(p) for p in full.fields["position"].tolist()}
    assert all(tuple(p) in everything for p in coarse.fields["position"].tolist())  # the corners are nodes of the wall
    flow = velocities(path)
    assert float(coarse.fields["inflow"][0]) == flow[raw.name] > 0


def test_corner_mesh_is_a_tube_facing_outwards(path):
    sample, mesh = ArteryDataset(path)[0], _mesh(path)
    corners = corner_sample(sample, mesh)
    assert surface_problems(corners.pos, corners.face, closed=False) in ([], _loose(corners))
    a, b, c = (corners.pos[corners.face[:, k]] for k in range(3))
    outward = (np.cross(b - a, c - a) * corners.normals[corners.face[:, 0]]).sum(axis=1)
    assert (outward > 0).all()
    vertices, _ = corner_mesh(*mesh)
    assert set(corners.vertex) <= set(vertices)


def _loose(corners: Sample) -> list[str]:
    """At the cut ends single nodes may belong to no triangle."""
    return [f"{len(corners.pos) - len(np.unique(corners.face))} vertices belong to no face"]


def _mesh(path: Path) -> tuple[int, int, int]:
    from anygatr.lab.data.arteries.fields import _mesh as mesh

    found = mesh(path)
    assert found is not None
    return found


def test_only_scored_tokens_count():
    error = {"wss": torch.tensor([[1.0, 0, 0], [3.0, 0, 0], [2.0, 0, 0], [9.0, 0, 0]])}
    scored = torch.tensor([True, False, True, True])
    offsets = torch.tensor([0, 2, 4])
    assert torch.allclose(sample_errors(error, offsets, scored), torch.tensor([1 / 3, 85 / 6]))
    dense = {"wss": error["wss"].unflatten(0, (2, 2))}
    assert torch.allclose(sample_errors(dense, None, scored.unflatten(0, (2, 2))), torch.tensor([1 / 3, 85 / 6]))
    assert not torch.allclose(sample_errors(error, offsets), torch.tensor([1 / 3, 85 / 6]))


def test_vector_metrics_by_hand():
    task = Task({"position": "point"}, {"wss": "vector"}, 3, "token")
    found = VectorMetrics.of(task, Normaliser({"wss": (0.0,) * 3}, {"wss": (2.0,) * 3}))
    true = torch.tensor([[3.0, 0, 0], [0, 4.0, 0], [0, 0, 10.0], [1.0, 0, 0]]) / 2
    said = torch.tensor([[0.0, 3.0, 0], [0, 4.0, 0], [0, 0, 0.0], [2.0, 0, 0]]) / 2
    layout = {"offsets": torch.tensor([0, 3, 4]), "scored": torch.tensor([True, True, False, True])}
    found.add({"wss": said}, {"wss": true, **layout})
    numbers = found.summary()
    first = (18 / 25) ** 0.5
    assert numbers["approximation"] == pytest.approx((first + 1) / 2)
    assert numbers["approximation_median"] == pytest.approx(first)
    assert numbers["approximation_p75"] == pytest.approx(first + 0.75 * (1 - first))
    assert numbers["nmae"] == pytest.approx((18**0.5 / 2 + 1) / 2 / 10)  # the largest vector is not a scored one
    assert numbers["cosine"] == pytest.approx((0.5 + 1) / 2)
    assert VectorMetrics.of(replace(task, targets={"final": "point"}), Normaliser({}, {})) is None


@pytest.mark.parametrize("model", ["E", "P", "iP", "C", "transformer", "pointnet2", "gem_cnn"])
def test_every_model_takes_a_step_on_arteries(path, model):
    data = load(path, "corners")
    recipe = TrainConfig(blocks=1, mv=4, s=8, heads=2).recipe(model, 0, None, "mean", "arteries")
    batch = data.split("train").packed().batch()
    torch.manual_seed(0)
    net = build(Task.of(data), recipe)
    out = net(**{name: batch[name] for name in data.input_kinds}, offsets=batch["offsets"])["wss"]
    assert out.shape == batch["wss"].shape
    out.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_a_run_is_evaluated_at_both_resolutions(run):
    row = TrainingRun.open(run).result
    assert set(row["metrics"]) == {"train", "val", "eval", FULL}
    for numbers in row["metrics"].values():
        assert {"approximation", "approximation_median", "approximation_p75", "nmae", "cosine"} <= set(numbers)
    assert row["config"]["batch"] == 1
    opened = TrainingRun.open(run)
    again, _ = split_metrics(opened, opened.module(), opened.spec.load())
    assert again[FULL]["approximation"] == pytest.approx(row["metrics"][FULL]["approximation"], rel=1e-5)
    assert opened.module().net.reinsert == (0,)


def test_prediction_in_a_turned_and_shifted_frame_turns(run, path, tmp_path):
    """A trained model on a surface file it never saw: the turned and shifted wall gets the turned answer, in float32."""
    artery = ArteryDataset(path).file.read("sample_0002")
    inlet = artery.pos[artery.inlet].mean(axis=0)
    matrix, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    matrix[:, 0] *= np.linalg.det(matrix)
    shift = np.array([7.0, -11.0, 5.0])
    found = []
    for name, m, t in (("here", np.eye(3), np.zeros(3)), ("there", matrix, shift)):
        write_vtp(tmp_path / f"{name}.vtp", artery.pos.astype(np.float64) @ m.T + t, artery.face, {})
        where = tuple(float(x) for x in inlet @ m.T + t)
        out = str(tmp_path / f"{name}-wss.vtp")
        wall = PredictConfig(str(run), data=str(tmp_path / f"{name}.vtp"), out=out, inlet=where, inflow=15.0)
        found.append(read_surface(predict(wall)))
    here, there = found
    assert np.array_equal(here.face, artery.face)
    assert np.array_equal(here.face, there.face)
    known = np.isfinite(here.arrays["wss"]).all(axis=1)
    assert 0 < known.sum() < len(known) == len(artery.pos)
    assert np.allclose(here.pos, artery.pos)
    for mesh in found:
        mesh.arrays["wss"] = mesh.arrays["wss"][known]
    assert {"wss", "geodesic", "inflow", "scored"} <= set(there.arrays)
    turned = here.arrays["wss"] @ matrix.T
    assert np.abs(there.arrays["wss"] - turned).max() < 2e-4 * np.abs(turned).max()
    assert np.abs(there.arrays["wss"] - here.arrays["wss"]).max() > 0.1 * np.abs(turned).max()


def test_predicts_every_artery_of_a_file(run, path, tmp_path):
    first = predict(PredictConfig(str(run), data=str(path), out=str(tmp_path / "p.vtp")))
    assert sorted(f.name for f in tmp_path.iterdir()) == ["p-0.vtp", "p-1.vtp", "p-2.vtp"]
    assert len(read_surface(first).pos) == len(ArteryDataset(path)[0].pos)


def test_a_forgotten_scale_and_a_far_inlet_are_refused_and_the_unit_is_kept(run, path, tmp_path, capsys):
    """A wall in millimetres: ten times too large without --scale; with it the answer is at every vertex, in millimetres."""
    artery = ArteryDataset(path).file.read("sample_0002")
    pos = 10 * artery.pos.astype(np.float64)
    write_vtp(tmp_path / "mm.vtp", pos, artery.face, {})
    inlet = tuple(float(x) for x in pos[artery.inlet].mean(axis=0))
    asked = {"data": str(tmp_path / "mm.vtp"), "out": str(tmp_path / "p.vtp"), "inlet": inlet, "inflow": 15.0}
    with pytest.raises(ValueError, match=r"position: samples extend over .* in training .* cm; --scale says how many"):
        predict(PredictConfig(str(run), **asked))
    with pytest.raises(ValueError, match=r"inlet=\(500.0, 0.0, 0.0\) is .* away from the surface"):
        predict(PredictConfig(str(run), **asked | {"inlet": (500.0, 0.0, 0.0), "scale": 0.1}))
    found = read_surface(predict(PredictConfig(str(run), **asked, scale=0.1)))
    assert np.allclose(found.pos, pos)
    assert "vertices have a prediction" in " ".join(capsys.readouterr().out.split())
    whole = read_surface(predict(PredictConfig(str(run), **asked, scale=0.1, extensions=False)))
    assert np.isfinite(whole.arrays["wss"]).all()
    predict(PredictConfig(str(run), **asked | {"out": str(tmp_path / "p.csv")}, scale=0.1))
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "vertex,wss_x,wss_y,wss_z"
    assert len(lines) == 1 + len(pos)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"out": "p.txt"}, "suffix"), ({"data": "wall.vtp", "out": "p.vtp", "inlet": (0, 0, 0)}, "--inflow")],
)
def test_bad_predictions_are_refused(run, path, tmp_path, change, message):
    artery = ArteryDataset(path).file.read("sample_0002")
    inlet = tuple(float(x) for x in artery.pos[artery.inlet].mean(axis=0))
    write_vtp(tmp_path / "wall.vtp", artery.pos, artery.face, {})
    asked = {"data": str(path), "out": str(tmp_path / "p.vtp")} | change
    if asked["data"] == "wall.vtp":
        asked |= {"data": str(tmp_path / "wall.vtp"), "inlet": inlet}
    with pytest.raises(ValueError, match=message):
        predict(PredictConfig(str(run), **asked))


def test_published_layout_without_our_attributes_uses_all_nodes_and_no_inflow(path, tmp_path):
    import h5py

    other = tmp_path / "published.hdf5"
    with h5py.File(path) as ours, h5py.File(other, "w") as file:
        for name, group in ours.items():
            for key in ("pos", "face", "wss", "inlet_idcs"):
                file[f"{name}/{key}"] = group[key][()]
    spec = spec_of(TrainConfig(data=str(other)))
    data = spec.load()
    assert spec.settings == {"nodes": "all"}
    assert set(data.input_kinds) == {"position", "wall", "geodesic"}
    assert set(data.splits) == {"train", "val", "eval"}
    with pytest.raises(ValueError, match="--wall all"):
        load(other, "corners")


def test_report_shows_the_surfaces(path, tmp_path):
    out, small = tmp_path / "cmp", {"steps": 1, "blocks": 1, "s": 8, "heads": 2}
    config = CompareConfig(data=str(path), models=("transformer", "pointnet2"), out=str(out), **small)
    spec = spec_of(config)
    data = spec.load()
    experiment = ComparisonPlan.start(config, spec, data, "anygatr compare")
    for recipe in experiment.recipes():
        name = f"{recipe.model}-{recipe.size}-{recipe.seed}"
        (out / "runs" / name).mkdir(parents=True)
        write_json(out / "rows" / f"{name}.json", fit(TrainingRun.start(out / "runs" / name, spec, data, recipe, ""), data))
    experiment.write_predictions(data)
    figure = surfaces_figure(load_report(out))
    view = figure.views["Surface 1"]
    raw = ArteryDataset(path, "test", rotated=True)[0]
    true, predicted, error = view.traces[:3]
    assert np.allclose(true["intensity"], np.linalg.norm(raw.wss, axis=1), rtol=1e-3)
    assert [len(mesh["i"]) for mesh in (true, predicted, error)] == [len(raw.face)] * 3
    assert view.layout["coloraxis"]["colorbar"]["title"]["text"] == "length of wss, dyn/cm²"
    assert len(view.layout["updatemenus"][0]["buttons"]) == 2
    assert "True, predicted, error" in write_report(out).read_text()


def test_a_data_set_made_of_samples_keeps_their_order(path):
    samples = list(ArteryDataset(path))
    data = dataset(samples, velocities(path))
    picked = data.select(torch.tensor([2, 0]))
    assert [len(f) for f in picked.faces] == [len(samples[2].face), len(samples[0].face)]
    assert np.array_equal(picked.fields["geodesic"][: len(samples[2].geo)].numpy(), samples[2].geo.astype(np.float64))


@pytest.mark.slow
def test_a_step_on_7000_nodes_at_the_size_of_the_paper_fits_into_memory():
    command = [sys.executable, "-m", "benchmarks.arteries.scale", "--train", "7000", "--predict", "0", "--json"]
    root = Path(__file__).parents[2]
    (row,) = json.loads(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout)
    assert row["nodes"] == 7000
    assert row["peak_mb"] < 1.5 * 1024
