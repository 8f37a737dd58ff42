"""What data say about themselves in seconds: size, copies, mirrors, sums, distance from the origin, what to beat."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from anygatr.lab.config.recipe import Recipe, recipe
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.mirrors import moved_field, space_of
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.task import Task
from anygatr.lab.data.token_counts import extensive_targets
from anygatr.lab.training.blindness import blind_to, unable
from anygatr.lab.training.metrics import baseline_metrics, target_weights
from anygatr.lab.training.mirrors import mirror_bound
from anygatr.lab.training.models import build
from anygatr.lab.training.objective import Objective, errors_of
from anygatr.lab.training.rehearsal import optimiser_of, step_seconds
from anygatr.lab.training.train import sample_indices
from anygatr.lab.training.units import RunUnits

FEW = 100
FAR = 100.0
"""Times its extent that a sample lies from 0, from which on float32 loses digits that matter."""
MOST = 256
"""Samples that a small network learns from, at most."""
SECONDS = 3.0
"""For which a small network is trained, about."""
LEAST_STEPS = 60
HANDED = 3.0
"""Times larger that an error on mirrored samples has to be to be a sign."""
ROUNDING = 1e-12
"""Share of the variance of a target below which a bound is rounding."""
MATTERS = 0.01
"""Share of the error without learning that a bound has to have to be said."""


@dataclass(frozen=True)
class Remark:
    """One thing that data say, and what to do about it."""

    about: str
    said: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.about}: {self.said}" + (f"; {self.remedy}" if self.remedy else "")


def probe(spec: DataSpec, data: Dataset, models: tuple[str, ...]) -> list[Remark]:
    """All that can be found out in some ten seconds, the plainest first."""
    train = data.split("train")
    plain = [*_size(data, train), *_copies(train), *_sums(train), *_far(train)]
    return [*plain, *_sight(spec, data, models), *_mirrors(spec, data)]


def _size(data: Dataset, train: Dataset) -> Iterator[Remark]:
    counts = data.counts
    tokens = f"{int(counts.min())}" + (f" to {int(counts.max())}" if counts.min() != counts.max() else "")
    remedy = f"errors will be uncertain below {FEW}: bring more samples" if len(train) < FEW else ""
    yield Remark("size", f"{len(data)} samples, {len(train)} to learn from, of {tokens} tokens", remedy)
    part = "eval" if "eval" in data.splits else "val"
    found = baseline_metrics(train, {part: data.split(part)}, target_weights(train))[part]
    best = min(found, key=lambda name: found[name]["mse"])
    numbers = ", ".join(f"{name} {values['mse']:.3g}" for name, values in found.items())
    yield Remark("to beat", f"mean squared errors without training: {numbers}", f"'{best}' is the one that counts")


def _copies(train: Dataset) -> Iterator[Remark]:
    seen = set()
    for i in range(len(train)):
        one = train.select(torch.tensor([i])).batch()
        seen.add(tuple((name, x.numpy().tobytes()) for name, x in sorted(one.items()) if name != "offsets"))
    if copies := len(train) - len(seen):
        yield Remark("copies", f"{copies} training samples repeat another one", "remove them before splitting")


def _sums(train: Dataset) -> Iterator[Remark]:
    for name, share in extensive_targets(train).items():
        yield Remark(name, f"grows with the number of tokens, which explains {share:.0%} of it", "use --pool sum")


def _far(train: Dataset) -> Iterator[Remark]:
    packed = train.packed()
    for name, kind in train.input_kinds.items():
        if kind != "point":
            continue
        x = packed.fields[name].double()
        sample = torch.arange(len(packed)).repeat_interleave(packed.counts)
        centre = x.new_zeros(len(packed), x.shape[-1]).index_add(0, sample, x) / packed.counts.unsqueeze(-1)
        away, extent = float(centre.square().mean().sqrt()), float((x - centre[sample]).square().mean().sqrt())
        if extent > 0 and away > FAR * extent:
            said = f"samples lie {away / extent:.3g} times their extent away from 0"
            yield Remark(name, said, "give coordinates in float64 and keep the origin 'mean'")


def _sight(spec: DataSpec, data: Dataset, models: tuple[str, ...]) -> Iterator[Remark]:
    task, origin = Task.of(data), spec.origin(None)
    recipes = [recipe("laptop", model, origin=origin) for model in models]
    hopeless = unable(recipes, task)
    for model, reason in hopeless.items():
        yield Remark(model, reason.split(";")[0])
    for made in (made for made in recipes if made.model not in hopeless):
        if blind := blind_to(made, task):
            yield Remark(made.model, f"cannot see {', '.join(blind)}", "choose another model, or leave it out")


def _mirrors(spec: DataSpec, data: Dataset) -> Iterator[Remark]:
    """The exact bound where samples are their own mirror images; elsewhere a small network on mirrored samples."""
    train, part = data.split("train"), data.split("eval" if "eval" in data.splits else "val")
    weights = target_weights(train)
    bound = mirror_bound(part, weights)
    found = baseline_metrics(train, {"it": part}, weights)["it"]
    trivial = min(found[name]["mse"] for name in ("mean", "stay") if name in found)
    if bound is not None and bound["mse"] > max(MATTERS * trivial, ROUNDING * found["mean"]["mse"]):
        said = f"the target changes under them: the best mirror-symmetric prediction has error {bound['mse']:.3g} or more"
        yield Remark("mirrors", said, "use models without mirrors, as in --model E,mirrors=false")
    elif bound is None or bound["share"] < 0.5:
        yield from _handed(spec, data, trivial)


def _handed(spec: DataSpec, data: Dataset, trivial: float) -> Iterator[Remark]:
    """A small network without mirrors on mirrored samples: where the law has no hand, its error is the same there.

    That networks without mirrors learn faster says nothing: they have more maps, and do so on data of either sort.
    """
    geo, task = space_of(data), Task.of(data)
    pool = "sum" if extensive_targets(data.split("train")) else "mean"
    small = {"origin": spec.origin(None), "mv": 4, "s": 16, "batch": 32, "pool": pool}
    made = recipe("laptop", "E,mirrors=false", **small)
    if geo is None or unable([made], task):
        return
    val = data.split("val")
    matrix = torch.diag(torch.tensor([*[1.0] * (data.dim - 1), -1.0], dtype=torch.float64))
    images = {n: moved_field(geo, kind, val.fields[n], matrix, matrix.new_zeros(data.dim)) for n, kind in val.kinds.items()}
    steps = max(LEAST_STEPS, int(SECONDS / step_seconds(made, data.split("train"))))
    error, mirrored = _quick_errors(spec, data, made, steps, (val, replace(val, fields=images)))
    if error < trivial and mirrored > HANDED * error:
        said = f"a small network without them has {mirrored / error:.2g} times its error on mirrored samples: the target "
        said += "changes under mirrors, or all samples have one hand"
        yield Remark("mirrors", said, "compare E with E,mirrors=false")


def _quick_errors(spec: DataSpec, data: Dataset, made: Recipe, steps: int, parts: tuple[Dataset, ...]) -> list[float]:
    """The errors on some data after a few steps on a few samples."""
    train = data.split("train")
    train = train.subset(min(MOST, len(train)))
    units, task = RunUnits.fit(spec, train, made), Task.of(train)
    ready = units.normalised(train)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build(task, made)
        optimiser, objective = optimiser_of(module, made), Objective(module, task, made.regulariser, units.errors)
        for step in range(steps):
            objective(module, ready.select(sample_indices(made, len(ready), step)).batch())[0].backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), made.clip)
            optimiser.step()
            optimiser.zero_grad()
    module.eval()
    found = [errors_of(module, units.normalised(part).batches(made.batch), task, units.errors)[1] for part in parts]
    return [float(errors.mean()) for errors in found]
