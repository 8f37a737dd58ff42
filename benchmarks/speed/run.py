"""Training steps and inferences of our networks and their peers, interleaved; peak memory; compile times; against targets.

    python -m benchmarks.speed.run [--quick] [--configurations a b c] [--threads 1 2] [--parts time memory compile] [--add]
    python -m benchmarks.speed.run --report        # tables and plots from the stored rows

Each measurement has a process of its own. Networks of one configuration are timed in rounds, each once per round; ratios
are taken round by round. One thread is judged by processor seconds, two by wall-clock seconds; both are stored. `--add` puts
more rounds to those stored, so that a long measurement can be made in pieces. Rows of another processor are replaced.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.files import PICTURES, RESULTS, ROOT, SNIPPETS, put_json
from benchmarks.harness.machine import with_peers

Row = dict[str, Any]
Job = dict[str, Any]
GROUP = ("kind", "configuration", "blocks", "threads", "what")
EAGER = ["transformer", "lgatr", "dense", "E", "P", "iP", "C"]


def jobs(arguments: argparse.Namespace) -> list[Job]:
    """What to measure, in order."""
    if arguments.quick:
        ours = ["transformer", "lgatr", "dense", "iP"]
        return [
            _peak(1),
            _peak(2),
            _time("a", None, 1, EAGER, 3),
            _time("a", None, 2, ["transformer", "iP"], 3),
            _time("b", 2, 1, EAGER, 3),
            _time("c", 1, 1, ours, 3, ["train"]),
            _memory("a", "iP", ""),
            _memory("a", "iP", "checkpoint"),
        ]
    out = [_peak(t) for t in arguments.threads] if "time" in arguments.parts else []
    for name in arguments.configurations:
        if "time" in arguments.parts:
            models = arguments.models or [*EAGER, "iP compiled", "lgatr compiled"]
            out += [_time(name, arguments.blocks, t, models, arguments.repetitions) for t in arguments.threads]
        if "memory" in arguments.parts:
            out += [_memory(name, model, "") for model in (EAGER if name == "a" else ["iP", "transformer"])]
            out += [_memory(name, "iP", "checkpoint")]
    if "compile" in arguments.parts:
        out += [_compile(model, "") for model in ("E", "P", "iP", "C")] + [_compile("iP", "whole graph")]
    return out


def measure(job: Job) -> list[Row]:
    """Do a job in this process, which was started for it."""
    import torch

    torch.set_num_threads(job.get("threads", 1))
    known = {"peak": measure_peak, "time": measure_time, "memory": measure_memory, "compile": measure_compile}
    return known[job["kind"]](job)


def measure_peak(job: Job) -> list[Row]:
    """The most that the machine can compute."""
    from benchmarks.harness.peak_rate import peak_rate

    return [{**job, "flops": peak_rate(job["threads"])}]


def measure_time(job: Job) -> list[Row]:
    """Rounds of training steps and inferences of all models of a job."""
    from benchmarks.harness.timing import interleaved, load
    from benchmarks.speed.networks.contestants import CONFIGURATIONS, contestant

    size = CONFIGURATIONS[job["configuration"]].cut(job["blocks"])
    networks = {name: contestant(name, size) for name in job["models"]}
    for network in networks.values():
        network.warm()
    rows = []
    for what in job["what"]:
        calls = {name: network.train if what == "train" else network.infer for name, network in networks.items()}
        for name, samples in interleaved(calls, job["repetitions"]).items():
            about = {"kind": "time", "configuration": job["configuration"], "blocks": size.blocks, "threads": job["threads"]}
            rows.append({**about, "model": name, "what": what, **samples._asdict(), "load": load()})
    return rows


def measure_memory(job: Job) -> list[Row]:
    """The growth of this process during one training step."""
    from benchmarks.harness.peak_memory import growth
    from benchmarks.speed.networks.contestants import CONFIGURATIONS, contestant

    size = CONFIGURATIONS[job["configuration"]]
    network = contestant(job["model"], size, **({"checkpoint": True} if job["option"] else {}))
    network._replace(inputs=tuple(x[:1, :16] for x in network.inputs)).train()  # load libraries
    return [{**job, "blocks": size.blocks, "growth": growth(network.train)}]


def measure_compile(job: Job) -> list[Row]:
    """Seconds that the first training step takes longer than the second, and what 20 more batch sizes compile.

    Processor seconds, those of the C++ compiler included.
    """
    import torch
    from torch._dynamo.utils import counters

    from benchmarks.speed.networks.contestants import COMPILED, CONFIGURATIONS, contestant

    network = contestant(job["model"] + ("" if job["option"] else COMPILED), CONFIGURATIONS["a"])
    if job["option"]:
        network = network._replace(net=torch.compile(network.net))  # type: ignore[arg-type]
    first, second = _seconds(network.train), _seconds(network.train)
    cpu, wall = (round(a - b, 2) for a, b in zip(first, second, strict=True))
    row = {**job, "blocks": CONFIGURATIONS["a"].blocks, "seconds": cpu, "wall": wall}
    if not job["option"]:
        graphs = counters["stats"]["unique_graphs"]
        cuts = [network._replace(inputs=tuple(x[:batch] for x in network.inputs)) for batch in range(2, 42, 2)]
        row["seconds_later"] = round(sum(_seconds(cut.train)[0] for cut in cuts), 2)
        row |= {"graphs": graphs, "graphs_later": counters["stats"]["unique_graphs"] - graphs}
    return [row]


def run(job: Job) -> list[Row]:
    """The rows of a job, made by a new interpreter; a compilation twice, with an empty cache and with the one it left."""
    if job["kind"] != "compile":
        return _in_new_process(job, {})
    with tempfile.TemporaryDirectory() as cache:
        # compiling in the process itself, so that its seconds can be counted
        environment = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        (cold,), (warm,) = _in_new_process(job, environment), _in_new_process(job, environment)
    return [{**cold, "warm_seconds": warm["seconds"]}]


def merged(stored: list[Row], new: list[Row], add: bool) -> list[Row]:
    """Stored rows with the new ones in place of their like, or, to `add`, with the new repetitions after theirs.

    Networks are compared round by round, so all rows timed together are replaced or extended together.
    """
    timed = [row for row in new if row["kind"] == "time"]
    groups = {_group(row) for row in timed}
    before = {_key(row): row for row in stored if row["kind"] == "time" and _group(row) in groups}
    if add and before:
        if before.keys() != {_key(row) for row in timed}:
            raise ValueError("--add needs the networks that were timed before, no more and no fewer; leave --add out")
        more = {key: {clock: row[clock] for clock in ("cpu", "wall")} for key, row in before.items()}
        new = [{**row, **{c: more[_key(row)][c] + row[c] for c in ("cpu", "wall")}} if row in timed else row for row in new]
    replaced = before.keys() | {_key(row) for row in new}
    return [row for row in stored if _key(row) not in replaced] + new


def rows_of(path: Path, machine: dict[str, object]) -> list[Row]:
    """The stored rows, if they were measured on such a processor: times of two cannot stand in one table."""
    stored = json.loads(path.read_text()) if path.exists() else {"machine": machine, "rows": []}
    return stored["rows"] if stored["machine"]["cpu"] == machine["cpu"] else []


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of this process and of those it waited for, and wall-clock seconds."""
    before = os.times()
    call()
    spent = [after - then for after, then in zip(os.times(), before, strict=True)]
    return sum(spent[:4]), spent[4]


def _key(row: Row) -> tuple[Any, ...]:
    return (*_group(row), row["model"], row.get("option"))


def _group(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in GROUP)


def _time(
    configuration: str, blocks: int | None, threads: int, models: list[str], repetitions: int, what: list[str] | None = None
) -> Job:
    job = {"kind": "time", "configuration": configuration, "blocks": blocks, "threads": threads, "models": models}
    return {**job, "repetitions": repetitions, "what": what or ["train", "infer"]}


def _peak(threads: int) -> Job:
    return {"kind": "peak", "model": "machine", "threads": threads}


def _memory(configuration: str, model: str, option: str) -> Job:
    return {"kind": "memory", "configuration": configuration, "model": model, "option": option, "threads": 1}


def _compile(model: str, option: str) -> Job:
    return {"kind": "compile", "configuration": "a", "model": model, "option": option, "threads": 1}


def _in_new_process(job: Job, environment: dict[str, str]) -> list[Row]:
    count = str(job.get("threads", 1))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.run", "--measure", json.dumps(job)],
        cwd=ROOT, env={**os.environ, **threads, **environment}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{job} ended with status {done.returncode}; its messages are above")
    return json.loads(done.stdout.splitlines()[-1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time networks and their peers, against targets.")
    parser.add_argument("--quick", action="store_true", help="under 3 minutes: a at full depth, b and c with few blocks")
    parser.add_argument("--configurations", nargs="+", choices=["a", "b", "c"], default=["a", "b", "c"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--parts", nargs="+", choices=["time", "memory", "compile"], default=["time", "memory", "compile"])
    parser.add_argument("--models", nargs="+", help="of a timing; all by default")
    parser.add_argument("--blocks", type=int, help="instead of the full depth")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--add", action="store_true", help="add repetitions to the stored ones")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", action="store_true", help="measure nothing; tables and plots from the stored rows")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        print(json.dumps(measure(json.loads(arguments.measure))))
        return

    from rich.console import Console

    from benchmarks.speed.tables.networks import figures, report, snippets

    console, host = Console(width=125), with_peers()
    path = arguments.out or RESULTS / ("speed-quick.json" if arguments.quick else "speed.json")
    rows = [] if arguments.quick else rows_of(path, host)
    for job in [] if arguments.report else jobs(arguments):
        console.print(
            " ".join(str(job[key]) for key in ("kind", "configuration", "blocks", "threads", "model") if key in job)
        )
        rows = merged(rows, run(job), arguments.add)
        put_json(path, {"machine": host, "rows": rows})
    stored = json.loads(path.read_text())
    report(stored, console)
    if not arguments.quick and arguments.out is None:
        snippets(stored, SNIPPETS)
        figures(stored, PICTURES)
    console.print(f"rows in {path}")


if __name__ == "__main__":
    main()
