"""Advice that looks at the data: copies, sums, places far away, mirrors, what to beat."""

import json

import numpy as np
import pytest
from samples import DRIFT, drift
from test_chirality import corners
from test_molecule_runs import molecules

from anygatr.lab.comparison.advise import advise
from anygatr.lab.comparison.probe import probe
from anygatr.lab.config.commands import AdviseConfig, DataOptions
from anygatr.lab.data.registry import spec_of


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("anygatr.lab.comparison.probe.SECONDS", 1.0)


def said(path: str, inputs: tuple[str, ...], target: tuple[str, ...], **more) -> dict[str, str]:
    spec = spec_of(DataOptions(data=path, inputs=inputs, target=target, **more))
    found = probe(spec, spec.load(), ("E", "P"))
    return {remark.about: str(remark) for remark in found}


def test_what_a_plain_file_says(tmp_path):
    found = said(str(drift(tmp_path / "d.npz", samples=200)), **DRIFT)
    assert set(found) == {"size", "to beat"}
    assert "160 to learn from, of 4 tokens" in found["size"]
    assert "'linear' is the one that counts" in found["to beat"] or "'constant velocity'" in found["to beat"]


def test_what_will_hurt_is_said(tmp_path):
    rng = np.random.default_rng(0)
    place = rng.normal(size=(40, 4, 3)) + 1e4
    place[1] = place[0]
    mass = rng.uniform(1, 2, (40, 4))
    mass[1] = mass[0]
    split = np.array(["train"] * 30 + ["val"] * 5 + ["test"] * 5)
    force = place - place.mean(1, keepdims=True)
    np.savez(tmp_path / "x.npz", place=place, mass=mass, force=force, split=split)
    found = said(str(tmp_path / "x.npz"), ("place:point", "mass:scalar"), ("force:vector",))
    assert "errors will be uncertain" in found["size"]
    assert "1 training samples repeat another one" in found["copies"]
    assert "times their extent away from 0" in found["place"]
    assert "cannot predict the vector 'force'" in found["P"]
    ragged = said(str(molecules(tmp_path / "m.npz")), ("pos:point", "symbol:category"), ("energy:scalar",))
    assert "use --pool sum" in ragged["energy"]


def test_mirrors_are_told_exactly_where_samples_are_flat(tmp_path):
    fields = {"inputs": ("place:point", "atom:category"), "target": ("beta:point",), "per": "sample"}
    found = said(corners(tmp_path / "c.npz"), **fields)
    assert "the best mirror-symmetric prediction has error 0.163 or more" in found["mirrors"]
    assert "mirrors" not in said(corners(tmp_path / "e.npz", sided=0.0), **fields)


def test_mirrors_are_told_by_mirrored_samples_where_samples_are_not_flat(tmp_path):
    """The part of each velocity along the cross product of two others has a hand; drifting on has none."""
    rng = np.random.default_rng(0)
    place, velocity = rng.normal(size=(2, 300, 4, 3))
    near = place - place.mean(1, keepdims=True)
    arrays = {"position": place, "velocity": velocity, "mass": np.ones((300, 4)) + 0.1 * rng.random((300, 4))}
    np.savez(tmp_path / "h.npz", **arrays, push=np.cross(near, velocity))
    fields = {"inputs": DRIFT["inputs"], "target": ("push:vector",)}
    assert "times its error on mirrored samples" in said(str(tmp_path / "h.npz"), **fields)["mirrors"]
    assert "mirrors" not in said(str(drift(tmp_path / "d.npz", samples=300)), **DRIFT)


def test_the_command_takes_data(tmp_path, capsys):
    path = str(molecules(tmp_path / "m.npz"))
    advise(AdviseConfig(data=path, inputs=("pos:point", "symbol:category"), target=("energy:scalar",), mv=4, s=8, json=True))
    found = json.loads(capsys.readouterr().out)
    assert {remark["about"] for remark in found["remarks"]} >= {"size", "to beat", "energy"}
    assert found["geometries"][0]["fields"] == {"pos": "exact", "symbol": "exact", "energy": "exact"}
