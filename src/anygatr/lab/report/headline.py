"""The headline: which algebra, the sentences that carry the answer, and what to know before believing it."""

from dataclasses import dataclass

from anygatr.lab.report.mirrors import mirror_caveats
from anygatr.lab.report.palette import Look, is_algebra, looks
from anygatr.lab.report.ranking import best_algebra, by_error
from anygatr.lab.report.rows import ComparisonResults
from anygatr.lab.report.spread import ENOUGH, Spread, ratio
from anygatr.lab.report.unseen import unseen_caveats
from anygatr.lab.report.wording import count, listing, measured, number, times

BARELY = 1.1  # a smaller factor below the error without learning is not worth a number
BARGAIN = 5.0  # nobody trades more error than this for time


@dataclass(frozen=True)
class Headline:
    """The answer in a word or two, the sentences that carry it, and the models it names."""

    answer: str
    sentences: tuple[str, ...]
    winners: tuple[str, ...] = ()


def headline(experiment: ComparisonResults) -> Headline:
    """Which algebra to choose, going by the evaluation error at the reference size."""
    ranked = by_error(experiment)
    algebras = [(model, error) for model, error in ranked if is_algebra(model)]
    names, n = looks(experiment.models), experiment.reference
    if not ranked:
        return Headline("No answer yet", ("No run has finished.",))
    if not algebras:
        sentence = f"{names[ranked[0][0]].label} has the lowest error of the models compared."
        return Headline("No algebra took part", (sentence,))
    best, error = algebras[0]
    if experiment.trivial is not None and error.mean >= experiment.trivial:
        sentence = (
            f"The best of them, {names[best].label}, reaches {measured(error)} with {n:,} samples; predicting without "
            f"learning gives {number(experiment.trivial)}. Train longer or bring more samples."
        )
        return Headline("None yet", (sentence,))
    winners = (best, *_ties(algebras))
    sentences = [_lowest(experiment, names, algebras), *_rivals(names, algebras, winners), *_outsiders(names, ranked, error)]
    sentences += _cheaper(experiment, names, winners, dict(algebras))
    return Headline(listing(winners, "or"), tuple(sentences), winners)


def caveats(experiment: ComparisonResults) -> list[str]:
    """What a reader should know before believing the headline."""
    found = []
    if experiment.asked.get("preliminary"):
        found.append("Preliminary: a short run on small data, meant to show the way, not to settle the question.")
    if experiment.seeds == 1:
        found.append("One seed: nothing here says how much of a difference is chance. Add seeds before deciding.")
    elif experiment.seeds and experiment.seeds < ENOUGH:
        text = f"{count(experiment.seeds, 'seed')}: means are geometric, (a–b) is their range"
        found.append(f"{text}; too few for an interval.")
    elif experiment.seeds:
        text = f"{count(experiment.seeds, 'seed')}: means are geometric, (a–b) is their range, × [a, b] a 95 % interval"
        found.append(text + (", wide with so few." if experiment.seeds < 4 else "."))
    found += [*_blind(experiment), *unseen_caveats(experiment), *mirror_caveats(experiment)]
    budget = {"steps": "training steps", "time": "training time", "params": "numbers of parameters"}
    match = experiment.asked.get("match")
    if match in budget and experiment.finished:
        found.append(f"Budgets are matched by equal {budget[match]}; another match can change the order.")
    if experiment.failed:
        runs = listing([f"{row.model} ({row.size:,} samples, seed {row.seed})" for row in experiment.failed[:6]])
        more = f" and {len(experiment.failed) - 6} more" if len(experiment.failed) > 6 else ""
        found.append(f"{count(len(experiment.failed), 'run')} failed, in no mean: {runs}{more}.")
    if experiment.pending:
        found.append(f"{count(experiment.pending, 'run')} of those asked for have not finished yet.")
    return found + [f"{problem.rstrip('.')}." for problem in experiment.problems]


def _blind(experiment: ComparisonResults) -> list[str]:
    names = looks(experiment.models)
    blind = [names[model].label for model in experiment.models if experiment.is_blind(model)]
    if not blind:
        return []
    verb = "is" if len(blind) == 1 else "are"
    return [f"{listing(blind)} {verb} blind here, predicting the same whatever the inputs: not ranked."]


def _lowest(experiment: ComparisonResults, names: dict[str, Look], algebras: list[tuple[str, Spread]]) -> str:
    best, error = algebras[0]
    of = f" over {count(len(error), 'seed')}" if len(error) > 1 else ", one seed"
    text = f"{names[best].label} has the lowest error of the algebras with {experiment.reference:,} training samples: "
    text += measured(error) + of
    if not experiment.trivial:
        return f"{text}."
    gain = experiment.trivial / error.mean
    return f"{text}, {f'{number(gain, 2)}× below' if gain >= BARELY else 'barely below'} no learning."


def _ties(algebras: list[tuple[str, Spread]]) -> list[str]:
    """Algebras that the seeds do not tell from the best; with one seed there is no noise to invoke."""
    best = algebras[0][1]
    against = {model: ratio(error, best) for model, error in algebras[1:]}
    return [model for model, r in against.items() if r.low is not None and not r.is_clear]


def _rivals(names: dict[str, Look], algebras: list[tuple[str, Spread]], winners: tuple[str, ...]) -> list[str]:
    sentences, best = [], algebras[0][1]
    tied = [(names[model].label, ratio(error, best)) for model, error in algebras[1:] if model in winners]
    sentences += [f"{label} has {times(r)} that error: within the noise of the seeds." for label, r in tied]
    behind = [(model, error) for model, error in algebras[1:] if model not in winners]
    if behind:
        rest = [f"{names[model].label} with {times(ratio(error, best))}" for model, error in behind]
        sentences.append(f"Behind: {listing(rest)} that error.")
    return sentences


def _outsiders(names: dict[str, Look], ranked: list[tuple[str, Spread]], best: Spread) -> list[str]:
    """Baselines that do better than the best algebra: said as plainly as the rest."""
    against = [(names[model].label, ratio(best, error)) for model, error in ranked if not is_algebra(model)]
    return [f"{label}, which is no algebra, is lower still by {times(r)}." for label, r in against if r.value > 1]


def _cheaper(
    experiment: ComparisonResults, names: dict[str, Look], winners: tuple[str, ...], errors: dict[str, Spread]
) -> list[str]:
    pace = {model: experiment.measure(model, "milliseconds_per_step") for model in errors}
    known = {model: values for model, values in pace.items() if values}
    if len(known) < 2 or winners[0] not in known:
        return []
    fastest = best_algebra(known)
    label, quick = names[fastest].label, number(ratio(known[winners[0]], known[fastest]).value, 2)
    if fastest == winners[0]:
        return [f"{label} is also the fastest of the algebras per step."]
    if fastest in winners:
        return [f"Of these, {label} is the fastest: {quick}× less time per step than {names[winners[0]].label}."]
    price = ratio(errors[fastest], errors[winners[0]]).value
    if price > BARGAIN:
        return []
    return [f"If time matters most: {label} takes {quick}× less per step at {number(price, 2)}× the error."]
