"""Faults: processes killed at random moments, full and read-only disks, damaged files, NaN, clocks that go back.

python -m benchmarks.reliability.faults --rounds 240 --seed 0
python -m benchmarks.reliability.faults --rounds 8 --faults "export killed" "a rank of two killed"

Every round breaks something and checks what must hold afterwards. Ends with status 1 if anything did not hold. Processes are
forked from this one, which has imported everything, so that a round takes a fraction of a second.
"""

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from anygatr import GATr, Width, checkpoint, geometry
from anygatr.lab.cli import main as anygatr
from anygatr.lab.data.arteries.surface import read_surface
from anygatr.lab.data.files.arrays import read_arrays
from anygatr.lab.data.nbody.config import NBodyConfig
from anygatr.lab.data.nbody.dataset import generate
from anygatr.lab.report.page import write_report
from anygatr.lab.training import train as training
from benchmarks.reliability import rows, targets
from benchmarks.reliability.workshop import LONGEST, Workshop


def killed_training(shop: Workshop) -> None:
    """Killed up to three times at random moments and continued: the weights have the bits of an undisturbed run."""
    out = shop.fresh() / "run"
    for _ in range(shop.random.randint(1, 3)):
        shop.run(lambda: shop.train(out), shop.random.uniform(0, shop.seconds))
    assert shop.run(lambda: shop.train(out)) == 0, "it does not continue"
    assert (out / "weights.safetensors").read_bytes() == shop.weights, "other bits"
    assert not list(out.glob(".*.unfinished")), "something is left behind"


def killed_generation(shop: Workshop) -> None:
    """Data generation killed and repeated: the same bytes as undisturbed."""
    folder = shop.fresh()
    config = {"train": 60, "val": 10, "eval": 0, "generalization": 0, "bodies": 8}
    whole, broken = (NBodyConfig(out=str(folder / name), **config) for name in ("whole", "broken"))
    shop.run(lambda: generate(broken), shop.random.uniform(0, 0.3))
    for path in (folder / "broken").glob("*.npz"):
        read_arrays(path)
    assert shop.run(lambda: generate(broken)) == 0, "it does not continue"
    assert shop.run(lambda: generate(whole)) == 0, "it does not run"
    for name in ("train.npz", "val.npz"):
        assert (folder / "broken" / name).read_bytes() == (folder / "whole" / name).read_bytes(), "other bytes"


def killed_saving(shop: Workshop) -> None:
    """A checkpoint that is being replaced over and over, killed: what is there is whole."""
    path = shop.fresh() / "net.safetensors"
    torch.manual_seed(0)
    net = GATr(geometry("E", 2), Width(1, 1), Width(4, 8), Width(1, 1), blocks=1, heads=2)
    checkpoint.save(net, path)

    def work() -> None:
        while True:
            checkpoint.save(net, path)

    shop.run(work, shop.random.uniform(0, 0.1))
    checkpoint.load(path)


def killed_report(shop: Workshop) -> None:
    """A report that is being written over and over, killed: the page is whole."""
    folder = shop.fresh()
    targets.predictions(folder)
    page = write_report(folder)

    def work() -> None:
        while True:
            write_report(folder)

    shop.run(work, shop.random.uniform(0, 0.2))
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>"), "half a page"


def killed_comparison(shop: Workshop) -> None:
    """A comparison killed up to twice at random moments and continued: the rows are those of an undisturbed one."""
    out = shop.fresh() / "compared"
    for _ in range(shop.random.randint(1, 2)):
        shop.run(lambda: shop.compare(out), shop.random.uniform(0, shop.comparison_seconds))
    assert shop.run(lambda: shop.compare(out)) == 0, "it does not continue"
    assert measured(out) == measured(shop.folder / "compared"), "other rows"


def measured(folder: Path) -> list[Any]:
    """What a comparison has found, without what the clock says."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "rows").glob("*.json")]
    assert found, "no rows"
    return sorted([row["model"], row["seed"], row["status"], row["metrics"]] for row in found)


def killed_export(shop: Workshop) -> None:
    """An exported graph that is being replaced over and over, killed: what is there is whole."""
    path, write = shop.fresh() / "net.pt2", shop.exporting
    assert shop.run(lambda: write(path)) == 0, "it does not run"

    def work() -> None:
        while True:
            write(path)

    shop.run(work, shop.random.uniform(0, 0.5))
    torch.export.load(path)


def lost_rank(shop: Workshop) -> None:
    """One of two ranks killed in training: the other ends by itself, both continue to the bits of an undisturbed run."""
    weights, out = shop.weights_of_ranks, shop.fresh() / "run"
    ranks = shop.start_ranks(out)
    until = time.perf_counter() + LONGEST
    while not (out / "config.json").exists() and time.perf_counter() < until:  # before, a launcher ends both
        time.sleep(0.002)
    killed = shop.random.randrange(2)
    shop.end(ranks[killed], shop.random.uniform(0, shop.seconds))
    assert (status := shop.end(ranks[1 - killed])) in (0, 1), f"status {status}"
    assert [shop.end(process) for process in shop.start_ranks(out)] == [0, 0], "it does not continue"
    assert (out / "weights.safetensors").read_bytes() == weights, "other bits"


def two_owners(shop: Workshop) -> None:
    """Two processes on one directory: one trains, the other waits or is refused, and the bits are those of one alone."""
    out = shop.fresh() / "run"
    first = shop.start(lambda: shop.train(out))
    status = shop.run(lambda: shop.train(out))
    shop.end(first)
    assert status in (0, 1), f"status {status}"
    assert (out / "weights.safetensors").read_bytes() == shop.weights, "other bits"


def full_disk(shop: Workshop) -> None:
    """A small file system fills up: one line, and the run continues to the same bits once there is room."""
    with mounted(shop, f"size={shop.random.randint(16, 120)}k") as (place, remount):
        status = shop.run(lambda: shop.train(place / "run"))
        assert status in (0, 1), f"status {status}"
        remount("size=8m")
        assert shop.run(lambda: shop.train(place / "run")) == 0, "it does not continue"
        assert (place / "run" / "weights.safetensors").read_bytes() == shop.weights, "other bits"


def read_only(shop: Workshop) -> None:
    """A file system that is read-only: one line."""
    with mounted(shop, "size=1m") as (place, remount):
        remount("ro")
        assert shop.run(lambda: shop.train(place / "run")) == 1, "no line"
        predicted = ["predict", str(shop.folder / "whole"), "--data", str(shop.data), "--out", str(place / "p.npz")]
        assert shop.run(lambda: anygatr(predicted)) == 1, "no line"


@contextlib.contextmanager
def mounted(shop: Workshop, options: str) -> Any:
    """A file system in memory, and a function that changes its options."""
    place = shop.fresh()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, capture_output=True)
    try:
        yield place, lambda changed: subprocess.run(["mount", "-o", f"remount,{changed}", str(place)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def damaged_run(shop: Workshop) -> None:
    """A file of a run is cut or has a bit flipped: the run continues, or one line says what is wrong."""
    out = shop.fresh() / "run"
    shutil.copytree(shop.folder / "whole", out)
    (out / "result.json").unlink()
    path = out / shop.random.choice(["config.json", "metrics.jsonl", "state.safetensors", "weights.safetensors"])
    damage(path, shop.random)
    assert (status := shop.run(lambda: shop.train(out))) in (0, 1), f"{path.name}: status {status}"
    assert (status := shop.run(lambda: anygatr(["evaluate", str(out)]))) in (0, 1), f"{path.name}: status {status}"


def damage(path: Path, random_: random.Random) -> None:
    """Cut a file or flip one of its bits."""
    raw = bytearray(path.read_bytes())
    if random_.random() < 0.5:
        del raw[random_.randrange(len(raw)) :]
    else:
        raw[random_.randrange(len(raw))] ^= 1 << random_.randrange(8)
    path.write_bytes(raw)


def damaged_files(shop: Workshop) -> None:
    """Files of every format (.npz, .h5, .vtp, .ply, .stl, checkpoints), each cut or with a bit flipped: read or refused."""
    files = [(path, read) for write, read in FORMATS for path in write(shop.fresh())]
    for path, _ in files:
        damage(path, shop.random)

    def work() -> None:
        for path, read in files:
            with contextlib.suppress(*targets.REFUSALS):
                read(path)

    assert shop.run(work) == 0, f"an error of another kind; {sorted(path.name for path, _ in files)}"


FORMATS: tuple[tuple[Callable[[Path], list[Path]], Callable[[Path], Any]], ...] = (
    (targets.write_npz, targets.read_data),
    (targets.write_h5, targets.read_data),
    (targets.write_arteries, targets.read_arteries),
    (targets.write_surfaces, read_surface),
    (targets.write_checkpoints, checkpoint.load),
)
"""How files are made, and how they are read."""


def nan_in_the_middle(shop: Workshop) -> None:
    """A loss that becomes NaN or infinite in some step: a failed row that says which, and the best weights stay finite."""
    out, at, value = shop.fresh() / "run", shop.random.randint(2, 39), shop.random.choice([float("nan"), float("inf")])
    calls = iter(range(10**6))
    real = training.Objective.__call__

    def poisoned(self: Any, *arguments: Any) -> Any:
        loss, error = real(self, *arguments)
        return (loss * value if next(calls) == at else loss), error

    def work() -> None:
        training.Objective.__call__ = poisoned  # type: ignore[method-assign]  # in the forked process alone
        shop.train(out)

    assert shop.run(work) == 1, "no line"
    assert '"status": "failed"' in (out / "result.json").read_text(), "no row"
    assert f"step {at + 1}" in (out / "result.json").read_text(), "another step"


def clock_backwards(shop: Workshop) -> None:
    """Clocks that go back by hours, at random: the same bits."""
    out, draw = shop.fresh() / "run", random.Random(shop.random.random())
    real = time.time

    def work() -> None:
        time.time = lambda: real() - draw.uniform(0, 10_000)
        time.perf_counter = time.time
        shop.train(out)

    assert shop.run(work) == 0, "it stops"
    assert (out / "weights.safetensors").read_bytes() == shop.weights, "other bits"


FAULTS: dict[str, tuple[Callable[[Workshop], None], int]] = {
    "training killed": (killed_training, 5),
    "data generation killed": (killed_generation, 3),
    "checkpoint writing killed": (killed_saving, 4),
    "report writing killed": (killed_report, 3),
    "comparison killed": (killed_comparison, 1),
    "export killed": (killed_export, 3),
    "a rank of two killed": (lost_rank, 1),
    "two processes on one directory": (two_owners, 1),
    "disk full": (full_disk, 2),
    "file system read-only": (read_only, 1),
    "file of a run cut or bit flipped": (damaged_run, 5),
    "files of every format cut or bit flipped": (damaged_files, 4),
    "NaN or infinity in the middle of training": (nan_in_the_middle, 2),
    "clock going backwards": (clock_backwards, 1),
}
"""What is tried, and how often in relation to the others."""


def main() -> None:
    """Run all rounds and print, and perhaps keep, a row for each fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT", help="only these")
    parser.add_argument("--keep", action="store_true", help="append rows to results/reliability/rows.jsonl")
    arguments = parser.parse_args()
    found = []
    for row in run(arguments.rounds, arguments.seed, tuple(arguments.faults)):
        found.append(row)
        tried = f"{row['rounds']:>4} rounds, {row['skipped']} skipped" if row["skipped"] else f"{row['rounds']:>4} rounds"
        print(f"{row['what']:<44}{tried}, failures: {row['failures'] or 'none'}", flush=True)
        if arguments.keep:
            rows.append(row)
    failed = sum(len(row["failures"]) for row in found)
    print(f"{sum(row['rounds'] for row in found)} rounds with seed {arguments.seed}, {failed} failures")
    sys.exit(failed > 0)


def run(rounds: int, seed: int, names: tuple[str, ...] = tuple(FAULTS)) -> Iterator[dict[str, Any]]:
    """A row for each of the faults named, as soon as it is done."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    total = sum(FAULTS[name][1] for name in names)
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder), random.Random(seed))
        for name in names:
            fault, share = FAULTS[name]
            shop.random.seed(f"{seed} {name}")  # whatever other faults are tried
            failures, skipped, began = [], 0, time.perf_counter()
            count = max(1, -(-rounds * share // total))
            for _ in range(count):
                try:
                    fault(shop)
                except subprocess.CalledProcessError:  # file systems cannot be mounted here
                    skipped += 1
                except Exception as error:
                    failures.append(f"{error or traceback.format_exc()}"[:200])
            about = {"kind": "fault", "what": name, "seed": seed, "rounds": count - skipped, "skipped": skipped}
            about |= {"command": f'--faults "{name}" --rounds {count} --seed {seed}'}
            yield about | {"failures": failures, "seconds": round(time.perf_counter() - began, 1)}


if __name__ == "__main__":
    main()
