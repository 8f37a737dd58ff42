"""The n-body experiments of docs/reproduction.md by name: data, settings, models, and where their rows are."""

from dataclasses import dataclass

from anygatr.lab.config.recipe import BASELINES

FIGURE_DATA = "anygatr data nbody --out data/nbody-figure --train 10000 --val 500 --eval 1000 --generalization 500"


@dataclass(frozen=True)
class Experiment:
    """Data and the settings of `anygatr compare` that decide every run; its rows are under `out`."""

    data: str
    settings: str
    models: tuple[str, ...]
    sizes: tuple[int, ...]
    seeds: int
    out: str

    @property
    def runs(self) -> int:
        """How many rows it has when it is complete."""
        return len(self.models) * len(self.sizes) * self.seeds

    @property
    def command(self) -> str:
        """The whole of it, as one would type it."""
        return self.part(self.models, self.seeds)

    def part(self, models: tuple[str, ...], seeds: int) -> str:
        """Some of its models and seeds."""
        sizes = " ".join(map(str, self.sizes))
        return (
            f"anygatr compare {self.settings} --models {' '.join(models)} --sizes {sizes} --seeds {seeds} --out {self.out}"
        )


FIGURE = "--data data/nbody-figure --preset figure"
SHORT = f"{FIGURE} --steps 800 --validate-every 100"
UNIT = 0.25
"""The length that is 1 in the figure, near the median distance of nearest neighbours, 0.33; of a scan from 1 to 1/16."""


def _ablation(change: str, name: str) -> Experiment:
    """The four variants with one setting changed for all."""
    settings = f"{SHORT} --unit {UNIT} {change}"
    return Experiment(FIGURE_DATA, settings, ("E", "P", "iP", "C"), (1000,), 3, f"results/ablations/{name}")


EXPERIMENTS = {
    "figure": Experiment(
        FIGURE_DATA,
        f"{FIGURE} --unit {UNIT}",
        ("E", "P", "iP", "C", "transformer", "se3_transformer", "segnn"),
        (100, 300, 1000, 3000, 10000),
        2,
        "results/nbody",
    ),
    "short": Experiment(
        FIGURE_DATA,
        f"{SHORT} --unit {UNIT}",
        ("E", "P", "iP", "C", "transformer"),
        (100, 300, 1000, 3000, 10000),
        2,
        "results/nbody-short",
    ),
    "variants": Experiment(
        FIGURE_DATA,
        f"{SHORT} --unit {UNIT}",
        (
            *("E", "P", "iP", "C", "E,init=identity", "P,init=identity", "iP,init=identity", "C,init=kaiming"),
            *("C,norm=inner", "C,norm=abs", "C,norm_eps=1", "C,norm=inner,norm_eps=1", "C,norm=abs,norm_eps=1"),
            *("P,products=iP", "P,features=iP"),
        ),
        (1000,),
        3,
        "results/ablations/variants",
    ),
    "bf16": _ablation("--precision bf16", "bf16"),
    "origin-none": _ablation("--origin none", "origin-none"),
    "own-unit": Experiment(FIGURE_DATA, SHORT, ("E", "P", "iP", "C"), (100, 300, 1000), 1, "results/ablations/own-unit"),
}

QUICK = ("iP", "C", "E", "segnn", "se3_transformer", "transformer", "transformer,norm=sample")
"""Models of the quick regression of official GATr's README; its data are the released generator's, seed 42."""
GATR_SIZE = "--blocks 10 --mv 16 --s 128 --heads 8 "


def quick_commands(model: str) -> tuple[str, str]:
    """A run of the quick regression and its row; baselines have the sizes of their publications."""
    size, run = "" if model.split(",")[0] in BASELINES["paper"] else GATR_SIZE, f"runs/quick/{model}"
    train = f"anygatr train --data data/nbody-quick --preset paper --model {model} {size}--steps 5000 --out {run}"
    return train, f"anygatr evaluate {run} --out results/quick/{model}.json"
