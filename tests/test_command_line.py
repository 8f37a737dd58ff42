"""The command line as a program: version, exit codes, completion, and examples that can be pasted."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import anygatr
from anygatr.lab.cli import COMMANDS, main, parse
from anygatr.lab.config.examples import EXAMPLES

PAGE = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text()


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "anygatr", *words], capture_output=True, text=True, check=False)


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"anygatr {anygatr.__version__}\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("maps", "E"), 0, ""),
        (("maps", "--help"), 0, ""),
        (("maps", "D"), 1, "anygatr: name='D'"),
        (("maps",), 2, ""),
        (("mapps",), 2, "mapps"),
        (("train", "--steps", "many"), 2, "--steps"),
    ],
)
def test_exit_codes(words, code, says, capsys):
    try:
        main(list(words))
        found = (0, "")
    except SystemExit as stopped:
        found = (stopped.code, "") if isinstance(stopped.code, int) else (1, str(stopped.code))
    assert found[0] == code
    assert says in found[1] + "".join(capsys.readouterr())
    assert f"| {code} |" in PAGE


def test_an_interrupted_command_ends_with_130(monkeypatch):
    def interrupt(config):
        raise KeyboardInterrupt

    monkeypatch.setattr("anygatr.lab.mathematics.show_maps", interrupt)
    with pytest.raises(SystemExit) as stopped:
        main(["maps", "E"])
    assert stopped.value.code == 130
    assert "| 130 |" in PAGE


def test_every_command_has_examples_that_it_understands():
    assert set(EXAMPLES) == set(COMMANDS)
    for name, examples in EXAMPLES.items():
        for example in examples:
            words = shlex.split(re.split(r" > |\)$", example.removeprefix("source <("))[0])
            assert words[:2] == ["anygatr", name], example
            assert type(parse(words[1:])) is COMMANDS[name][0], example


def test_help_shows_the_examples_of_its_command_alone(capsys):
    with pytest.raises(SystemExit):
        main(["certify", "--help"])
    out = capsys.readouterr().out
    assert all(example in out for example in EXAMPLES["certify"])
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert "Examples" not in out
    assert "Exit codes" in out


def test_the_page_names_every_command():
    assert set(re.findall(r"^\| `anygatr (\w+)` \|", PAGE, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_the_commands(shell, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["completion", shell])
    assert not stopped.value.code
    script = capsys.readouterr().out
    assert {name for name in COMMANDS if name in script} == set(COMMANDS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_accepts_the_completion(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "bash"])
    script = capsys.readouterr().out + "\ncomplete -p anygatr"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "anygatr" in done.stdout
