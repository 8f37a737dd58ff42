"""The command line: one dataclass per command, one function behind it, imported only when it runs."""

import sys
from importlib import import_module
from typing import Any

import tyro

from anygatr.lab import commands, config
from anygatr.lab.report_config import ReportConfig

# command -> its configuration and where its function lives
COMMANDS: dict[str, tuple[type, str]] = {
    "algebra": (config.AlgebraConfig, "anygatr.lab.mathematics:show_algebra"),
    "maps": (config.MapsConfig, "anygatr.lab.mathematics:show_maps"),
    "expressivity": (config.ExpressivityConfig, "anygatr.lab.mathematics:show_expressivity"),
    "data": (config.DataConfig, "anygatr.lab.make_data:make_data"),
    "inspect": (config.InspectConfig, "anygatr.lab.make_data:inspect_data"),
    "advise": (commands.AdviseConfig, "anygatr.lab.advise:advise"),
    "train": (commands.TrainConfig, "anygatr.lab.train:train"),
    "evaluate": (commands.EvaluateConfig, "anygatr.lab.evaluate:evaluate"),
    "certify": (commands.CertifyConfig, "anygatr.lab.certificate:certify_run"),
    "predict": (commands.PredictConfig, "anygatr.lab.predict:predict"),
    "compare": (commands.CompareConfig, "anygatr.lab.compare:compare"),
    "report": (ReportConfig, "anygatr.lab.report.summary:show_report"),
    "demo": (commands.DemoConfig, "anygatr.lab.demo:demo"),
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
        getattr(import_module(module), function)(chosen)
    except PROBLEMS as problem:
        sys.exit(f"anygatr: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
