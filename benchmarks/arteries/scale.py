"""Large meshes: one training step on 7000 nodes at the paper's artery size, and a prediction on 50 000 nodes.

    python -m benchmarks.arteries.scale [--geometry iP] [--train 7000] [--predict 50000]

Each measurement runs in a process of its own, so that its peak memory is its own; results go to results/arteries/scale.json
and, with --page, into docs/arteries.md.
"""

import argparse
import json
import multiprocessing
import resource
import time

from benchmarks.harness.files import RESULTS, ROOT, put, put_json

RESULT, PAGE = RESULTS / "arteries" / "scale.json", ROOT / "docs" / "arteries.md"
START, END = "<!-- scale -->", "<!-- end of scale -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geometry", default="iP")
    parser.add_argument("--train", type=int, default=7_000)
    parser.add_argument("--predict", type=int, default=50_000)
    parser.add_argument("--page", action="store_true", help="only write the page from the numbers that are there")
    parser.add_argument("--json", action="store_true", help="print the numbers and write nothing")
    chosen = parser.parse_args()
    if not chosen.page:
        jobs = {"training step": (train_step, chosen.train), "prediction": (prediction, chosen.predict)}
        found = [alone(job, chosen.geometry, nodes) | {"what": what} for what, (job, nodes) in jobs.items() if nodes]
        if chosen.json:
            print(json.dumps(found))
            return
        put_json(RESULT, found)
    before, rest = PAGE.read_text().split(START)
    put(PAGE, f"{before}{START}\n{table(json.loads(RESULT.read_text()))}{END}{rest.split(END)[1]}")
    print(table(json.loads(RESULT.read_text())))


def alone(job, geometry: str, nodes: int) -> dict:
    """Run a job in a fresh process and return what it measured."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(job, geometry, nodes, sender))
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def train_step(model, fields, target) -> None:
    (model(**fields)["wss"] - target).square().mean().backward()


def prediction(model, fields, target) -> None:
    import torch

    with torch.no_grad():
        assert model(**fields)["wss"].isfinite().all()


def _run(job, geometry: str, nodes: int, sender) -> None:
    import torch

    from anygatr import Width, model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = {"position": "point", "wall": "plane", "geodesic": "scalar"}
    size = {"hidden": Width(8, 32), "blocks": 10, "heads": 4, "invariants": False, "init": "paper"}
    net = model(geometry, inputs, {"wss": "vector"}, **size, reinsert=("position",), checkpoint=True)
    fields, target = wall(nodes)
    small = {name: x[:, :200] for name, x in fields.items()}
    job(net, small, target[:, :200])  # kernels are made once and not part of a step
    net.zero_grad()
    before = _peak()
    cpu, began = time.process_time(), time.perf_counter()
    job(net, fields, target)
    seconds = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - began}
    sender.send({"geometry": geometry, "nodes": nodes, **seconds, "peak_mb": _peak(), "peak_before_mb": before})


def wall(nodes: int):
    """A bent tube of that many nodes as one sample of fields, with a smooth stress along it."""
    import torch

    i = torch.arange(nodes, dtype=torch.float64)
    along, around = 5 * i / nodes, 2 * torch.pi * (i * 0.618034 % 1)
    normal = torch.stack([torch.zeros_like(i), around.cos(), around.sin()], -1)
    place = torch.stack([along, 0.1 * along**2, torch.zeros_like(i)], -1) + 0.17 * normal
    fields = {"position": place, "wall": torch.cat([normal, place], -1), "geodesic": along}
    stress = torch.stack([1 + along, torch.zeros_like(i), torch.zeros_like(i)], -1)
    return {name: x.float().unsqueeze(0) for name, x in fields.items()}, stress.float().unsqueeze(0)


def table(found: list[dict]) -> str:
    lines = ["| what | geometry | nodes | CPU-s | peak memory, GiB |", "|---|---|---|---|---|"]
    for row in found:
        cells = (
            row["what"],
            row["geometry"],
            f"{row['nodes']:,}",
            f"{row['cpu_seconds']:.1f}",
            f"{row['peak_mb'] / 1024:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    before = max(row["peak_before_mb"] for row in found) / 1024
    return "\n".join(["", *lines, "", f"Of the memory, {before:.2f} GiB are Python and PyTorch. One thread.", ""])


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
