"""Compare models: models x sizes x seeds in processes of their own, one row per finished run, resumable at any time."""

import multiprocessing
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from anygatr.lab.comparison.plan import ComparisonPlan
from anygatr.lab.config.commands import CompareConfig, command_line
from anygatr.lab.config.recipe import Recipe
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.spec import DataSpec
from anygatr.lab.data.token_counts import warn_of_unseen_count
from anygatr.lab.system.cores import cores
from anygatr.lab.system.terminal import Terminal, description_column
from anygatr.lab.training.guard import interruptible, owned

ATTEMPTS = 3
"""How often a run whose process dies is started again before it counts as failed."""
POLL = 0.2


@dataclass(frozen=True)
class Job:
    """One run of a comparison: everything that its process needs to know."""

    directory: Path
    spec: DataSpec
    recipe: Recipe
    command: str
    threads: int

    @property
    def name(self) -> str:
        """The name of its row and of its directory."""
        return f"{self.recipe.model}-{self.recipe.size}-{self.recipe.seed}"

    @property
    def row(self) -> Path:
        """Where its row will be."""
        return self.directory / "rows" / f"{self.name}.json"


def compare(config: CompareConfig) -> Path:
    """The command: run what is missing, then show the ranking and write the report; returns the report's path."""
    from anygatr.lab.report import summarise, write_report

    directory, console = Path(config.out), Terminal()
    with owned(directory):
        spec = spec_of(config, config.normalise, config.unit)
        data = spec.load()
        warn_of_unseen_count(data, config.pool or "mean")
        plan = ComparisonPlan.start(config, spec, data, command_line("compare", config))
        threads = config.threads or threads_each(config.jobs)
        jobs = [Job(directory, spec, recipe, plan.command, threads) for recipe in plan.recipes()]
        missing = [job for job in jobs if not job.row.exists()]
        console.print(
            f"{len(jobs)} runs, {len(jobs) - len(missing)} already finished: {directory}", highlight=False, soft_wrap=True
        )
        run_all(missing, parallel(config.jobs))
        plan.write_predictions(data)
    console.print(summarise(directory))
    report = write_report(directory)
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    return Path(report)


def parallel(jobs: int | None) -> int:
    """Runs at the same time."""
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs={jobs} must be at least 1")
    return jobs or cores()


def threads_each(jobs: int | None) -> int:
    """Threads of each run."""
    return max(1, cores() // parallel(jobs))


def run_all(jobs: list[Job], workers: int) -> None:
    """Run jobs in spawned processes until each has its row; a process that dies is replaced and resumes its run."""
    waiting = list(jobs)
    running: list[_Worker] = []
    stopping = False
    attempts = dict.fromkeys((job.name for job in jobs), 0)
    with interruptible() as interrupted, _bars() as bar:
        total = bar.add_task("all runs", total=sum(job.recipe.steps for job in jobs), loss="")
        try:
            while waiting or running:
                while waiting and len(running) < workers and not interrupted:
                    job = waiting.pop(0)
                    attempts[job.name] += 1
                    running.append(_Worker(job, bar))
                time.sleep(POLL)
                bar.update(total, completed=sum(worker.show() for worker in running) + _steps_done(jobs))
                for worker in [worker for worker in running if not worker.process.is_alive()]:
                    running.remove(worker)
                    worker.close()
                    if interrupted or worker.job.row.exists():
                        continue
                    if attempts[worker.job.name] < ATTEMPTS:
                        waiting.insert(0, worker.job)
                    else:
                        _write_failure(worker.job, f"its process died {ATTEMPTS} times, exit code {worker.process.exitcode}")
                if interrupted and not stopping:
                    waiting, stopping = [], True
                    for worker in running:
                        worker.process.terminate()
        finally:
            for worker in running:
                worker.process.terminate()
    if interrupted:
        Terminal().print("stopped; the same command continues where it was")
        raise KeyboardInterrupt


class _Worker:
    """A process with its bar; step and loss travel through shared memory, which no dying process can corrupt."""

    def __init__(self, job: Job, bar: Progress):
        context = multiprocessing.get_context("spawn")
        self.job, self.bar = job, bar
        self.shared = context.RawArray("d", 2)
        self.process = context.Process(target=_work, args=(job, self.shared), daemon=False)
        self.process.start()
        self.task = bar.add_task(job.name, total=job.recipe.steps, loss="starting")

    def show(self) -> int:
        step, loss = self.shared
        if step:
            self.bar.update(self.task, completed=step, loss=f"loss {loss:.3g}")
        return int(step)

    def close(self) -> None:
        self.bar.remove_task(self.task)


def _work(job: Job, shared: Any) -> None:
    """The process of one run: train, write the row. Whatever goes wrong becomes a row as well."""
    _die_with_parent()
    os.setpgrp()  # Ctrl-C reaches the parent alone, which asks each run to stop at the end of its step
    import torch

    from anygatr.lab.config.json_files import write_json
    from anygatr.lab.training.run import TrainingRun
    from anygatr.lab.training.train import fit

    torch.set_num_threads(job.threads)

    def watch(step: int, loss: float) -> None:
        shared[0], shared[1] = step, loss

    try:
        with owned(job.directory / "runs" / job.name):
            data = job.spec.load()
            run = TrainingRun.start(job.directory / "runs" / job.name, job.spec, data, job.recipe, job.command)
            row = fit(run, data, watch)
        write_json(job.row, row)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        _write_failure(job, f"{type(error).__name__}: {error}")


def _die_with_parent() -> None:
    """End this process when its parent does, however that ended: two processes must not write one run."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _write_failure(job: Job, error: str) -> None:
    from anygatr.lab.config.json_files import read_json, write_json
    from anygatr.lab.training.train import failed_row

    result = job.directory / "runs" / job.name / "result.json"
    write_json(job.row, read_json(result) if result.exists() else failed_row(job.recipe, error))


def _steps_done(jobs: list[Job]) -> int:
    return sum(job.recipe.steps for job in jobs if job.row.exists())


def _bars() -> Progress:
    columns = (
        description_column(),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} steps {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Terminal(stderr=True), transient=True)
