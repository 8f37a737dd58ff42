"""What is fuzzed: every reader, the checkpoint loader, the parsers of configurations, the command line.

A target makes valid material once, damages it in a way that is drawn at random, and hands it to the library. The library may
accept it, or refuse it by one of the errors in `REFUSALS`; anything else is a failure.
"""

import contextlib
import io
import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import torch
from safetensors.torch import load_file, safe_open, save_file

from anygatr import AxialGATr, GATr, Width, checkpoint, geometry, model
from anygatr.lab.cli import main
from anygatr.lab.config.recipe import Recipe, recipe
from anygatr.lab.data.arteries.store import ArteryFile, BadArteryError
from anygatr.lab.data.arteries.surface import read_surface
from anygatr.lab.data.files.dataset import load as load_files
from anygatr.lab.data.files.inspect import inspect
from anygatr.lab.data.kinds import parse_fields
from anygatr.lab.data.nbody.config import NBodyConfig
from anygatr.lab.data.vtp import write_vtp
from anygatr.lab.report.page import _page
from anygatr.lab.report.rows import load as load_rows
from anygatr.lab.report.summary import summarise
from anygatr.lab.training.log import MetricsLog
from anygatr.lab.training.models import check_names
from anygatr.lab.training.run import TrainingRun
from anygatr.lab.training.state import History, TrainingState
from benchmarks.reliability.mutations import TEXTS, changes, exchanged, mutate, swaps, text, value

REFUSALS = (ValueError, OSError)
FIELDS = {"position": "point", "mass": "scalar"}, {"final": "point"}
Prepared = tuple[Callable[[Random], Any], Callable[[Any], None]]
"""How a case is drawn, and how it is tried."""


@dataclass(frozen=True)
class Target:
    """Something that reads: how its cases are drawn, and how one is tried in a directory of its own."""

    name: str
    what: str
    prepare: Callable[[Path], Prepared]
    share: float = 1.0
    """How many of all cases it gets in relation to others: less where a case takes milliseconds."""


def bytes_target(
    name: str, what: str, write: Callable[[Path], list[Path]], read: Callable[[Path], Any], share: float = 1.0
) -> Target:
    """A reader of files whose bytes are damaged."""

    def prepare(folder: Path) -> Prepared:
        files = [(path, path.read_bytes()) for path in write(folder)]

        def check(case: tuple[int, list[tuple[int, int, int]]]) -> None:
            path, whole = files[case[0] % len(files)]
            place = path.with_name("case" + path.suffix)
            place.write_bytes(mutate(whole, case[1]))
            read(place)

        return lambda random: (random.randrange(len(files)), changes(random)), check

    return Target(name, what, prepare, share)


def write_npz(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    dense = {"position": rng.normal(size=(12, 3, 3)), "mass": rng.random((12, 3)), "final": rng.normal(size=(12, 3, 3))}
    packed = {name: x.reshape(36, *x.shape[2:]) for name, x in dense.items()} | {"offsets": np.arange(0, 37, 3, np.int8)}
    np.savez(folder / "dense.npz", **dense, split=np.array(["train", "val", "eval"] * 4))
    np.savez_compressed(folder / "packed.npz", **packed)
    np.savez(folder / "padded.npz", **dense, mask=np.ones((12, 3), bool))
    return [folder / f"{name}.npz" for name in ("dense", "packed", "padded")]


def write_h5(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    with h5py.File(folder / "flat.h5", "w") as file:
        for name, size in (("position", (12, 3, 3)), ("mass", (12, 3)), ("final", (12, 3, 3))):
            file.create_dataset(name, data=rng.normal(size=size), compression="gzip")
    with h5py.File(folder / "groups.h5", "w") as file:
        for i in range(6):
            group = file.create_group(f"sample_{i}")
            for name, size in (("position", (2 + i, 3)), ("mass", (2 + i,)), ("final", (2 + i, 3))):
                group[name] = rng.normal(size=size)
    return [folder / "flat.h5", folder / "groups.h5"]


def damaged_archives(folder: Path) -> Prepared:
    """Archives damaged as a whole, which their checksums notice, and in one array, with a checksum that fits."""
    files = [(path.read_bytes(), _members(path)) for path in write_npz(folder)]
    place = folder / "case.npz"

    def check(case: tuple[int, list[tuple[int, int, int]], int]) -> None:
        whole, members = files[case[0]]
        if case[2] % 4 == 0:
            place.write_bytes(mutate(whole, case[1]))
        else:
            chosen = sorted(members)[case[2] % len(members)]
            with zipfile.ZipFile(place, "w") as archive:
                for name, raw in members.items():
                    archive.writestr(name, mutate(raw, case[1]) if name == chosen else raw)
        read_data(place)

    return lambda random: (random.randrange(len(files)), changes(random), random.randrange(1000)), check


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_data(path: Path) -> None:
    inspect(path)
    data = load_files(path, *FIELDS)
    assert all(bool(x.isfinite().all()) for x in data.fields.values())


def write_arteries(folder: Path) -> list[Path]:
    pos = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    face = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    with h5py.File(folder / "arteries.h5", "w") as file:
        for i in range(2):
            group = file.create_group(f"sample_{i:04d}")
            group["pos"], group["face"], group["wss"], group["inlet_idcs"] = pos, face, pos, np.arange(3)
    return [folder / "arteries.h5"]


def read_arteries(path: Path) -> None:
    found = ArteryFile(path)
    for name in found.names:
        with contextlib.suppress(BadArteryError):
            found.read(name)


def write_surfaces(folder: Path) -> list[Path]:
    pos = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float64)
    face = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    write_vtp(folder / "a.vtp", pos, face, {"pressure": pos[:, 0]})
    corners = " ".join(f"{x:g}" for x in pos.ravel())
    (folder / "b.vtp").write_text(
        '<VTKFile type="PolyData"><PolyData><Piece><Points><DataArray type="Float64" NumberOfComponents="3" format="ascii">'
        f'{corners}</DataArray></Points><Polys><DataArray type="Int64" Name="connectivity">{" ".join(map(str, face.flat))}'
        '</DataArray><DataArray type="Int64" Name="offsets">3 6 9 12</DataArray></Polys></Piece></PolyData></VTKFile>'
    )
    head = ["element vertex 4", *(f"property float {axis}" for axis in "xyz"), "element face 4"]
    head += ["property list uchar int vertex_indices", "end_header", ""]
    rows = [" ".join(map(str, row)) for row in pos.tolist()] + [f"3 {a} {b} {c}" for a, b, c in face.tolist()]
    (folder / "a.ply").write_text("\n".join(["ply", "format ascii 1.0", *head]) + "\n".join(rows))
    body = pos.astype("<f4").tobytes() + b"".join(b"\x03" + row.astype("<i4").tobytes() for row in face)
    (folder / "b.ply").write_bytes("\n".join(["ply", "format binary_little_endian 1.0", *head]).encode() + body)
    triangles = b"".join(bytes(12) + pos[row].astype("<f4").tobytes() + bytes(2) for row in face)
    (folder / "a.stl").write_bytes(bytes(80) + len(face).to_bytes(4, "little") + triangles)
    lines = [f"facet\nouter loop\n{''.join(f'vertex {x} {y} {z}' + chr(10) for x, y, z in pos[row])}endloop" for row in face]
    (folder / "b.stl").write_text("solid\n" + "\n".join(lines) + "\nendsolid\n")
    return [folder / name for name in ("a.vtp", "b.vtp", "a.ply", "b.ply", "a.stl", "b.stl")]


def write_checkpoints(folder: Path) -> list[Path]:
    torch.manual_seed(0)
    widths = {"inputs": Width(1, 1), "hidden": Width(2, 2), "outputs": Width(1, 1), "blocks": 1, "heads": 2}
    nets = {
        "gatr": GATr(geometry("E", 2), **widths),
        "axial": AxialGATr(geometry("P", 2), **widths),
        "model": model(geometry("E", 2), {"p": "point"}, {"q": "point"}, hidden=Width(2, 2), blocks=1, heads=2),
    }
    for name, net in nets.items():
        checkpoint.save(net, folder / f"{name}.safetensors")
    return [folder / f"{name}.safetensors" for name in nets]


def checkpoint_descriptions(folder: Path) -> Prepared:
    stored = []
    for path in write_checkpoints(folder):
        with safe_open(path, "pt") as file:
            stored.append((load_file(path), json.loads(file.metadata()[checkpoint.KEY])))

    def check(case: tuple[int, list[tuple[int, Any]]]) -> None:
        tensors, described = stored[case[0] % len(stored)]
        text = json.dumps(exchanged(described, case[1])).encode("utf-8", "replace").decode()
        save_file(tensors, folder / "case.safetensors", metadata={checkpoint.KEY: text})
        checkpoint.load(folder / "case.safetensors")

    return lambda random: (random.randrange(len(stored)), swaps(random)), check


def state_file(folder: Path) -> tuple[TrainingState, Path]:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 3)).square().sum().backward()
    optimiser.step()
    history = History(3, 1.0, 0.5, 2, 0, [0.5] * 3, [0.5], [(2, 0.5, 0.5)])
    state = TrainingState(net, optimiser, history, None, dict(net.state_dict()))
    state.save(folder / "state.safetensors")
    return state, folder / "state.safetensors"


def states(folder: Path) -> Prepared:
    state, path = state_file(folder)
    whole, tensors = path.read_bytes(), load_file(path)
    with safe_open(path, "pt") as file:
        record = json.loads(file.metadata()["record"])
    place = folder / "case.safetensors"

    def check(case: tuple[list[tuple[int, int, int]], list[tuple[int, Any]], int]) -> None:
        if case[2] % 2:
            place.write_bytes(mutate(whole, case[0]))
        else:
            text = json.dumps(exchanged(record, case[1])).encode("utf-8", "replace").decode()
            kept = {name: x for i, (name, x) in enumerate(tensors.items()) if case[2] % 3 or i != case[2] % len(tensors)}
            save_file(kept, place, metadata={"record": text})
        state.restore(state.read(place, 10))
        assert 0 <= state.history.step <= 10

    return lambda random: (changes(random), swaps(random), random.randrange(1001)), check


def json_target(
    name: str, what: str, record: Callable[[Path], Any], read: Callable[[Path, str], None], share: float = 1.0
) -> Target:
    """A reader of JSON whose nodes are exchanged, and whose bytes are damaged now and then."""

    def prepare(folder: Path) -> Prepared:
        whole = record(folder)

        def check(case: tuple[list[tuple[int, Any]], list[tuple[int, int, int]], bool]) -> None:
            text = json.dumps(exchanged(whole, case[0])).encode("utf-8", "replace")
            read(folder, (mutate(text, case[1]) if case[2] else text).decode("utf-8", "replace"))

        return lambda random: (swaps(random), changes(random), random.random() < 0.5), check

    return Target(name, what, prepare, share)


def run_record(folder: Path) -> dict[str, Any]:
    kinds = {"position": "point", "velocity": "vector"}
    return {
        "version": 1,
        "source": {
            "path": "x.npz",
            "inputs": kinds,
            "targets": {"final": "point"},
            "dim": None,
            "per": None,
            "normalise": True,
        },
        "task": {"inputs": kinds, "targets": {"final": "point"}, "dim": 3, "per": "token"},
        "recipe": recipe("laptop", "E").to_json(),
        "normaliser": {part: {name: [1.0] * 3 for name in (*kinds, "final")} for part in ("shift", "scale")},
        "command": "anygatr train",
        "environment": {"torch": "2"},
    }


def read_run(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    run = TrainingRun.open(folder)
    assert run.recipe.blocks <= 1000


def comparison(folder: Path) -> list[dict[str, Any]]:
    row = {
        "model": "E",
        "size": 10,
        "seed": 0,
        "status": "ok",
        "error": None,
        "parameters": 10,
        "spikes": 0,
        "nonfinite": False,
    }
    row |= {"metrics": {"eval": {"mse": 0.1, "median": 0.1}, "val": {"mse": 0.2}}, "curve": [[1, 0.5, 0.6], [2, 0.4, 0.5]]}
    row |= {
        "config": {"lr": 0.1},
        "seconds": 1.0,
        "milliseconds_per_step": 2.0,
        "training_memory_mb": 3.0,
        "equivariance": 1e-6,
    }
    asked = {
        "version": 1,
        "data": {"name": "d", "fields": {"p": "point"}, "targets": {"q": "point"}, "dim": 3, "per": "token"},
    }
    asked |= {
        "models": ["E", "C"],
        "sizes": [10],
        "seeds": [0, 1],
        "command": "anygatr compare",
        "environment": {"torch": "2"},
    }
    return [asked, row, row | {"model": "C"}, row | {"seed": 1}]


def read_comparison(folder: Path, text: str) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        parts = json.loads(text)
        parts = parts if isinstance(parts, list) and parts else [parts]
        lines = "\n".join(json.dumps(part) for part in parts[1:])
        (folder / "experiment.json").write_bytes(json.dumps(parts[0]).encode("utf-8", "replace"))
        (folder / "rows.jsonl").write_bytes(lines.encode("utf-8", "replace"))
    summarise(folder)
    _page(load_rows(folder))


def predictions(folder: Path) -> list[Path]:
    asked, *rows = comparison(folder)
    (folder / "experiment.json").write_text(json.dumps(asked))
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(2, 4, 3)) for name in ("p", "target/q", "prediction/q")}
    np.savez(folder / "E.npz", **arrays)
    (folder / "predictions").mkdir()
    return [folder / "E.npz"]


def read_predictions(path: Path) -> None:
    path.replace(path.parent / "predictions" / "E.npz")
    _page(load_rows(path.parent))


def metrics_log(folder: Path) -> Prepared:
    whole = "".join(json.dumps({"step": i, "loss": 0.5}) + "\n" for i in range(5)).encode()

    def check(case: tuple[list[tuple[int, int, int]], Any]) -> None:
        line = json.dumps(case[1]).encode("utf-8", "replace")
        (folder / "metrics.jsonl").write_bytes(mutate(whole, case[0]) + line + b"\n")
        with MetricsLog(folder / "metrics.jsonl", 3) as log:
            log.write(4, loss=1.0)

    return lambda random: (changes(random), value(random)), check


def settings(folder: Path) -> Prepared:
    """Recipes, n-body settings, declared fields and names of models, from arbitrary values."""
    base, names = recipe("laptop", "E").to_json(), list(recipe("laptop", "E").to_json())
    numbers = [field.name for field in fields_of(NBodyConfig) if isinstance(field.default, int | float)]

    def word(random: Random) -> str:
        return random.choice(TEXTS) if random.randrange(2) else text(random, 12)

    def draw(random: Random) -> tuple[int, Any, list[str], str]:
        fields = [word(random) + random.choice((":", "::", "")) + word(random) for _ in range(random.randrange(4))]
        name = f"{random.choice(('E', 'C', 'iP', 'transformer', 'Q'))},{word(random)}={word(random)}"
        return random.randrange(1001), value(random), fields, name

    def check(case: tuple[int, Any, list[str], str]) -> None:
        trials: list[Callable[[], Any]] = [
            lambda: Recipe.from_json(base | {names[case[0] % len(names)]: case[1]}),
            lambda: parse_fields(case[2]),
            lambda: check_names([case[3]]),
            lambda: NBodyConfig(**{numbers[case[0] % len(numbers)]: case[1]}),
        ]
        kind = (
            trials[case[0] % 3] if not isinstance(case[1], int | float) or isinstance(case[1], bool) else trials[case[0] % 4]
        )
        kind()

    return draw, check


COMMANDS = [
    "algebra 3 0 1",
    "maps E --dim 2 --order 1 --json",
    "expressivity E --dim 2 --order 2 --products geometric",
    "inspect small.npz",
    "train --data small.npz --inputs x:point --target y:point --model Q --steps 1 --blocks 1 --out folder/r",
    "evaluate folder --batch 1",
    "certify folder",
    "predict folder --data small.npz --out p.npz --batch 2",
    "compare --data small.npz --inputs x:point --target y:point --models Q --sizes 1 --seeds 1 --out folder/c",
    "report folder",
    "advise --inputs x:point --target y:point --tokens 5 --dim 2",
    "choose --data small.npz --inputs x:point --target y:vector --minutes 0 --out folder/w",
    "export folder --out e.onnx",
]
"""Valid commands, or nearly so: those that would train ask for a model that does not exist."""
OPTIONS = [
    "--json",
    "--out",
    "--data",
    "--dim",
    "--order",
    "--steps",
    "--inputs",
    "--target",
    "--memory",
    "--batch",
    "--model",
]
OPTIONS += ["--threads", "--size", "--seed", "--blocks", "--help", "--force", "--group", "--products", "--patience", "--lr"]
ARGUMENTS = [
    "0",
    "1",
    "2",
    "-1",
    "nan",
    "1e400",
    "E",
    "C",
    "P,norm=abs",
    "3,0,1",
    "12,0,0",
    "9",
    "x:point",
    "x:",
    "small.npz",
]
ARGUMENTS += ["missing.npz", "broken.npz", "folder", "nbody", "arteries", "join", "pin", "SE3", *TEXTS]


def takes_long(words: list[str]) -> bool:
    """Whether this could be a valid command that takes minutes: large algebras, training, or making a data set."""
    if words[0] in ("maps", "expressivity", "advise", "algebra"):
        return bool({"9", "12,0,0", "3,0,1"} & set(words)) or ("C" in words and "2" in words)
    if words[0] in ("train", "compare", "choose"):
        return (
            "--data" not in words or bool({"nbody", "arteries"} & set(words)) or (words[0] != "choose" and "Q" not in words)
        )
    return "nbody" in words


def changed_command(random: Random) -> list[str]:
    """A command with up to three of its words exchanged, removed or inserted."""
    words = random.choice(COMMANDS).split()
    for _ in range(random.randrange(4)):
        at, new = random.randrange(1, len(words) + 1), random.choice(random.choice((OPTIONS, ARGUMENTS)))
        words[at : at + random.randrange(2)] = [new] if random.randrange(4) else []
    return words


def command_line(folder: Path) -> Prepared:
    """Commands with arbitrary words; those that would really train have no model."""
    rng = np.random.default_rng(0)
    np.savez(folder / "small.npz", x=rng.normal(size=(3, 2, 3)), y=rng.normal(size=(3, 2, 3)))
    (folder / "broken.npz").write_bytes(b"PK\x03\x04" + bytes(50))
    (folder / "folder").mkdir()

    def draw(random: Random) -> list[str]:
        while True:
            words = changed_command(random)
            if not takes_long(words) and ("--help" not in words or random.randrange(8) == 0):
                return words

    def check(case: list[str]) -> None:
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                main(case)
            except SystemExit as end:
                said = end.code if isinstance(end.code, str) else ""
                assert "\x1b" not in said
                raise ValueError("refused") from None

    return draw, check


TARGETS = {
    target.name: target
    for target in (
        Target("npz", ".npz files, loaded and inspected", damaged_archives, 1.1),
        bytes_target("hdf5", ".h5 files, loaded and inspected", write_h5, read_data, 0.8),
        bytes_target("arteries", "artery files", write_arteries, read_arteries, 0.9),
        bytes_target("surfaces", ".vtp, .ply and .stl surfaces", write_surfaces, read_surface, 1.1),
        bytes_target("checkpoints", "checkpoints, bytes damaged", write_checkpoints, checkpoint.load),
        Target("descriptions", "checkpoints, fields of their configuration exchanged", checkpoint_descriptions, 0.3),
        Target("states", "states of runs", states),
        json_target("runs", "config.json of runs", run_record, read_run),
        json_target("rows", "experiment.json and rows, up to the page", comparison, read_comparison, 0.2),
        bytes_target("predictions", "predictions shown in a report", predictions, read_predictions, 0.12),
        Target("metrics", "metrics.jsonl of a run that is resumed", metrics_log),
        Target("settings", "recipes, data settings, field declarations, names of models", settings),
        Target("commands", "the command line", command_line, 0.06),
    )
}


def is_sound(message: str) -> bool:
    """Whether a refusal is something to show: not empty, not endless."""
    return bool(message) and len(message) < 4000 and math.isfinite(len(message))
