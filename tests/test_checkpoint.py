"""Checkpoints come back as they were, and files that are not whole, not ours or not honest are refused before they cost."""

import ast
import importlib
import json
import os
import pickle
import resource
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, safe_open, save_file

from anygatr import AxialGATr, ConditionalGATr, GATr, checkpoint
from anygatr.algebra import Algebra
from anygatr.checkpoint import FORMAT, KEY, load, save
from anygatr.equivariance.symmetry import spin
from anygatr.interface.model import model
from anygatr.nn import Width
from anygatr.spaces.declaration import describe, fingerprint
from anygatr.spaces.features import Inner
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

WIDTHS = {"inputs": Width(2, 1), "hidden": Width(4, 6), "outputs": Width(1, 2), "blocks": 1, "heads": 2}


def _gatr():
    return GATr(geometry("C", 2), **WIDTHS, reinsert=(1,), rope=True, dropout=0.1)


def _headed():
    geo = geometry("iP", norm_form="clamp", norm_eps=0.03, features=(Inner.of(Algebra(3, 0, 1)),), products=("join",))
    options = {"head": Width(1, 3), "multi_query": False, "values_see_inputs": True, "reinsert": [0], "mlp_ratio": 1}
    return GATr(geo, **WIDTHS, **options, inner_norm=True, scalar_gelu="tanh")


def _conditional():
    return ConditionalGATr(geometry("L", mirrors=False), condition=Width(1, 2), **WIDTHS)


def _axial():
    return AxialGATr(geometry("E", 2), **WIDTHS, multi_query=False)


def _model():
    inputs = {"position": "point", "mass": "scalar*2"}
    per = {"final": "token", "energy": "sample"}
    targets = {"final": "point", "energy": "scalar"}
    return model(geometry("P", 2), inputs, targets, Width(4, 6), 1, 2, per, "mean", ["position"], rope=True)


NETWORKS = {make.__name__.strip("_"): make for make in (_gatr, _headed, _conditional, _axial, _model)}


def outputs(net):
    torch.manual_seed(1)
    if hasattr(net, "targets"):
        dtype = next(net.parameters()).dtype
        out = net(position=torch.randn(4, 2, dtype=dtype), mass=torch.randn(4, 2, dtype=dtype))
        return list(out.values())
    with torch.no_grad():
        return list(net(*net.example(3)))


def whole(path):
    """The tensors and the description of a file."""
    with safe_open(path, framework="pt") as file:
        return load_file(path), json.loads(file.metadata()[KEY])


def forged(path, tensors, description):
    save_file(tensors, path, metadata={KEY: description if isinstance(description, str) else json.dumps(description)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_round_trip(make, dtype, tmp_path):
    net = make().to(dtype).eval()
    save(net, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert type(again) is type(net)
    assert checkpoint.geometry_of(again) == checkpoint.geometry_of(net)
    assert json.dumps(again.config) == json.dumps(net.config)
    assert not again.training
    state = net.state_dict()
    assert {name: p.dtype for name, p in again.named_parameters()} == {name: dtype for name, _ in net.named_parameters()}
    assert all(torch.allclose(tensor, state[name], 0, 0, equal_nan=True) for name, tensor in again.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(outputs(again), outputs(net), strict=True))


def test_mixed_dtypes_are_kept(tmp_path):
    net = _gatr()
    net.blocks[0].to(torch.bfloat16)
    save(net, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert {name: p.dtype for name, p in again.named_parameters()} == {name: p.dtype for name, p in net.named_parameters()}
    assert again.blocks[0].mlp.out.combinations.dtype == torch.bfloat16


@pytest.mark.slow
def test_compiled_network_is_saved_as_itself(tmp_path):
    net = _axial()
    save(torch.compile(net), tmp_path / "m.safetensors")
    assert list(load(tmp_path / "m.safetensors").state_dict()) == list(net.state_dict())


def test_other_modules_are_refused(tmp_path):
    with pytest.raises(ValueError, match="model is a Linear"):
        save(torch.nn.Linear(1, 1), tmp_path / "m.safetensors")


def custom(**changes):
    """G(2, 0, 0) with the rotations of the plane, declared by hand."""
    alg = Algebra(2)
    return Geometry(alg, spin(alg), axes=("e1", "e2"), **{"point": "relative", "name": "plane", **changes})


def test_custom_geometry_comes_back_by_declaration(tmp_path):
    net = GATr(custom(), **WIDTHS)
    save(net, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="its geometry 'plane' is not a preset; pass it"):
        load(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", geometry=custom())
    assert all(torch.equal(a, b) for a, b in zip(outputs(again), outputs(net), strict=True))
    for wrong in (custom(norm="abs"), custom(norm_eps=0.1), custom(features=(Inner((0,), (1.0,)),)), geometry("E", 2)):
        with pytest.raises(ValueError, match="is not the 'plane' it was saved with"):
            load(tmp_path / "m.safetensors", geometry=wrong)


def test_preset_changed_by_hand_is_custom():
    assert describe(geometry("C", 2, mirrors=False, norm="abs"))["preset"]["overrides"] == {"norm": "abs"}
    assert describe(replace(geometry("C", 2), ideal=2 * geometry("C", 2).infinity))["preset"] is None


def test_fingerprints_tell_geometries_apart():
    c = geometry("C", 2)
    others = [
        geometry("C", 2, mirrors=False),
        geometry("P", 2),
        geometry("E", 4),
        *(replace(c, **change) for change in ({"norm": "abs"}, {"norm_form": "clamp"}, {"norm_eps": 0.02})),
        replace(c, init="kaiming"),
        replace(c, features=(Inner((0,), (1.0,)),)),
        geometry("iP", 2),
        geometry("iP", 2, products=("join",)),
        geometry("iP", 2, join_reference="canonical"),
    ]
    assert len({fingerprint(geo) for geo in (c, *others)}) == 1 + len(others)
    assert fingerprint(geometry("C", 2)) == fingerprint(c)


def test_fingerprint_sees_the_maps(monkeypatch):
    """Weights are coefficients of the maps: the same geometry with its maps in another order is another."""
    geo = geometry("E", 2)
    before = fingerprint(geo)
    monkeypatch.setitem(vars(geo), "linear_basis", replace(geo.linear_basis, tensor=geo.linear_basis.tensor.flip(0)))
    assert fingerprint(geo) != before


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.999])
def test_truncated_file_is_refused(share, tmp_path):
    path = tmp_path / "m.safetensors"
    save(_axial(), path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"m.safetensors is not a whole safetensors file"):
        load(path)


class Bomb:
    went_off = False

    def __reduce__(self):
        return setattr, (Bomb, "went_off", True)


def test_pickles_are_never_opened(tmp_path):
    path = tmp_path / "m.safetensors"
    for write in (lambda: torch.save(Bomb(), path), lambda: path.write_bytes(pickle.dumps(Bomb()))):
        write()
        with pytest.raises(ValueError, match="is not a whole safetensors file"):
            load(path)
    assert not Bomb.went_off
    pickle.loads(pickle.dumps(Bomb()))
    assert Bomb.went_off  # the control: it would have


def test_foreign_file_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    for metadata in (None, {"format": "pt"}):
        save_file({"weight": torch.zeros(3)}, path, metadata=metadata)
        with pytest.raises(ValueError, match=r"not one of ours.*anygatr.convert"):
            load(path)


def test_missing_files_and_directories_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="is a directory; pass the file in it"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="directory that does not exist; create"):
        save(_axial(), tmp_path / "none" / "m.safetensors")


def test_newer_format_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    save(_axial(), path)
    tensors, described = whole(path)
    forged(path, tensors, {"version": FORMAT + 1, "something": "new"})
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}, newer than {FORMAT}; upgrade"):
        load(path)
    forged(path, tensors, described)
    load(path)


def _set(*keys):
    def change(described, value):
        inner = described
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        return described

    return change


HUGE = 10**12
SMALL = {"inputs": [1, 1], "hidden": [2, 2], "outputs": [1, 1], "blocks": 1, "heads": 2}
HOSTILE = {
    "text": (lambda described, value: value, "hello", "not JSON"),
    "deep": (lambda described, value: value, "[" * 100_000, "not JSON"),
    "list": (lambda described, value: value, "[1]", "no format version"),
    "version": (_set("version"), "1", "no format version"),
    "version 0": (_set("version"), 0, "no format version"),
    "network": (_set("network"), "os.system", "network='os.system' is not one of"),
    "no config": (_set("config"), None, "config=None"),
    "unknown argument": (_set("config", "depth"), 3, "does not build"),
    "hidden": (_set("config", "hidden"), [HUGE, HUGE], "needs at least"),
    "hidden scalars": (_set("config", "hidden"), [0, HUGE], "needs at least"),
    "hidden text": (_set("config", "hidden"), "ab", "does not build"),
    "negative": (_set("config", "inputs"), [-1, 2], "non-negative"),
    "inputs": (_set("config", "inputs"), [HUGE, 1], "needs at least"),
    "outputs": (_set("config", "outputs"), [1, HUGE], "needs at least"),
    "blocks": (_set("config", "blocks"), HUGE, "needs at least"),
    "heads": (_set("config", "heads"), HUGE, "heads="),
    "head": (_set("config", "head"), [HUGE, 1], "needs at least"),
    "many heads": (
        lambda d, value: _set("config", "heads")(_set("config", "head")(d, [1, 1]), value),
        HUGE,
        "needs at least",
    ),
    "ratio": (_set("config", "mlp_ratio"), HUGE, "needs at least"),
    "blocks text": (_set("config", "blocks"), "9" * 30, "does not build"),
    "blocks without weights": (_set("config", "blocks"), 4000, "blocks=4000 needs at least as many tensors"),
    "negative ratio": (_set("config"), {**SMALL, "hidden": [3000, 3000], "mlp_ratio": -1}, "mlp_ratio=-1"),
    "wide": (_set("config"), {**SMALL, "hidden": [500, 500]}, "needs at least"),
    "wide heads": (_set("config"), {**SMALL, "heads": 1000, "head": [4000, 4000]}, "needs at least"),
    "reinserted often": (_set("config", "reinsert"), [0] * 100_000, "100,000 entries"),
    "long description": (_set("config", "scalar_gelu"), "x" * 2**21, "characters; files may have"),
    "network list": (_set("network"), [], r"network=\[\] is not one of"),
    "nested": (_set("config", "reinsert"), json.loads("[" * 20 + "]" * 20), "nested deeper"),
    "infinite": (_set("config", "dropout"), float("inf"), "must be a finite number"),
    "huge integer": (_set("config", "blocks"), 10**4000, "needs at least"),
    "preset": (_set("geometry", "preset", "name"), "Z", "is not a geometry"),
    "preset list": (_set("geometry", "preset"), [1], "must have name, dim"),
    "preset name": (_set("geometry", "preset", "name"), ["C"], "needs a name"),
    "dim": (_set("geometry", "preset", "dim"), 40, "files may ask for up to"),
    "dim text": (_set("geometry", "preset", "dim"), "2", "dim='2'"),
    "norm": (_set("geometry", "preset", "overrides"), {"norm_eps": float("nan")}, "norm_eps=nan"),
    "override": (_set("geometry", "preset", "overrides"), {"name": "x"}, "multiple values"),
    "feature": (_set("geometry", "preset", "overrides"), {"features": [{"type": "Popen", "args": "ls"}]}, "files may have"),
    "feature field": (_set("geometry", "preset", "overrides"), {"features": [{"type": "Inner", "size": 3}]}, "Inner"),
    "fingerprint": (_set("geometry", "fingerprint"), "0" * 32, "weights would mean something else"),
}


@pytest.mark.parametrize(("change", "value", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_description_is_refused_before_it_costs(change, value, message, tmp_path):
    path = tmp_path / "m.safetensors"
    save(_gatr(), path)
    tensors, described = whole(path)
    forged(path, tensors, change(described, value))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=message) as error:
        load(path)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 3000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


@pytest.mark.parametrize(
    ("kind", "message"),
    [("point*1000000000", "1000000004 objects"), ("scalar*5000", "5004 objects"), ("scalar*1" + "0" * 5000, "digits")],
    ids=["points", "scalars", "digits"],
)
def test_hostile_fields_are_refused(kind, message, tmp_path):
    path = tmp_path / "m.safetensors"
    save(_model(), path)
    tensors, described = whole(path)
    described["config"]["inputs"]["position"] = kind
    forged(path, tensors, described)
    with pytest.raises(ValueError, match=f"does not build a Model.*{message}"):
        load(path)


def test_all_wrong_tensors_are_in_one_error(tmp_path):
    path = tmp_path / "m.safetensors"
    save(_gatr(), path)
    tensors, described = whole(path)
    del tensors["linear_in.s_to_s"]
    tensors["linear_out.bias_s"] = torch.zeros(5)
    tensors["blocks.0.mlp.out.bias_s"] = tensors["blocks.0.mlp.out.bias_s"].long()
    tensors["more"] = torch.zeros(2, 3)
    forged(path, tensors, described)
    with pytest.raises(ValueError, match="its tensors are not those") as error:
        load(path)
    for line in (
        "missing: linear_in.s_to_s (6, 1)",
        "unknown: more (2, 3)",
        "misshaped: linear_out.bias_s (5,), expected (2,)",
        "not a floating point type: blocks.0.mlp.out.bias_s I64",
    ):
        assert line in str(error.value)


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    save(_axial(), path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        save(_gatr(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_file_obeys_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        save(_axial(), tmp_path / "m.safetensors")
    finally:
        os.umask(old)
    assert (tmp_path / "m.safetensors").stat().st_mode & 0o777 == 0o640


def test_files_of_format_1_stay_readable():
    """Written once by `save`; it changes with FORMAT alone, because users have such files."""
    net = load(Path(__file__).parent / "golden" / "checkpoint_1.safetensors")
    expected = load_file(Path(__file__).parent / "golden" / "checkpoint_1_outputs.safetensors")
    with torch.no_grad():
        y, t = net(expected["x"], expected["s"])
    assert torch.allclose(y, expected["y"], atol=1e-12, rtol=0)
    assert torch.allclose(t, expected["t"], atol=1e-12, rtol=0)


def _shared(base):
    from anygatr.hub import HubMixin

    return type("Shared", (HubMixin, base), {"__doc__": "A network for the hub."})


def test_hub_round_trip_through_a_directory(tmp_path):
    pytest.importorskip("huggingface_hub")
    shared = _shared(GATr)
    net = shared(geometry("C", 2), **WIDTHS).double()
    net.save_pretrained(tmp_path / "net")
    assert sorted(os.listdir(tmp_path / "net")) == ["README.md", "config.json", "model.safetensors"]
    card = (tmp_path / "net" / "README.md").read_text()
    for text in ("library_name: anygatr", "Equivariant under E(2)", "float64", "| blocks | `1` |", "import GATr"):
        assert text in card
    again = shared.from_pretrained(tmp_path / "net")
    assert type(again) is shared
    assert all(torch.equal(a, b) for a, b in zip(outputs(again), outputs(net.eval()), strict=True))
    assert type(load(tmp_path / "net" / "model.safetensors")) is GATr
    os.remove(tmp_path / "net" / "config.json")  # the checkpoint alone is enough
    assert type(shared.from_pretrained(tmp_path / "net")) is shared
    with pytest.raises(ValueError, match="it holds a GATr, not a Shared"):
        _shared(AxialGATr).from_pretrained(tmp_path / "net")


def test_hub_takes_custom_geometries(tmp_path):
    pytest.importorskip("huggingface_hub")
    shared = _shared(GATr)
    shared(custom(), **WIDTHS).save_pretrained(tmp_path)
    assert "geometry=your_geometry" in (tmp_path / "README.md").read_text()
    assert shared.from_pretrained(tmp_path, geometry=custom()).geometry == custom()


def test_pushed_card_names_its_repository(tmp_path, monkeypatch):
    hub_mixin = pytest.importorskip("huggingface_hub.hub_mixin")
    pushed = {}

    class Api:
        def __init__(self, token=None):
            pass

        def create_repo(self, repo_id, **options):
            return type("Repository", (), {"repo_id": repo_id})

        def upload_folder(self, *, folder_path, **options):
            pushed.update({path.name: path.read_bytes() for path in Path(folder_path).iterdir()})
            return "done"

    monkeypatch.setattr(hub_mixin, "HfApi", Api)
    assert _shared(GATr)(geometry("E", 2), **WIDTHS).push_to_hub("me/net") == "done"
    assert b'from_pretrained("me/net")' in pushed["README.md"]
    assert set(pushed) == {"README.md", "config.json", "model.safetensors"}


def test_core_does_without_the_hub(monkeypatch):
    """No other module imports huggingface_hub; its own says how to get it."""
    package = Path(checkpoint.__file__).parent
    users = [path.name for path in package.rglob("*.py") if "import huggingface_hub" in _imports(path)]
    assert users == ["hub.py"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "anygatr.hub", raising=False)
    with pytest.raises(ImportError, match=r"pip install anygatr\[hub\]"):
        importlib.import_module("anygatr.hub")


def _imports(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return [f"import {name.partition('.')[0]}" for name in names]
