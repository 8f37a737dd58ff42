"""The runs of a comparison as tasks of Ray, on a cluster or on a local instance that is started for them."""

import logging
import os
from dataclasses import replace
from typing import Any

from anygatr.lab.comparison.job import ATTEMPTS, Job, work, write_failure


def run_on_ray(jobs: list[Job], address: str | None, workers: int) -> None:
    """Run jobs until each has its row; Ray starts the task of a worker that dies again, and the run in it is resumed.

    address   of a cluster whose machines see the same files, "auto" for the one this machine belongs to; None starts a local
              instance with so many workers
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ValueError("engine='ray' needs the package ray; pip install 'anygatr[ray]', or use --engine local") from None
    if not jobs:
        return
    local: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if address is None else {"address": address}
    ray.init(**local, log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_work_in)
        tasks = {remote.remote(os.getcwd(), _absolute(job)): job for job in jobs}
        waiting = list(tasks)
        while waiting:
            done, waiting = ray.wait(waiting)
            _finish(ray, done[0], tasks[done[0]])
    finally:
        ray.shutdown()


def _work_in(directory: str, job: Job) -> None:
    os.chdir(directory)  # paths of data are relative to where the command was given
    work(job)


def _finish(ray: Any, task: Any, job: Job) -> None:
    try:
        ray.get(task)
    except ray.exceptions.RayError as problem:
        if not job.row.exists():
            write_failure(job, f"its worker died {ATTEMPTS} times: {type(problem).__name__}")


def _absolute(job: Job) -> Job:
    return replace(job, directory=job.directory.absolute())
