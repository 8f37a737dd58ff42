"""The command line: one dataclass per command, one function behind it, imported only when it runs."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any, Union

import tyro

from anygatr import __version__
from anygatr.lab.config import commands, mathematics
from anygatr.lab.config.completion import CompletionConfig
from anygatr.lab.config.examples import EXAMPLES
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
    "completion": (CompletionConfig, "anygatr.lab.cli:print_completion"),
}
DESCRIPTION = """Equivariant transformers from any geometric algebra: solve for the maps, build, train, compare.

anygatr COMMAND --help shows examples of a command, anygatr --version the version.
Exit codes: 0 done, 1 a problem, said in one line, 2 a command that is not understood, 130 interrupted."""
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
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        print(f"anygatr {__version__}")
        return
    chosen = parse(words)
    homes = dict(COMMANDS.values())
    module, function = homes[type(chosen)].split(":")
    if chosen.threads is not None:
        import_module("anygatr.lab.training.threads").set_threads(chosen.threads)
    getattr(import_module(module), function)(chosen)


def parse(words: list[str]) -> Any:
    """The configuration that a command line asks for; exits with 0 after help, with 2 where it is not understood."""
    asked = words[0] if words else ""
    kinds = tuple(
        Annotated[kind, tyro.conf.subcommand(name, description=_with_examples(name, kind) if name == asked else None)]
        for name, (kind, _) in COMMANDS.items()
    )
    settings: Any = Union[kinds]  # noqa: UP007  as many members as there are commands
    return tyro.cli(
        settings,
        prog="anygatr",
        description=DESCRIPTION,
        args=words,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )


def print_completion(config: CompletionConfig) -> None:
    """Print the script that completes commands in a shell."""
    parse(["--tyro-print-completion", config.shell])


def _with_examples(name: str, settings: type) -> str:
    return "\n".join((settings.__doc__ or "", "", "Examples:", *(f"  {example}" for example in EXAMPLES[name])))
