"""The laboratory: data, training, comparison, report and command line. Imports the library; never the reverse.

`train`, `compare`, `choose`, `evaluate` and `predict` do what the commands of those names do, with the same arguments, and
return rows.
"""

import os
from typing import TYPE_CHECKING, Any

# OpenMP reads this when torch loads it: threads that wait for others sleep instead of spinning. On a machine with other work
# a thread that spins takes the core from the one it waits for, and a small step takes a hundred times longer.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["choose", "compare", "evaluate", "predict", "train"]


def train(**arguments: Any) -> dict[str, Any]:
    """Train one model and return the row of its run: errors, costs, curve. Arguments: the fields of `TrainConfig`."""
    from anygatr.lab.config.commands import TrainConfig
    from anygatr.lab.training.train import train as command

    return command(TrainConfig(**_tuples(arguments)))


def compare(**arguments: Any) -> list[dict[str, Any]]:
    """Compare models and return a row per run, failed ones included. Arguments: the fields of `CompareConfig`.

    Runs are processes of their own, which import the script that calls this: guard it by `if __name__ == "__main__"`.
    """
    from pathlib import Path

    from anygatr.lab.comparison.compare import compare as command
    from anygatr.lab.config.commands import CompareConfig
    from anygatr.lab.report.rows import load

    config = CompareConfig(**_tuples(arguments))
    command(config)
    return [row.record for row in load(Path(config.out)).rows]


def predict(run: str, data: str, **arguments: Any) -> "dict[str, Tensor]":
    """Predict for the samples of a file; returns the fields, which are written too. Arguments: those of `PredictConfig`."""
    from anygatr.lab.config.commands import PredictConfig
    from anygatr.lab.training.predict import predict_fields

    return predict_fields(PredictConfig(run, data, **_tuples(arguments)))[1]


def choose(**arguments: Any) -> dict[str, Any]:
    """Choose a model within a time and return the row of the winner. Arguments: the fields of `ChooseConfig`."""
    from anygatr.lab.comparison.choose import choose as command
    from anygatr.lab.config.commands import ChooseConfig

    return command(ChooseConfig(**_tuples(arguments)))


def evaluate(run: str, **arguments: Any) -> dict[str, dict[str, float]]:
    """The errors of a run on every split, by split and name. Arguments: those of `EvaluateConfig`."""
    from anygatr.lab.config.commands import EvaluateConfig
    from anygatr.lab.training.evaluate import evaluate as command

    return command(EvaluateConfig(run, **_tuples(arguments)))


def _tuples(arguments: dict[str, Any]) -> dict[str, Any]:
    """Lists as the tuples that configurations hold."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
