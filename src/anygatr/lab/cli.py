"""The command line: one dataclass per command, one function behind it, imported only when it runs."""

import sys
from importlib import import_module

import tyro

from anygatr.lab import config

# command -> its configuration and where its function lives
COMMANDS = {
    "algebra": (config.AlgebraConfig, "anygatr.lab.mathematics:show_algebra"),
    "maps": (config.MapsConfig, "anygatr.lab.mathematics:show_maps"),
    "expressivity": (config.ExpressivityConfig, "anygatr.lab.mathematics:show_expressivity"),
}


def main(arguments: list[str] | None = None) -> None:
    """Parse the command, run it, and turn bad input into one line instead of a traceback."""
    chosen = tyro.extras.subcommand_cli_from_dict(
        {name: settings for name, (settings, _) in COMMANDS.items()},
        prog="anygatr",
        description="Equivariant transformers from any geometric algebra: solve for the maps, build, compare.",
        args=arguments,
    )
    homes = dict(COMMANDS.values())
    module, function = homes[type(chosen)].split(":")
    try:
        getattr(import_module(module), function)(chosen)
    except (ValueError, FileNotFoundError) as problem:
        sys.exit(f"anygatr: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
