"""Making arteries: bad parameters, rejections on record, resuming after a kill, reproducibility."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from anygatr.lab.data.arteries import generate as module
from anygatr.lab.data.arteries.config import ArteryConfig
from anygatr.lab.data.arteries.dataset import ArteryDataset
from anygatr.lab.data.arteries.flow.newton import NoConvergenceError
from anygatr.lab.data.arteries.generate import generate, make_artery, solve_vessel
from anygatr.lab.data.arteries.store import ArteryFile
from anygatr.lab.data.arteries.vessel import EXTENSION_DIAMETERS, Vessel, random_vessel

SAMPLE = Path(__file__).parent / "data" / "arteries.h5"
VESSEL = {"radius": 0.17, "outlet_ratio": 0.9, "length": 4.0, "reynolds": 100.0}
STENOSIS = {"position": 1.0, "length": 0.5, "severity": 0.3, "eccentricity": 0.5, "angle": 0.0}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"radius": -0.1}, "radius=-0.1 must be positive"),
        ({"radius": float("nan")}, "radius=nan must be positive and finite"),
        ({"length": 0.0}, "length=0.0 must be positive"),
        ({"bending": ((float("inf"), 0.0),)}, "must be finite"),
        ({"reynolds": 5000.0}, "reynolds=5000.0 must be at most 400"),
        ({"outlet_ratio": 0.1}, "outlet_ratio=0.1"),
        ({"stenoses": ({**STENOSIS, "severity": 1.0},)}, "severity=1.0 must lie between 0.0 and 0.5"),
        ({"stenoses": ({**STENOSIS, "eccentricity": 2.0},)}, "eccentricity=2.0"),
        ({"stenoses": ({**STENOSIS, "length": -1.0},)}, "length=-1.0"),
        ({"stenoses": ({**STENOSIS, "length": float("nan")},)}, "length=nan"),
        ({"stenoses": ({**STENOSIS, "angle": float("nan")},)}, "angle=nan must be finite"),
        ({"stenoses": (STENOSIS, {**STENOSIS, "position": 1.2})}, "position=1.2 cm overlaps"),
        ({"stenoses": ({**STENOSIS, "position": 3.9},)}, "beyond length=4.0"),
        ({"stenoses": tuple({**STENOSIS, "position": 0.5 + 0.6 * n} for n in range(4))}, "4 given, at most 3"),
    ],
)
def test_bad_vessels_are_refused_by_name(fields, words):
    with pytest.raises(ValueError, match=words):
        Vessel.from_parameters({**VESSEL, "bending": (), "stenoses": (), **fields})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"out": "a.txt"}, "out=a.txt must end in"),
        ({"count": 0}, "count=0"),
        ({"count": 20_000}, "count=20000"),
        ({"workers": 0}, "workers=0"),
        ({"seed": -1}, "seed=-1"),
        ({"resolution": "ultra"}, "resolution='ultra' is unknown; choose one of coarse, standard, fine"),
        ({"tolerance": 1.0}, "tolerance=1.0"),
    ],
)
def test_bad_settings_are_refused_by_name(fields, words):
    with pytest.raises(ValueError, match=words):
        ArteryConfig(**{"out": "a.h5", **fields})


def test_settings_import_neither_torch_nor_scipy():
    code = "import sys; import anygatr.lab.data.arteries.config; print({'torch', 'scipy', 'h5py'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


def test_random_vessels_obey_the_specification():
    vessels = [random_vessel(np.random.default_rng(n)) for n in range(200)]
    assert {len(v.stenoses) for v in vessels} == {0, 1, 2, 3}
    for vessel in vessels:
        assert vessel.extension >= 5 * 2 * vessel.radius == EXTENSION_DIAMETERS * 2 * vessel.radius
        assert Vessel.from_parameters(json.loads(json.dumps(vessel.parameters()))) == vessel
        for left, right in zip(vessel.stenoses, vessel.stenoses[1:], strict=False):
            gap = right.position - right.length / 2 - left.position - left.length / 2
            assert gap >= 2 * vessel.radius  # a diameter
    position, m1, m2, tangent = vessels[0].frames(s := np.linspace(0, vessels[0].total_length, 400))
    np.testing.assert_allclose(np.cross(m1, m2), tangent, atol=1e-9)
    slope = np.gradient(position, s, axis=0)[1:-1]
    assert np.abs(slope - tangent[1:-1]).max() < 1e-3
    twist = (np.gradient(m1, s, axis=0) * m2).sum(axis=1)[1:-1]
    assert np.abs(twist).max() < 1e-3  # parallel transport: M1 turns towards T only
    assert random_vessel(np.random.default_rng(7)) == vessels[7]


def test_provenance_is_complete():
    for artery in ArteryFile(SAMPLE):
        assert {"seed", "attempt", "resolution", "cpu_seconds", "rejected"} <= artery.attributes.keys()
        number_seed = [int(artery.attributes["seed"]), artery.number, int(artery.attributes["attempt"])]
        vessel = Vessel.from_parameters(json.loads(artery.attributes["parameters"]))
        assert random_vessel(np.random.default_rng(number_seed)) == vessel
        assert json.loads(artery.attributes["steps"])[-1]["imbalance"] == artery.attributes["imbalance"] < 1e-8
        assert artery.attributes["backflow"] < 1e-3


def test_rejections_are_recorded_not_dropped(monkeypatch):
    solved = []

    def fail_twice(vessel, resolution, tolerance):
        solved.append(vessel)
        if len(solved) <= 2:
            raise NoConvergenceError("did not converge, for the test")
        return small(vessel, resolution, tolerance)

    small = module.solve_flow
    monkeypatch.setattr(module, "MESHES", {"coarse": (1, 1, 10)})
    monkeypatch.setattr(module, "solve_flow", fail_twice)
    artery = make_artery(ArteryConfig(Path("x.h5"), resolution="coarse", tolerance=1e-4), 5)
    rejected = json.loads(artery.attributes["rejected"])
    assert [(r["artery"], r["attempt"], r["reason"]) for r in rejected] == [
        (5, n, "did not converge, for the test") for n in (0, 1)
    ]
    assert rejected[0]["parameters"]["radius"] == solved[0].radius
    assert artery.attributes["attempt"] == 2
    monkeypatch.setattr(module, "solve_flow", lambda *_: pytest.fail("must be rejected before it is solved"))
    loop = Vessel(**{**VESSEL, "bending": ((4.0, 0.0),)})
    with pytest.raises(module.RejectedError, match="of itself"):
        solve_vessel(loop, ArteryConfig(Path("x.h5")))


def test_run_continues_and_refuses_foreign_files(tmp_path):
    config = ArteryConfig(tmp_path / "set.h5", count=3, resolution="coarse")
    config.parts.mkdir()
    (config.parts / "config.json").write_text(json.dumps(config.determines()))
    (config.parts / ".sample_0002.h5.1.tmp").write_bytes(b"torn by a kill")
    with h5py.File(SAMPLE) as source:
        for n in (0, 2):
            with h5py.File(config.parts / f"sample_000{n}.h5", "w") as part:
                source.copy(f"sample_000{n}", part)
    seen = []
    report = generate(config, seen.append)
    assert [p.done for p in seen] == [2, 3]  # only the missing one was made
    assert seen[-1].eta == 0
    assert report.count == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["set.h5"]
    for ours, stored in zip(ArteryFile(config.out), ArteryFile(SAMPLE), strict=True):
        np.testing.assert_allclose(ours.wss, stored.wss, atol=1e-4 * np.abs(stored.wss).max())
    assert len(ArteryDataset(config.out)) == 3
    assert generate(config).count == 3  # nothing to do
    with pytest.raises(ValueError, match="exists with settings"):
        generate(ArteryConfig(config.out, count=3, seed=9, resolution="coarse"))
    with pytest.raises(ValueError, match="count=2 is less than the 3 arteries"):
        generate(ArteryConfig(config.out, count=2, resolution="coarse"))


@pytest.mark.slow
def test_kill_loses_only_the_artery_in_the_making(tmp_path):
    config = ArteryConfig(tmp_path / "set.h5", count=3, resolution="coarse")
    script = tmp_path / "run.py"
    script.write_text(
        "from anygatr.lab.data.arteries.config import ArteryConfig\n"
        "from anygatr.lab.data.arteries.generate import generate\n"
        f"if __name__ == '__main__':\n    generate(ArteryConfig({str(config.out)!r}, count=3, resolution='coarse'))\n"
    )
    process = subprocess.Popen([sys.executable, script], start_new_session=True)
    while not (config.parts / "sample_0000.h5").exists():
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not config.out.exists()
    shutil.copy(config.parts / "sample_0000.h5", tmp_path / "kept.h5")
    report = generate(config)
    assert report.count == 3
    with h5py.File(config.out) as file, h5py.File(tmp_path / "kept.h5") as before:
        group, old = file["sample_0000"], before["sample_0000"]
        assert group.attrs["cpu_seconds"] == old.attrs["cpu_seconds"]  # not made a second time
        np.testing.assert_array_equal(group["wss"][:], old["wss"][:])
