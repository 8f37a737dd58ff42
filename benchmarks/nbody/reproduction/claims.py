"""What the paper claims about n-body modelling, and what our rows say: agree, disagree or not yet decided, never by hand.

A comparison divides what two runs with the same training samples and the same seed measured, and takes the geometric mean of
these factors with its 95 % interval. A claim needs at least three factors in each of its comparisons to be decided.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, log

from anygatr.lab.report.palette import looks
from anygatr.lab.report.rows import ComparisonResults, ResultRow
from anygatr.lab.report.spread import Ratio, interval, spread
from anygatr.lab.report.wording import count, times

Rows = tuple[ResultRow, ...]
Read = Callable[[ResultRow], float | None]

ENOUGH = 3
"""Factors below which nothing is decided."""
SAME = 1.25
"""Errors within this factor of each other count as the same."""
MATCH = 1.1
"""An error up to this many times another still matches it."""
PAST = 1_000_000
"""Quotients beyond which it makes no sense to count those that an interval would need."""
BASELINES = ("transformer", "se3_transformer", "segnn")


@dataclass(frozen=True)
class Budget:
    """An experiment in which errors were measured against training samples."""

    experiment: str
    few: tuple[int, ...]
    """Training samples at which data are scarce."""
    many: tuple[int, ...]
    """Training samples at which they suffice."""
    falls: tuple[tuple[int, int], ...]
    """Few samples and many more, between which the error of a model falls if data limit it."""


SHORT = Budget("figure", (100, 300, 1000), (3000, 10000), ((100, 3000), (300, 10000)))
DECIDED = Budget("decided", (100, 1000), (10000,), ((100, 1000), (1000, 10000)))


@dataclass(frozen=True)
class Comparison:
    """How many times larger one thing is than another, and the range in which the claim wants that factor."""

    label: str
    factor: Ratio | None
    count: int
    low: float = 1.0
    high: float = float("inf")
    failed: int = 0
    """Runs of the first thing that did not end with a finite error."""
    models: tuple[tuple[str, int], ...] = ()
    """Those whose runs make a factor, and how many runs each of them has."""

    @property
    def verdict(self) -> str:
        """agree if the whole interval lies in the range, disagree if it lies outside, else not yet decided.

        Where every run failed, the factor is infinite.
        """
        if self.factor is None and self.failed >= ENOUGH:
            return "agree" if self.high == float("inf") else "disagree"
        if self.factor is None:
            return "not yet decided" if self.failed else "not run yet"
        low, high = self.factor.low, self.factor.high
        if self.count < ENOUGH or low is None or high is None:
            return "not yet decided"
        if self.low <= low and high <= self.high:
            return "agree"
        return "disagree" if high < self.low or low > self.high else "not yet decided"

    @property
    def more(self) -> int:
        """Factors that would decide it: up to the least number, then as many as make the interval narrow enough."""
        if self.verdict in ("agree", "disagree"):
            return 0
        if self.count < ENOUGH or self.factor is None or self.factor.low is None or self.factor.high is None:
            return max(ENOUGH - self.count, 1)
        half = log(self.factor.high / self.factor.low) / 2
        limits = [limit for limit in (self.low, self.high) if 0 < limit < float("inf")]
        nearest = min(abs(log(self.factor.value / limit)) for limit in limits)
        return min(max(1, ceil(self.count * (half / max(nearest, 1e-9)) ** 2) - self.count), PAST)

    @property
    def runs(self) -> dict[str, int]:
        """Runs of each model that are missing for that."""
        if self.count >= ENOUGH or not self.more:
            return {model: self.more for model, _ in self.models}
        missing = {model: max(0, ENOUGH - present) for model, present in self.models}
        return missing if any(missing.values()) else dict.fromkeys(missing, self.more)

    def __str__(self) -> str:
        failed = f"{count(self.failed, 'run')} failed" if self.failed else ""
        found = times(self.factor) if self.factor else "" if self.failed else "no rows"
        return f"{self.label}: {', '.join(part for part in (found, failed) if part)}"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper with what was measured for it."""

    says: str
    experiment: str
    comparisons: tuple[Comparison, ...]
    only_if: tuple[Comparison, ...] = ()
    """What must hold for the comparisons to say anything about the claim."""

    @property
    def verdict(self) -> str:
        """agree if all comparisons do, disagree if any does; not yet decided if they say nothing."""
        found = [comparison.verdict for comparison in self.comparisons]
        if any(comparison.verdict != "agree" for comparison in self.only_if):
            found = [verdict if verdict == "not run yet" else "not yet decided" for verdict in found]
        for verdict in ("disagree", "not run yet", "not yet decided"):
            if verdict in found:
                return verdict
        return "agree"

    @property
    def runs(self) -> dict[str, int]:
        """Runs of each model that would decide what is open; none where what stands in the way is a measured fact."""
        settled = any(comparison.verdict == "disagree" for comparison in self.only_if)
        if self.verdict not in ("not yet decided", "not run yet") or settled:
            return {}
        missing: dict[str, int] = {}
        for comparison in (*self.comparisons, *self.only_if):
            for model, number in comparison.runs.items():
                missing[model] = max(missing.get(model, 0), number)
        return {model: number for model, number in missing.items() if number}


def mse(row: ResultRow) -> float | None:
    """The mean squared error on the evaluation set."""
    return row.metric("eval")


def compare(
    worse: Iterable[ResultRow],
    better: Iterable[ResultRow],
    label: str,
    read: Read = mse,
    models: tuple[str, ...] = (),
    **wanted: float,
) -> Comparison:
    """Rows against rows with the same size and seed."""
    worse, better = tuple(worse), tuple(better)
    names = models or tuple(dict.fromkeys(row.model for row in (*worse, *better)))
    reference = {(row.size, row.seed): read(row) for row in better if row.is_ok}
    pairs = [(read(row), reference.get((row.size, row.seed))) for row in worse if row.is_ok]
    found = spread(a / b for a, b in pairs if a is not None and b)
    failed = sum(not row.is_ok for row in worse)
    factor, factors = (interval(found), len(found)) if found else (None, 0)
    return Comparison(label, factor, factors, failed=failed, models=_present(names, (*worse, *better)), **wanted)


def _present(models: Iterable[str], rows: Iterable[ResultRow]) -> tuple[tuple[str, int], ...]:
    """How many runs each model has."""
    found = [row.model for row in rows]
    return tuple((model, found.count(model)) for model in models)


def of(rows: Rows, model: str, sizes: Sequence[int] = ()) -> Rows:
    """The rows of a model, at some sizes or all."""
    return tuple(row for row in rows if row.model == model and (not sizes or row.size in sizes))


def name(model: str) -> str:
    """What a model is called: its label, then its overrides."""
    base, *overrides = model.split(",")
    return " ".join([looks([base])[base].label, *overrides])


def claims(found: dict[str, Rows], worst: float = float("inf")) -> list[Claim]:
    """Every claim, judged by the rows of the experiments by name; in bfloat16 no error counts as more than `worst`.

    Errors are judged by the models that were trained until they were done, where there are rows of them.
    """
    decided = found.get(DECIDED.experiment, ())
    figure = _figure(decided, DECIDED) if decided else _figure(found["figure"], SHORT)
    return [*figure, *_costs(found["short"]), *_ablations(found, worst)]


def _figure(rows: Rows, budget: Budget) -> list[Claim]:
    def against(
        worse: Iterable[str], better: Iterable[str], sizes: Sequence[int] = (), **more: object
    ) -> tuple[Comparison, ...]:
        return tuple(
            compare(
                of(rows, w, sizes),
                of(rows, b, sizes),
                f"{name(w)} over {name(b)}",
                models=(w, b),
                **more,  # type: ignore[arg-type]
            )
            for w in worse
            for b in better
        )

    def learns_from_data(models: Iterable[str]) -> tuple[Comparison, ...]:
        said = "with few samples over ten times as many and more"
        return tuple(_fall(of(rows, m), f"{name(m)} {said}", m, budget) for m in models)

    best, few, named = ("iP", "C"), budget.few, budget.experiment
    return [
        Claim(
            "iP- and C-GATr are more sample efficient than E-GATr",
            named,
            against("E", best, few),
            learns_from_data("E"),
        ),
        Claim("... and than all baselines", named, against(BASELINES, best, few), learns_from_data(BASELINES)),
        Claim(
            "With enough data E-, iP- and C-GATr match or outperform SE(3)-Transformer, SEGNN and Transformer",
            named,
            against(BASELINES, ("E", *best), budget.many, low=1 / MATCH),
        ),
        Claim("P-GATr does not perform well: behind iP- and C-GATr", named, against("P", best)),
        Claim("... and behind E-GATr", named, against("P", "E")),
        Claim("E-GATr overfits faster (evaluation over training error)", named, against("E", best, few, read=_gap)),
    ]


def _costs(rows: Rows) -> list[Claim]:
    """Judged by the short runs: none of them was interrupted."""

    def least(what: str, key: str) -> Claim:
        others = (compare(of(rows, m), of(rows, "E"), f"{name(m)} over {name('E')}", _value(key)) for m in ("P", "iP", "C"))
        return Claim(f"E-GATr takes the least {what} (of a step)", "short", tuple(others))

    return [least("time", "milliseconds_per_step"), least("memory", "training_memory_mb")]


def _ablations(found: dict[str, Rows], worst: float) -> list[Claim]:
    rows, bf16 = found["variants"], found["bf16"]

    def against(worse: str, better: str, read: Read = mse, **wanted: float) -> Comparison:
        return compare(of(rows, worse), of(rows, better), f"{name(worse)} over {name(better)}", read, **wanted)

    def rounded(model: str, **wanted: float) -> Comparison:
        label = f"{name(model)} in bfloat16 over float32"
        return compare(of(bf16, model), of(rows, model), label, lambda row: min(mse(row) or 0.0, worst) or None, **wanted)

    return [
        Claim(
            "P- and iP-GATr start best with all maps at random",
            "variants",
            (against("P,init=identity", "P"), against("iP,init=identity", "iP")),
        ),
        Claim("C-GATr starts best at the identity", "variants", (against("C,init=kaiming", "C"),)),
        Claim(
            f"For E-GATr the initialisation makes no difference (within {SAME}×)",
            "variants",
            (against("E,init=identity", "E", low=1 / SAME, high=SAME),),
        ),
        Claim(
            "C-GATr needs the norm with absolute values per grade",
            "variants",
            (against("C,norm=inner", "C"), against("C,norm=abs", "C")),
        ),
        Claim(
            "With one absolute value and eps = 1, C-GATr reaches poor training losses",
            "variants",
            (against("C,norm=abs,norm_eps=1", "C", lambda row: row.metric("train")),),
        ),
        Claim("The join and distances in attention repair P-GATr", "variants", (against("P", "iP"),)),
        Claim(
            f"E-, P- and iP-GATr train well in bfloat16 (within {SAME}×)",
            "bf16",
            tuple(rounded(model, low=0.0, high=SAME) for model in ("E", "P", "iP")),
        ),
        Claim("C-GATr needs float32", "bf16", (rounded("C"),)),
    ]


def _fall(rows: Rows, label: str, model: str, budget: Budget) -> Comparison:
    """By what factor the error falls from few to many samples, seed by seed."""
    errors = {(row.size, row.seed): mse(row) for row in rows if row.is_ok}
    pairs = [((few, seed), (many, seed)) for few, many in budget.falls for seed in sorted({s for _, s in errors})]
    both = ((errors.get(few), errors.get(many)) for few, many in pairs)
    found = spread(a / b for a, b in both if a is not None and b)
    factor, factors = (interval(found), len(found)) if found else (None, 0)
    return Comparison(label, factor, factors, low=MATCH, models=((model, factors),))


def _gap(row: ResultRow) -> float | None:
    """The 99 %-trimmed errors: of a few hundred training samples, one close encounter decides the mean."""
    own, new = row.metric("train", "trimmed"), row.metric("eval", "trimmed")
    return new / own if own and new is not None else None


def _value(key: str) -> Read:
    return lambda row: row.value(key)


def rows_of(experiment: ComparisonResults | None) -> Rows:
    """All rows of an experiment that may not have been started."""
    return () if experiment is None else experiment.rows
