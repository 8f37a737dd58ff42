"""The command line: one dataclass per command, one function behind it, imported only when it runs."""

import os
import sys
from importlib import import_module
from typing import Any

import tyro

from anygatr.lab.config import commands, mathematics
from anygatr.lab.config.report import ReportConfig
from anygatr.lab.data.config import DataConfig, InspectConfig
from anygatr.lab.system.problems import explained, is_memory
from anygatr.lab.system.terminal import plain_warnings, printable

# command -> its configuration and where its function lives
COMMANDS: dict[str, tuple[type, str]] = {
    "algebra": (mathematics.AlgebraConfig, "anygatr.lab.mathematics:show_algebra"),
    "maps": (mathematics.MapsConfig, "anygatr.lab.mathematics:show_maps"),
    "expressivity": (mathematics.ExpressivityConfig, "anygatr.lab.mathematics:show_expressivity"),
    "data": (DataConfig, "anygatr.lab.data.make:make_data"),
    "inspect": (InspectConfig, "anygatr.lab.data.make:inspect_data"),
    "advise": (commands.AdviseConfig, "anygatr.lab.comparison.advise:advise"),
    "train": (commands.TrainConfig, "anygatr.lab.training.train:train"),
    "evaluate": (commands.EvaluateConfig, "anygatr.lab.training.evaluate:evaluate"),
    "certify": (commands.CertifyConfig, "anygatr.lab.training.certificate:certify_run"),
    "predict": (commands.PredictConfig, "anygatr.lab.training.predict:predict"),
    "compare": (commands.CompareConfig, "anygatr.lab.comparison.compare:compare"),
    "choose": (commands.ChooseConfig, "anygatr.lab.comparison.choose:choose"),
    "report": (ReportConfig, "anygatr.lab.report.summary:show_report"),
    "demo": (commands.DemoConfig, "anygatr.lab.comparison.demo:demo"),
}
PROBLEMS = (ValueError, OSError, ArithmeticError, ImportError, MemoryError)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command, run it, and turn bad input and the system's errors into one line instead of a traceback."""
    try:
        with plain_warnings():
            _run(arguments)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or flushing at the end would fail once more
        sys.exit(1)
    except PROBLEMS as problem:
        sys.exit(f"anygatr: {printable(explained(problem))}")
    except RuntimeError as problem:
        if not is_memory(problem):
            raise
        sys.exit(f"anygatr: {printable(explained(MemoryError(str(problem).splitlines()[0])))}")
    except KeyboardInterrupt:
        sys.exit(130)


def _run(arguments: list[str] | None) -> None:
    chosen: Any = tyro.extras.subcommand_cli_from_dict(
        {name: settings for name, (settings, _) in COMMANDS.items()},
        prog="anygatr",
        description="Equivariant transformers from any geometric algebra: solve for the maps, build, train, compare.",
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    homes = dict(COMMANDS.values())
    module, function = homes[type(chosen)].split(":")
    if chosen.threads is not None:
        import_module("anygatr.lab.training.threads").set_threads(chosen.threads)
    getattr(import_module(module), function)(chosen)
