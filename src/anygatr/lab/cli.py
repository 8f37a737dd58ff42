"""The command line: one dataclass per command, one function behind it, imported only when it runs."""

import sys
from importlib import import_module
from typing import Any

import tyro

from anygatr.lab.config import commands, mathematics
from anygatr.lab.config.report import ReportConfig
from anygatr.lab.data.config import DataConfig, InspectConfig

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
    "report": (ReportConfig, "anygatr.lab.report.summary:show_report"),
    "demo": (commands.DemoConfig, "anygatr.lab.comparison.demo:demo"),
}
PROBLEMS = (ValueError, FileNotFoundError, FileExistsError, ArithmeticError, ModuleNotFoundError)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command, run it, and turn bad input into one line instead of a traceback."""
    chosen: Any = tyro.extras.subcommand_cli_from_dict(
        {name: settings for name, (settings, _) in COMMANDS.items()},
        prog="anygatr",
        description="Equivariant transformers from any geometric algebra: solve for the maps, build, train, compare.",
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    homes = dict(COMMANDS.values())
    module, function = homes[type(chosen)].split(":")
    try:
        if chosen.threads is not None:
            import_module("anygatr.lab.training.threads").set_threads(chosen.threads)
        getattr(import_module(module), function)(chosen)
    except PROBLEMS as problem:
        sys.exit(f"anygatr: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
