"""The runs of a comparison as a job array of SLURM: a script, a list of runs, and rows that are collected when it ends."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from anygatr.files.whole import write_text
from anygatr.lab.comparison.job import ATTEMPTS, Job, work, write_failure
from anygatr.lab.config.json_files import read_json, write_json

FOLDER, JOBS = ".slurm", "jobs.json"


def run_on_slurm(directory: Path, jobs: list[Job], options: tuple[str, ...] = ()) -> None:
    """Submit what has no row as an array and wait for its end; runs whose task died are submitted again.

    options   of sbatch, without their dashes
    """
    if jobs and shutil.which("sbatch") is None:
        raise ValueError("engine='slurm' needs sbatch, which is not on the PATH; log in to a node that has it")
    for _ in range(ATTEMPTS):
        missing = [job for job in jobs if not job.row.exists()]
        if not missing:
            return
        script = write_array(directory, missing)
        command = ["sbatch", "--wait", f"--array=0-{len(missing) - 1}", f"--output={script.parent}/%a.log"]
        command += [f"--{option}" for option in options]
        subprocess.run([*command, str(script)], check=False, stdout=subprocess.DEVNULL)  # fails where a task does
    for job in jobs:
        if not job.row.exists():
            write_failure(job, f"its task of the job array died {ATTEMPTS} times; see {directory / FOLDER}")


def write_array(directory: Path, jobs: list[Job]) -> Path:
    """The script of the array, beside the list of its runs."""
    folder = directory.absolute() / FOLDER
    folder.mkdir(exist_ok=True)
    write_json(folder / JOBS, [job.to_json() for job in jobs])
    worker = shlex.join([sys.executable, "-m", "anygatr.lab.comparison.slurm_engine", str(folder / JOBS)])
    header = ["#!/bin/sh", f"#SBATCH --job-name={directory.name}", "#SBATCH --requeue", f"#SBATCH --chdir={Path.cwd()}"]
    write_text(folder / "array.sh", "\n".join([*header, f'exec {worker} "$SLURM_ARRAY_TASK_ID"', ""]))
    return folder / "array.sh"


def main(path: str, number: str) -> None:
    """One task of the array."""
    job = Job.from_json(read_json(Path(path), [Any])[int(number)])
    if not job.row.exists():
        work(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
