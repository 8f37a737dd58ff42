"""Compare models: models x sizes x seeds in processes of their own, one row per finished run, resumable at any time."""

import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from anygatr.lab.comparison.job import ATTEMPTS, Job, work, write_failure
from anygatr.lab.comparison.plan import ComparisonPlan
from anygatr.lab.config.commands import CompareConfig, command_line
from anygatr.lab.data.registry import spec_of
from anygatr.lab.data.token_counts import warn_of_unseen_count
from anygatr.lab.system.cores import cores
from anygatr.lab.system.terminal import Terminal, description_column
from anygatr.lab.training.guard import interruptible, owned

POLL = 0.2


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
        run_on(config, missing)
        plan.write_predictions(data)
    console.print(summarise(directory))
    report = write_report(directory)
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    return Path(report)


def run_on(config: CompareConfig, jobs: list[Job]) -> None:
    """Run jobs on the engine that was asked for; each of them leaves the same rows."""
    if config.engine == "ray":
        from anygatr.lab.comparison.ray_engine import run_on_ray

        run_on_ray(jobs, config.address, parallel(config.jobs))
    elif config.engine == "slurm":
        from anygatr.lab.comparison.slurm_engine import run_on_slurm

        run_on_slurm(Path(config.out), jobs, config.sbatch)
    else:
        run_all(jobs, parallel(config.jobs))


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
                        write_failure(worker.job, f"its process died {ATTEMPTS} times, exit code {worker.process.exitcode}")
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
    """The process of one run."""
    _die_with_parent()
    os.setpgrp()  # Ctrl-C reaches the parent alone, which asks each run to stop at the end of its step

    def watch(step: int, loss: float) -> None:
        shared[0], shared[1] = step, loss

    work(job, watch)


def _die_with_parent() -> None:
    """End this process when its parent does, however that ended: two processes must not write one run."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


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
