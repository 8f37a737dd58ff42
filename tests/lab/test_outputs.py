"""Outputs replace neither inputs nor files of a run; what the system refuses, and names of any kind, give one line."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from samples import DRIFT, drift

from anygatr.lab.cli import main
from anygatr.lab.system.outputs import output_path
from anygatr.lab.system.problems import REMEDIES, explained
from anygatr.lab.system.terminal import Terminal, printable

FIELDS = ["--inputs", *DRIFT["inputs"], "--target", *DRIFT["target"]]
TINY = [
    "--model",
    "E",
    "--steps",
    "3",
    "--blocks",
    "1",
    "--mv",
    "2",
    "--s",
    "4",
    "--heads",
    "2",
    "--batch",
    "8",
    "--threads",
    "1",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run beside the data it was trained on."""
    folder = tmp_path_factory.mktemp("finished")
    train(drift(folder / "drift.npz"), folder / "run")
    return folder / "run"


def train(data: Path, out: Path | str, *options: str) -> None:
    main(["train", "--data", str(data), "--out", str(out), *FIELDS, *TINY, *options])


def line(capsys, *arguments: object) -> str:
    """The one line with which a command ends."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert isinstance(end.value.code, str), f"exit status {end.value.code}: {capsys.readouterr().err}"
    assert "\n" not in end.value.code
    assert end.value.code.startswith("anygatr: ")
    return end.value.code


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_predict_does_not_replace_its_data(run, tmp_path, capsys):
    data = drift(tmp_path / "mine.npz")
    os.symlink(data, tmp_path / "link.npz")
    os.link(data, tmp_path / "second_name.npz")
    before = contents(tmp_path)
    for given, out in (("mine", "mine"), ("mine", "link"), ("link", "mine"), ("mine", "second_name")):
        said = line(capsys, "predict", run, "--data", tmp_path / f"{given}.npz", "--out", tmp_path / f"{out}.npz")
        assert "would replace what the command reads" in said
    assert "--force" in line(capsys, "predict", run, "--data", data, "--out", run.parent / "drift.npz")  # trained on it
    assert contents(tmp_path) == before
    main(["predict", str(run), "--data", str(data), "--out", str(data), "--force"])
    assert list(np.load(data)) == ["final"]


def test_a_prediction_may_be_made_again(run, tmp_path):
    for _ in range(2):
        main(["predict", str(run), "--data", str(run.parent / "drift.npz"), "--out", str(tmp_path / "p.npz")])
    main(["predict", str(run), "--data", str(run.parent / "drift.npz"), "--out", str(run / "p.npz")])
    os.remove(run / "p.npz")


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
def test_evaluate_does_not_replace_a_file_of_the_run(run, name, capsys):
    before = contents(run)
    assert "would replace a file of a run" in line(capsys, "evaluate", run, "--out", run / name)
    assert contents(run) == before


def test_files_of_comparisons_are_protected(tmp_path):
    for name in ("experiment.json", "rows/C-10-0.json", "predictions/C.npz", "runs/C-10-0/state.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    for path in list(tmp_path.rglob("*.*")):
        with pytest.raises(ValueError, match="would replace a file of a run"):
            output_path(path)
        assert output_path(path, force=True) == path
    assert output_path(tmp_path / "report.html") == tmp_path / "report.html"
    (tmp_path / "elsewhere" / "rows").mkdir(parents=True)
    (tmp_path / "elsewhere" / "rows" / "mine.json").write_text("{}")
    assert output_path(tmp_path / "elsewhere" / "rows" / "mine.json")


def test_reports_do_not_replace_the_experiment(tmp_path, capsys):
    (tmp_path / "experiment.json").write_text("{}")
    assert "would replace" in line(capsys, "report", tmp_path, "--out", tmp_path / "experiment.json")


def test_a_directory_is_no_output(run, tmp_path, capsys):
    (tmp_path / "folder.npz").mkdir()
    said = line(capsys, "predict", run, "--data", run.parent / "drift.npz", "--out", tmp_path / "folder.npz")
    assert "is a directory" in said


def test_paths_that_cannot_be_give_one_line(run, tmp_path, capsys):
    data = run.parent / "drift.npz"
    (tmp_path / "file").write_text("in the way")
    cases = {
        "a file is in the place of a directory": tmp_path / "file" / "run",
        "name is too long": tmp_path / ("n" * 300),
        "is a file; name a directory": tmp_path / "file",
    }
    for words, out in cases.items():
        assert words in line(capsys, "train", "--data", data, "--out", out, *FIELDS, *TINY)
    for words, out in {
        "in the place of": tmp_path / "file" / "p.npz",
        "too long": tmp_path / ("n" * 300 + ".npz"),
    }.items():
        assert words in line(capsys, "predict", run, "--data", data, "--out", out)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_refuses_stops_training_and_keeps_what_is_there(number, tmp_path, monkeypatch, capsys):
    """The third fsync of a run is that of its first state: configuration and directory come before."""
    data, count = drift(tmp_path / "drift.npz"), iter(range(100))
    real = os.fsync

    def fsync(descriptor):
        if next(count) >= 4:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        said = line(capsys, "train", "--data", data, "--out", tmp_path / "run", *FIELDS, *TINY)
    assert REMEDIES[number] in said
    assert not list((tmp_path / "run").glob(".*unfinished*"))
    train(data, tmp_path / "run")  # goes on from there
    train(data, tmp_path / "again")
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("run", "again")]
    assert weights[0] == weights[1]


def test_explanations_name_the_file_and_the_remedy():
    assert explained(PermissionError(errno.EACCES, "Permission denied", "a/b")).startswith(
        "a/b: permission denied; name a place"
    )
    assert explained(OSError("no such artery")) == "no such artery"
    assert "memory is used up" in explained(MemoryError())


NAMES = [
    "[/x]",
    "run[v1]",
    "[bold]x",
    ":smile:",
    "a b'c",
    "red\x1b[31m",
    "\x9b31m",
    "bell\x07",
    "over\u202ewrite",
    "line\nbreak",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_printed_as_they_are(name, tmp_path, capsys):
    """And never wrapped, however long the path is and wherever it has a space."""
    data = drift(tmp_path / "drift.npz")
    train(data, tmp_path / name)
    out = capsys.readouterr().out
    assert f"results in {printable(tmp_path / name)}" in out
    assert not set(out) & set("\x1b\x9b\x07\u202e")
    main(["evaluate", str(tmp_path / name)])
    assert f"E from {printable(tmp_path / name)}\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["pos[/b]", "x[red]", "a\x1b[2J"])
def test_arrays_of_any_name_are_inspected(name, tmp_path, capsys):
    np.savez(tmp_path / "a.npz", **{name: np.random.default_rng(0).normal(size=(30, 4, 3))})
    main(["inspect", str(tmp_path / "a.npz")])
    out = capsys.readouterr().out
    assert printable(name) in out.replace("\n", "")
    assert "\x1b" not in out


def test_errors_and_warnings_are_printable_too(tmp_path, capsys):
    assert "\\x1b[31m" in line(capsys, "inspect", tmp_path / "no\x1b[31m.npz")
    assert printable("a\tb\nc\x00\udc80é") == "a\tb\nc\\x00\\udc80é"


def test_the_terminal_still_has_colours():
    terminal = Terminal()
    terminal._force_terminal, terminal._color_system = True, 1
    with terminal.capture() as captured:
        terminal.print("plain", style="bold red")
    assert "\x1b[" in captured.get()


def test_a_closed_pipe_is_no_error():
    code = "import sys; from anygatr.lab.cli import main; main(sys.argv[1:])"
    for arguments in (["algebra", "4", "1", "0", "--json"], ["--help"]):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, 1)


def test_counts_that_make_no_sense_are_refused(run, capsys):
    assert "batch=0" in line(capsys, "predict", run, "--data", run.parent / "drift.npz", "--batch", 0)
    with pytest.raises(SystemExit) as end:
        train(run.parent / "drift.npz", run.parent / "other", "--threads", "0")
    assert end.value.code == 2
    assert "threads=0 must be at least 1" in capsys.readouterr().err
