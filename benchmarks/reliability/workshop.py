"""What rounds of faults work with: data, undisturbed runs to compare with, and processes that can be killed."""

import contextlib
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from anygatr import export
from anygatr.lab.cli import main as anygatr
from anygatr.lab.training.trained import load_run

FIELDS = ["--inputs", "position:point", "velocity:vector", "--target", "final:point"]
TINY_NETWORK = [
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
    "--validate-every",
    "5",
    "--threads",
    "1",
]
TINY = ["--model", "E", "--steps", "40", *TINY_NETWORK]
LONGEST = 300.0
"""Seconds that a process may take before it counts as a hang, on a machine that is busy."""


class Workshop:
    """A directory with what rounds need: data, an undisturbed run to compare with, and a random generator."""

    def __init__(self, folder: Path, random_: random.Random) -> None:
        self.folder, self.random = folder, random_
        rng = np.random.default_rng(0)
        position, velocity = rng.normal(size=(2, 40, 3, 3))
        self.data = folder / "data.npz"
        np.savez(self.data, position=position, velocity=velocity, final=position + velocity)
        began = time.perf_counter()
        assert self.run(lambda: self.train(folder / "whole")) == 0
        self.seconds = time.perf_counter() - began
        self.weights = (folder / "whole" / "weights.safetensors").read_bytes()

    @cached_property
    def comparison_seconds(self) -> float:
        """What an undisturbed comparison takes."""
        began = time.perf_counter()
        assert self.run(lambda: self.compare(self.folder / "compared")) == 0
        return time.perf_counter() - began

    def compare(self, out: Path) -> None:
        """The command."""
        options = [*TINY_NETWORK, "--models", "E", "transformer", "--sizes", "20", "--seeds", "1", "--steps", "20"]
        anygatr(["compare", "--data", str(self.data), "--out", str(out), *FIELDS, *options])

    def train(self, out: Path) -> None:
        """The command."""
        anygatr(["train", "--data", str(self.data), "--out", str(out), *FIELDS, *TINY])

    def fresh(self) -> Path:
        """An empty directory."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def run(self, work: Callable[[], Any], kill_after: float | None = None) -> int:
        """The exit status of work in a process of its own, perhaps killed; 1 if it ends with one line, 70 with more."""
        return self.end(self.start(work), kill_after)

    def start(self, work: Callable[[], Any], **environment: str) -> int:
        """The number of a new process that does this work."""
        process = os.fork()
        if process == 0:
            status = 70
            with contextlib.suppress(BaseException):
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, 1)
                os.dup2(devnull, 2)
                os.environ.update(environment)
                try:
                    work()
                    status = 0
                except SystemExit as end:
                    status = 1 if end.code else 0
            os._exit(status)
        return process

    def end(self, process: int, kill_after: float | None = None) -> int:
        """The exit status of a process, killed after some seconds if it has not ended by itself."""
        until = time.perf_counter() + (LONGEST if kill_after is None else kill_after)
        while time.perf_counter() < until:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return -9

    def start_ranks(self, out: Path) -> list[int]:
        """Two processes of one training, as torchrun starts them."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "TORCHELASTIC_RUN_ID": "faults"}
        told |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
        return [self.start(lambda: self.train(out), RANK=rank, LOCAL_RANK=rank, **told) for rank in "01"]

    @cached_property
    def weights_of_ranks(self) -> bytes:
        """What an undisturbed training on two ranks comes to."""
        out = self.folder / "ranks"
        assert [self.end(process) for process in self.start_ranks(out)] == [0, 0]
        return (out / "weights.safetensors").read_bytes()

    @cached_property
    def exporting(self) -> Callable[[Path], None]:
        """Writes the graph of the undisturbed run, which is traced once: what is killed is the writing."""
        run = load_run(self.folder / "whole")
        graph = export.program(run.model)

        def write(path: Path) -> None:
            export.program = lambda *_: graph  # in the forked process alone
            run.export(path)

        return write
