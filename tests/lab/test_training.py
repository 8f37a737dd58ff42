"""Training: it learns, it resumes to the same bits, it keeps the best weights, it says what went wrong."""

import json
import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import tyro
from samples import DRIFT, drift

from anygatr.lab.config.commands import CompareConfig, EvaluateConfig, PredictConfig, TrainConfig, command_line
from anygatr.lab.config.json_files import read_json
from anygatr.lab.config.recipe import recipe
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.task import Task
from anygatr.lab.training.evaluate import evaluate
from anygatr.lab.training.metrics import residuals, sample_errors, summary, trivial_mse
from anygatr.lab.training.models import build, parameters, with_parameters
from anygatr.lab.training.objective import Objective
from anygatr.lab.training.predict import predict
from anygatr.lab.training.run import METRICS, RESULT, STATE, WEIGHTS, TrainingRun
from anygatr.lab.training.state import load_tensors
from anygatr.lab.training.train import NonFiniteGradientError, fit, sample_indices, train

SMALL = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 8, "steps": 12, "lr": 3e-3, "validate_every": 5}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return str(drift(tmp_path_factory.mktemp("data") / "drift.npz"))


def config(data: str, out: Path, /, **changes) -> TrainConfig:
    return TrainConfig(**{"data": data, "out": str(out), "model": "E", "threads": 1} | DRIFT | SMALL | changes)


def start(asked: TrainConfig) -> tuple[TrainingRun, object]:
    spec = spec_of(asked)
    data = spec.load()
    made = asked.recipe(asked.model, asked.seed, asked.size, spec.origin(asked.origin))
    return TrainingRun.start(Path(asked.out), spec, data, made, "test"), data


def interrupt_at(step: int):
    def watch(now: int, loss: float) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


@pytest.mark.parametrize(
    ("model", "steps"),
    [("E", 80), ("P", 80), ("iP", 80), ("transformer", 80), pytest.param("C", 200, marks=pytest.mark.slow)],
)
def test_overfits_a_tiny_set(data, tmp_path, model, steps):
    """Three samples, learned by heart by the laptop preset; narrower networks stall for some seeds."""
    spec = spec_of(config(data, tmp_path))
    few = spec.load().split("train").subset(3)
    task = Task.of(few)
    torch.manual_seed(0)
    module = build(task, recipe("laptop", model))
    objective = Objective(module, task, 0.01)
    optimiser = torch.optim.Adam(module.parameters(), lr=3e-3)
    for rate in np.geomspace(3e-3, 3e-4, steps):
        optimiser.param_groups[0]["lr"] = rate
        loss, error = objective(module, few.batch())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 10.0)
        optimiser.step()
    assert error.item() < 0.2 * trivial_mse(few, few)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_resume_is_exact_to_the_bit(data, tmp_path, ema):
    """Stopped by Ctrl-C at a step without validation and started again: same weights, moments, curve and metrics."""
    whole, whole_data = start(config(data, tmp_path / "whole", ema=ema))
    row = fit(whole, whole_data)
    parts, parts_data = start(config(data, tmp_path / "parts", ema=ema))
    with pytest.raises(KeyboardInterrupt):
        fit(parts, parts_data, interrupt_at(7))
    assert load_tensors(parts.directory / STATE)[1]["step"] == 7
    again = fit(parts, parts_data)
    ours, theirs = (load_tensors(run.directory / STATE) for run in (whole, parts))
    assert ours[0].keys() == theirs[0].keys()
    assert all(torch.equal(ours[0][key], theirs[0][key]) for key in ours[0])
    assert {k: v for k, v in ours[1].items() if k != "seconds"} == {k: v for k, v in theirs[1].items() if k != "seconds"}
    assert (whole.directory / METRICS).read_text() == (parts.directory / METRICS).read_text()
    assert json.dumps(row["metrics"]) == json.dumps(again["metrics"])


@pytest.mark.parametrize("lost", ["optimiser/", "module/"])
def test_resume_needs_all_of_the_state(data, tmp_path, lost):
    """Negative control: a run resumed without its moments, or with other weights, does not end with the same bits."""
    from anygatr.lab.training.state import save_tensors

    whole, whole_data = start(config(data, tmp_path / "whole"))
    fit(whole, whole_data)
    parts, parts_data = start(config(data, tmp_path / "parts"))
    with pytest.raises(KeyboardInterrupt):
        fit(parts, parts_data, interrupt_at(7))
    tensors, record = load_tensors(parts.directory / STATE)
    damaged = {k: x * 0.999 if k.startswith(lost) and x.is_floating_point() else x for k, x in tensors.items()}
    save_tensors(parts.directory / STATE, damaged, record)
    fit(parts, parts_data)
    ours, theirs = (load_tensors(run.directory / STATE)[0] for run in (whole, parts))
    assert not all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_another_environment_is_noticed(data, tmp_path):
    run, loaded = start(config(data, tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt):
        fit(run, loaded, interrupt_at(3))
    record = read_json(run.directory / "config.json")
    record["environment"]["torch"] = "1.0"
    (run.directory / "config.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="torch 1.0 ->"):
        fit(run, loaded)


@pytest.mark.parametrize("normalise", [False, True])
def test_a_unit_of_length_changes_what_the_network_sees_not_the_unit_of_errors(data, tmp_path, normalise):
    fields = dict(np.load(data))
    larger = tmp_path / "larger.npz"
    np.savez(larger, **fields | {name: 4 * fields[name] for name in ("position", "final")})
    rows = {
        (path, unit): train(config(str(path), tmp_path / f"{Path(path).stem}-{unit}", unit=unit, normalise=normalise))
        for path, unit in ((data, 0.25), (larger, 1.0), (data, 1.0))
    }
    found = {key: row["metrics"]["val"]["mse"] for key, row in rows.items()}
    losses = {key: row["curve"][-1][1] for key, row in rows.items()}
    for numbers in (found, losses):
        assert numbers[larger, 1.0] == pytest.approx(16 * numbers[data, 0.25], rel=1e-5)  # the same numbers went in
    assert found[data, 1.0] != pytest.approx(found[data, 0.25], rel=1e-3)


def test_the_best_weights_are_kept_not_the_last(data, tmp_path):
    """The rate grows until training diverges: what is evaluated is the best validation, not the end."""
    run, loaded = start(config(data, tmp_path, steps=40, lr=1e-3, lr_end=3.0, validate_every=4))
    row = fit(run, loaded)
    errors = [error for _, _, error in row["curve"]]
    assert errors[-1] > 2 * min(errors)
    assert row["metrics"]["val"]["mse"] == pytest.approx(min(errors), rel=1e-5)
    last = load_tensors(tmp_path / STATE)[0]
    best, record = load_tensors(tmp_path / WEIGHTS)
    assert record["step"] == row["best_step"] < 40
    assert not all(torch.equal(best[name], last[f"module/{name}"]) for name in best)


def test_patience_ends_a_run_that_gets_worse(data, tmp_path):
    """It stops so many validations after the best, also when stopped in between; without patience it does not."""
    worse = {"steps": 40, "lr": 1e-3, "lr_end": 3.0, "validate_every": 4}
    whole = fit(*start(config(data, tmp_path / "whole", **worse)))
    run, loaded = start(config(data, tmp_path / "patient", patience=2, **worse))
    with pytest.raises(KeyboardInterrupt):
        fit(run, loaded, interrupt_at(3))
    patient = fit(run, loaded)
    assert patient["steps"] == patient["best_step"] + 2 * 4 < whole["steps"] == 40
    assert patient["curve"] == whole["curve"][: len(patient["curve"])]
    assert replace(run.recipe, patience=None).to_json().keys() == run.recipe.to_json().keys() - {"patience"}


def test_non_finite_gradients_end_the_run(data, tmp_path):
    run, loaded = start(config(data, tmp_path, lr=1e30, lr_end=1e30, model="transformer"))
    with pytest.raises(NonFiniteGradientError, match=r"step \d+: the gradient of \S+ is not finite"):
        fit(run, loaded)
    row = read_json(tmp_path / RESULT)
    assert row["status"] == "failed"
    assert row["nonfinite"]
    assert "not finite" in row["error"]
    with pytest.raises(NonFiniteGradientError, match="failed before"):
        fit(run, loaded)


def test_bf16_trains_and_differs(data, tmp_path):
    rows = [fit(*start(config(data, tmp_path / p, precision=p))) for p in ("32", "bf16")]
    assert rows[0]["curve"][-1][1] != rows[1]["curve"][-1][1]
    assert rows[1]["curve"][-1][2] < rows[1]["curve"][0][2] * 1.5


@pytest.mark.parametrize("steps", [3, 200, 999, 5_000, 50_000])
def test_learning_rate_falls_a_hundredfold(steps):
    made = recipe("paper", "C", steps=steps)
    rates = [made.learning_rate(step) for step in range(steps)]
    assert rates[0] == 3e-4
    assert rates == sorted(rates, reverse=True)
    assert 3e-6 <= rates[-1] < (3e-6 * 1.11 if steps >= 50 else 3e-5)
    if steps == 50_000:  # the published schedule: gamma = 0.01^(1 / 50) every 1000 steps
        assert rates[::1000] == pytest.approx([3e-4 * 0.01 ** (k / 50) for k in range(50)])
        assert len(set(rates)) == 50


def test_every_epoch_sees_every_sample_once():
    made = recipe("laptop", "E", batch=6)
    seen = torch.cat([sample_indices(made, 20, step) for step in range(10)])
    assert all(torch.equal(epoch.sort().values, torch.arange(20)) for epoch in seen.split(20))
    assert not torch.equal(seen[:20], seen[20:40])
    assert len(sample_indices(replace(made, batch=64), 20, 0)) == 20


def test_regulariser_pulls_weights_of_points_to_one(data, tmp_path):
    """The penalty is sum over tokens of (|a| - 1)^2, batch mean, times 0.01; E reads no weight and has none."""
    few = spec_of(config(data, tmp_path)).load().split("train").subset(5)
    task = Task.of(few)
    for name, weighted in (("C", True), ("iP", True), ("E", False), ("transformer", False)):
        module = build(task, recipe("laptop", name, blocks=1, mv=4, s=8, heads=2))
        loss, error = Objective(module, task, 0.01)(module, few.batch())
        if not weighted:
            assert loss is error
            continue
        inputs = {field: few.fields[field] for field in task.inputs}
        origin = inputs["position"].mean(1, keepdim=True)
        x, s = module.inputs.embed({**inputs, "mass": inputs["mass"].unsqueeze(-1)}, origin)
        stored = module.net(x.float(), s.float())[0][..., 0, :]
        weights = module.geo.point_weight(stored @ module.geo.basis.leave.float().T)  # on the algebra's blades
        expected = 0.01 * ((weights.abs() - 1) ** 2).sum(1).mean()
        assert (loss - error).item() == pytest.approx(expected.item(), rel=1e-5)


def test_parameters_are_matched(data, tmp_path):
    task = Task.of(spec_of(config(data, tmp_path)).load())
    goal = parameters(build(task, recipe("laptop", "C", blocks=2)))
    for name in ("E", "P", "transformer"):
        before = parameters(build(task, recipe("laptop", name, blocks=2)))
        found = with_parameters(task, recipe("laptop", name, blocks=2), goal)
        after = parameters(build(task, found))
        assert abs(after / goal - 1) < 0.06
        assert abs(after / goal - 1) < abs(before / goal - 1)


def test_paper_sizes():
    """The published Transformer has 11.83 million parameters; the GATrs' counts are within the published rounding."""
    inputs = {"position": "point", "velocity": "vector", "mass": "scalar"}
    task = Task(inputs, {"final": "point"}, 3, "token")
    assert parameters(build(task, recipe("paper", "transformer"))) == pytest.approx(11.83e6, rel=1e-3)


def test_transformer_is_blind_to_order_and_padding():
    task = Task({"x": "point", "q": "scalar"}, {"y": "vector", "z": "scalar"}, 3, "token")
    net = build(task, recipe("laptop", "transformer", s=16, blocks=2)).double()
    x, q = torch.randn(7, 3).double(), torch.randn(7).double()
    packed = net(x=x, q=q, offsets=torch.tensor([0, 3, 7]))
    for sample in (slice(0, 3), slice(3, 7)):
        alone = net(x=x[None, sample], q=q[None, sample])
        assert torch.allclose(packed["y"][sample], alone["y"][0])
        assert torch.allclose(packed["z"][sample], alone["z"][0])
    order = torch.randperm(7)
    turned = net(x=x[None, order], q=q[None, order])["y"]
    assert torch.allclose(turned, net(x=x[None], q=q[None])["y"][:, order])


def test_errors_respect_kinds_and_ragged_samples():
    task = Task({"x": "point"}, {"pose": "motor"}, 3, "sample")
    pose = torch.randn(5, 7)
    pose[:, :4] /= pose[:, :4].norm(dim=1, keepdim=True)
    flipped = torch.cat([-pose[:, :4], pose[:, 4:]], 1)
    assert residuals({"pose": flipped}, {"pose": pose}, task)["pose"].abs().max() < 1e-6
    plane = Task({"x": "point"}, {"turn": "rotation"}, 2, "sample")
    angles = residuals({"turn": torch.tensor([3.1])}, {"turn": torch.tensor([-3.1])}, plane)["turn"]
    assert angles.item() == pytest.approx(6.2 - 2 * np.pi, abs=1e-5)
    errors = sample_errors({"a": torch.tensor([[1.0], [1.0], [4.0]])}, torch.tensor([0, 2, 3]))
    assert errors.tolist() == [1.0, 16.0]
    assert summary(torch.arange(100.0))["trimmed"] == pytest.approx(np.arange(99).mean())


def test_command_line_functions(data, tmp_path):
    """train, train again, evaluate, predict: the same numbers everywhere, in the file's own units."""
    out = tmp_path / "run"
    asked = config(data, out, model="iP")
    row = train(asked)
    assert train(asked) == json.loads(json.dumps(row))
    metrics = evaluate(EvaluateConfig(str(out)))
    assert metrics["eval"]["mse"] == pytest.approx(row["metrics"]["eval"]["mse"], rel=1e-6)
    assert row["equivariance"] < 1e-4
    assert row["max_coefficient"] > 0
    found = np.load(predict(PredictConfig(str(out), data, str(tmp_path / "p.npz"))))["final"]
    held = spec_of(asked).load()
    true = np.load(data)["final"]
    index = held.splits["eval"].numpy()
    assert ((found - true)[index] ** 2).mean() == pytest.approx(metrics["eval"]["mse"], rel=1e-6)


def test_tensorboard_is_optional(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run, loaded = start(config(data, tmp_path))
    with pytest.raises(ValueError, match=r"anygatr\[tensorboard\]"):
        fit(run, loaded, log=["tensorboard"])


def test_tensorboard_holds_what_the_lines_hold(data, tmp_path):
    """Also of a run that was stopped beyond its last state: what is taken back is taken back in both."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run, loaded = start(config(data, tmp_path, steps=30))
    state = run.directory / STATE
    with pytest.raises(KeyboardInterrupt):
        fit(run, loaded, interrupt_at(17), log=["tensorboard"])
    kept = state.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        fit(run, loaded, interrupt_at(27), log=["tensorboard"])
    state.write_bytes(kept)
    fit(run, loaded, log=["tensorboard"])
    lines = [json.loads(line) for line in (run.directory / METRICS).read_text().splitlines()]
    written = {(name, line["step"]): value for line in lines for name, value in line.items() if name != "step"}
    events = accumulator.EventAccumulator(str(run.directory / "tensorboard")).Reload()
    shown = [((name, e.step), e.value) for name in events.Tags()["scalars"] for e in events.Scalars(name)]
    assert len(shown) == len(written)
    assert dict(shown) == pytest.approx(written, rel=1e-6)
    assert {"loss", "error", "norm", "lr", "val_mse"} <= {name for name, _ in written}


@pytest.mark.parametrize(
    "asked",
    [
        TrainConfig(),
        TrainConfig(data="a b.npz", **DRIFT, dim=3, tensorboard=True, normalise=False, unit=0.25, lr=1e-3, origin="none"),
        CompareConfig(models=("E", "C"), sizes=(10, 20), seeds=3, match="params", preliminary=True),
    ],
    ids=["default", "train", "compare"],
)
def test_the_recorded_command_repeats_the_run(asked):
    words = shlex.split(command_line("train", asked))
    assert tyro.cli(type(asked), args=words[2:]) == asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "iPP"}, "did you mean iP"),
        ({"model": "quaternion"}, "known: C, E, L, P, .*iP"),
        ({"size": 1000}, "size=1000 is larger than the 32"),
        ({"heads": 3}, "heads=3"),
        ({"ema": 1.0}, "ema=1.0"),
        ({"steps": 0}, "steps=0"),
        ({"unit": 0.0}, "unit=0.0 must be a positive length"),
        ({"origin": "velocity"}, "velocity"),
    ],
)
def test_bad_settings_are_refused(data, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(config(data, tmp_path / "run", **changes))


def test_another_run_is_refused(data, tmp_path):
    start(config(data, tmp_path / "run"))
    start(config(data, tmp_path / "run"))
    other = drift(tmp_path / "other.npz", seed=5)
    for changes, message in (({"steps": 13}, "steps=12"), ({"data": str(other)}, "another run")):
        with pytest.raises(ValueError, match=message):
            start(config(data, tmp_path / "run", **changes))
    state = tmp_path / "run" / STATE
    state.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="is damaged"):
        fit(*start(config(data, tmp_path / "run")))
