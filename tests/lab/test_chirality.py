"""Left and right: samples that are their own mirror image, the bound for predictions that follow mirrors, and warnings."""

import numpy as np
import pytest
import torch

from anygatr.lab.comparison.plan import ComparisonPlan
from anygatr.lab.config.commands import CompareConfig
from anygatr.lab.config.json_files import write_json
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.task import Task
from anygatr.lab.report.headline import caveats
from anygatr.lab.report.mirrors import mirror_caveats
from anygatr.lab.report.rows import load as load_rows
from anygatr.lab.training.measure import is_blind, mirror_error
from anygatr.lab.training.mirrors import mirror_bound
from anygatr.lab.training.models import build
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.train import fit

HEIGHT = 0.7


def corners(path, samples: int = 80, sided: float = 1.0) -> str:
    """Three named atoms and a fourth above their plane, on the side that their order decides: as the C-beta of a residue."""
    rng = np.random.default_rng(0)
    place = rng.normal(size=(samples, 3, 3)) + 10 * rng.normal(size=(samples, 1, 3))
    normal = np.cross(place[:, 1] - place[:, 0], place[:, 2] - place[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    target = place.mean(1) + sided * HEIGHT * normal
    np.savez(path, place=place, atom=np.tile(["N", "CA", "C"], (samples, 1)), beta=target)
    return str(path)


def corner_data(path, sided: float = 1.0) -> Dataset:
    return load(corners(path, sided=sided), {"place": "point", "atom": "category"}, {"beta": "point"}, per="sample")


def test_the_bound_of_flat_samples_is_exact(tmp_path):
    """The best that a mirror-symmetric prediction can do is the foot in the plane: HEIGHT squared, over three columns."""
    found = mirror_bound(corner_data(tmp_path / "c.npz").split("eval"), {})
    assert found["share"] == 1.0
    assert found["mse"] == pytest.approx(HEIGHT**2 / 3, rel=1e-9)
    even = mirror_bound(corner_data(tmp_path / "e.npz", sided=0.0).split("eval"), {})
    assert even["mse"] == pytest.approx(0.0, abs=1e-20)


def test_the_bound_knows_permutations_and_ignores_generic_samples(tmp_path):
    """A body with a mirror plane that swaps tokens counts; four generic points have no mirror and tell nothing."""
    rng = np.random.default_rng(1)
    half = rng.normal(size=(30, 3, 3))
    body = np.concatenate([half, half * [1, 1, -1]], axis=1)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    spin = np.tile([0.0, 0.0, 2.0], (30, 1))  # along the normal of the mirror: a vector that is no mirror image of itself
    np.savez(tmp_path / "b.npz", place=body @ turn.T + 5, spin=spin @ turn.T)
    found = mirror_bound(load(tmp_path / "b.npz", {"place": "point"}, {"spin": "vector"}), {})
    assert found == {"mse": pytest.approx(4 / 3), "share": 1.0}
    marked = np.concatenate([np.ones((30, 3)), np.zeros((30, 3))], axis=1)  # tokens that differ are not each other's image
    np.savez(tmp_path / "m.npz", place=body, spin=spin, mark=marked)
    assert mirror_bound(load(tmp_path / "m.npz", {"place": "point", "mark": "scalar"}, {"spin": "vector"}), {}) is None
    np.savez(tmp_path / "g.npz", place=rng.normal(size=(30, 5, 3)), spin=spin)
    assert mirror_bound(load(tmp_path / "g.npz", {"place": "point"}, {"spin": "vector"}), {}) is None


@pytest.mark.parametrize("model", ["E", "C"])
def test_no_model_with_mirrors_is_better_than_the_bound(tmp_path, model):
    """With any weights its prediction lies in the plane, to rounding. Without mirrors it leaves it."""
    data = corner_data(tmp_path / "c.npz").split("train")
    place, task = data.fields["place"] - data.fields["place"].mean(1, keepdim=True), Task.of(data)
    normal = torch.nn.functional.normalize(torch.linalg.cross(place[:, 1] - place[:, 0], place[:, 2] - place[:, 0]), dim=-1)
    above, mirrored = {}, {}
    for name in (model, f"{model},mirrors=false"):
        torch.manual_seed(0)
        module = build(task, recipe("laptop", name, blocks=2, mv=4, s=8, heads=2)).double().eval()
        with torch.no_grad():
            for weight in module.parameters():
                weight += 0.3 * torch.randn_like(weight)  # what is odd under mirrors starts small
            out = module(place=place, atom=data.fields["atom"])["beta"]
        above[name] = float(((out - place[:, 0]) * normal).sum(-1).abs().median())
        mirrored[name] = mirror_error(module, data.batch() | {"place": place, "beta": out}, task)
    assert above[model] < 1e-3 * above[f"{model},mirrors=false"]
    assert mirrored[model] < 0.1 * mirrored[f"{model},mirrors=false"]


def test_a_comparison_says_who_sits_at_the_bound(tmp_path):
    out = tmp_path / "cmp"
    fields = {"inputs": ("place:point", "atom:category"), "target": ("beta:point",), "per": "sample"}
    small = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 16, "steps": 80, "lr": 1e-2}
    asked = {"data": corners(tmp_path / "c.npz"), "models": ("E", "E,mirrors=false"), "out": str(out)}
    config = CompareConfig(**asked, **fields, **small)
    spec = spec_of(config)
    data = spec.load()
    plan = ComparisonPlan.start(config, spec, data, "anygatr compare")
    for made in plan.recipes():
        name = f"{made.model}-{made.size}-{made.seed}"
        row = fit(TrainingRun.start(out / "runs" / name, spec, data, made, ""), data)
        write_json(out / "rows" / f"{name}.json", row)
    results = load_rows(out)
    assert results.data["mirror_bound"]["mse"] == pytest.approx(HEIGHT**2 / 3, rel=1e-9)
    errors = {row.model: row.metric("eval") for row in results.rows}
    assert HEIGHT**2 / 3 * 0.999 < errors["E"] < 1.5 * HEIGHT**2 / 3
    bound, stuck = mirror_caveats(results)
    assert "changes under mirrors: the best mirror-symmetric prediction has error 0.163 or more" in bound
    assert stuck.startswith("E-GATr sits at that bound")
    assert {bound, stuck} <= set(caveats(results))


def test_a_blind_model_is_recognised(tmp_path):
    """Weights that end in zero predict the same whatever the inputs; then there is no mirror error to speak of."""
    rng = np.random.default_rng(0)
    place = rng.normal(size=(20, 4, 3))
    np.savez(tmp_path / "x.npz", place=place, force=place - place.mean(1, keepdims=True))
    data = load(tmp_path / "x.npz", {"place": "point"}, {"force": "vector"}).split("train")
    task = Task.of(data)
    torch.manual_seed(0)
    module = build(task, recipe("laptop", "E", blocks=1, mv=4, s=8, heads=2)).eval()
    assert not is_blind(module, data.batch(), task)
    assert mirror_error(module, data.batch(), task) is not None
    with torch.no_grad():
        for weight in module.net.linear_out.parameters():
            weight.zero_()
    assert is_blind(module, data.batch(), task)
    assert mirror_error(module, data.batch(), task) is None
