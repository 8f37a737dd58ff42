"""Where people look at metrics: TensorBoard, MLflow and Weights & Biases, all fed with the lines of metrics.jsonl."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol


class MetricsLogger(Protocol):
    """Told about every line of metrics.jsonl. A new one is a class with these two methods and a line in `LOGGERS`."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """After `step` steps these were the values."""

    def close(self) -> None:
        """Nothing more comes."""


class TensorBoardLogger(MetricsLogger):
    """Event files in `tensorboard/`; those beyond the step at which a run is resumed are hidden."""

    def __init__(self, directory: Path, step: int):
        from torch.utils.tensorboard import SummaryWriter

        self.events = SummaryWriter(str(directory / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar per value."""
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self.events.close()


class MLflowLogger(MetricsLogger):
    """A run of MLflow: at MLFLOW_TRACKING_URI if it is set, else as files in `mlflow/` of the run's directory.

    A resumed run continues the one whose number is in `mlflow-run.txt`.
    """

    def __init__(self, directory: Path, step: int):
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI") or (directory / "mlflow").resolve().as_uri()
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # files need neither server nor database; MLflow asks first
        self.client = MlflowClient(tracking_uri=uri)
        number = directory / "mlflow-run.txt"
        if number.exists():
            self.run = number.read_text().strip()
            return
        experiment = self.client.get_experiment_by_name(PROJECT)
        key = experiment.experiment_id if experiment is not None else self.client.create_experiment(PROJECT)
        self.run = self.client.create_run(key, run_name=directory.name).info.run_id
        number.write_text(self.run)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One metric per value."""
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=step)

    def close(self) -> None:
        """The run is over."""
        self.client.set_terminated(self.run)


class WandbLogger(MetricsLogger):
    """A run of Weights & Biases, offline in the run's directory unless WANDB_MODE says otherwise; `wandb sync` sends it."""

    def __init__(self, directory: Path, step: int):
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        settings = wandb.Settings(silent=True, console="off", disable_git=True)
        options = {"project": PROJECT, "name": directory.name, "dir": str(directory), "mode": mode}
        self.run = wandb.init(**options, settings=settings)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """All values of a step at once."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """Write what is left."""
        self.run.finish()


PROJECT = "anygatr"
"""The experiment or project in which runs appear."""
LOGGERS: dict[str, Callable[[Path, int], MetricsLogger]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}


def open_loggers(names: Iterable[str], directory: Path, step: int) -> list[MetricsLogger]:
    """The loggers of these names for a run that is at a step."""
    opened = []
    for name in dict.fromkeys(names):
        if name not in LOGGERS:
            raise ValueError(f"log={name!r} is unknown; choose from {', '.join(LOGGERS)}")
        try:
            opened.append(LOGGERS[name](directory, step))
        except ImportError as missing:
            raise ValueError(
                f"log={name!r} needs the package {missing.name or name}; pip install 'anygatr[{name}]', or leave it out"
            ) from None
    return opened
