"""The peers' benchmarks: their definitions, their random streams, and that the laboratory knows them."""

import numpy as np
import pytest

from anygatr.lab.config.commands import TrainConfig
from anygatr.lab.data.peers import charged
from anygatr.lab.data.peers.config import ChargedConfig, HullsConfig, O3Config, O5Config
from anygatr.lab.data.peers.kind import BENCHMARKS
from anygatr.lab.data.peers.samples import SAMPLES
from anygatr.lab.data.registry import spec_of, stored_spec
from anygatr.lab.training.train import train

KINDS = {kind.name: kind for kind in BENCHMARKS}
SMALL = {
    "o3": O3Config(train=40, val=8, eval=8),
    "o5": O5Config(train=40, val=8, eval=8),
    "hulls": HullsConfig(train=40, val=8, eval=8, dim=4, points=7),
}


def rows(name, config, split, size):
    chunks = [rows for rows, _ in SAMPLES[name](config, split, size)]
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def test_signed_volume_is_a_tenth_of_the_triple_product():
    made = rows("o3", O3Config(), "train", 50)
    triple = (np.cross(made["a"], made["b"]) * made["c"]).sum(-1)
    np.testing.assert_allclose(made["volume"], triple / 10, atol=1e-14)
    assert made["volume"].std() > 0.1


def test_o5_is_the_published_function():
    made = rows("o5", O5Config(), "train", 20)
    for a, b, y in zip(made["a"][:, 0], made["b"][:, 0], made["y"][:, 0], strict=True):
        length = [sum(c * c for c in v) ** 0.5 for v in (a, b)]
        cosine = sum(p * q for p, q in zip(a, b, strict=True)) / (length[0] * length[1])
        assert y == pytest.approx(np.sin(length[0]) - length[1] ** 3 / 2 + cosine, abs=1e-12)


def test_hulls_of_simplices_have_the_volume_of_their_determinant():
    made = rows("hulls", HullsConfig(dim=4, points=5), "eval", 20)
    edges = made["x"][:, 1:] - made["x"][:, :1]
    np.testing.assert_allclose(made["volume"], np.abs(np.linalg.det(edges)) / 24, rtol=1e-9)


@pytest.mark.parametrize("name", list(SMALL))
def test_a_smaller_set_is_a_prefix_and_sets_differ(name):
    big, small = rows(name, SMALL[name], "train", 40), rows(name, SMALL[name], "train", 7)
    other = rows(name, SMALL[name], "val", 7)
    for key in small:
        np.testing.assert_array_equal(big[key][:7], small[key])
        assert not np.array_equal(other[key], small[key])


def test_charged_forces_are_coulomb_and_clipped():
    random = np.random.default_rng(0)
    x, q = random.normal(size=(3, 5, 2)), random.choice([-1.0, 1.0], size=(5, 2))
    x[:, 1, 1] = x[:, 0, 1] + 1e-3
    found = charged.forces(x, q[:, None] * q[None])
    for sample in range(2):
        for i in range(5):
            total = np.zeros(3)
            for j in set(range(5)) - {i}:
                d = x[:, i, sample] - x[:, j, sample]
                total += q[i, sample] * q[j, sample] * d / np.linalg.norm(d) ** 3
            np.testing.assert_allclose(found[:, i, sample], total.clip(-100, 100), rtol=1e-12, atol=1e-14)
    assert np.abs(found[:, 0, 1]).max() == 100


def test_charged_samples_come_from_the_original_stream(monkeypatch):
    """The second validation sample: 10 001 samples of five charges and 2 * 15 + 2 * 735 normal numbers before it."""
    monkeypatch.setattr(charged, "SNAPSHOT", 1)
    monkeypatch.setattr(charged, "TARGET", 2)
    made = rows("charged", ChargedConfig(), "val", 2)
    stream = np.random.RandomState(43)
    for _ in range(10_001):
        stream.random_sample(5)
        stream.randn(1500)
    charge = np.where(stream.random_sample(5) < 0.5, 1.0, -1.0)
    x, v = stream.randn(3, 5), stream.randn(3, 5)
    v *= 0.5 / np.sqrt((v * v).sum(0))
    np.testing.assert_array_equal(made["charge"][1], charge)
    kicked = v + 1e-3 * charged.forces(x[..., None], np.outer(charge, charge)[..., None])[..., 0]
    np.testing.assert_allclose(made["velocity"][1], kicked.T, atol=1e-12)
    np.testing.assert_allclose(made["position"][1], (x + 1e-3 * kicked).T, atol=1e-12)


def test_momentum_of_charged_particles_is_conserved():
    random = np.random.default_rng(1)
    x, v, q = random.normal(size=(3, 5, 4)) * 3, random.normal(size=(3, 5, 4)), random.choice([-1.0, 1.0], size=(5, 4))
    (_, before), (_, after) = charged.simulate(q, x, v)
    np.testing.assert_allclose(after.sum(1), before.sum(1), atol=1e-10)
    assert np.abs(after - before).max() > 0.01


def test_more_charged_samples_than_the_original_draws_are_refused():
    with pytest.raises(ValueError, match="train=10001: the original generator makes 10000 samples"):
        ChargedConfig(train=10_001)


@pytest.mark.parametrize("name", list(SMALL))
def test_the_laboratory_recognises_its_files_and_trains_on_them(name, tmp_path):
    out = str(tmp_path / name)
    config = type(SMALL[name])(**{**SMALL[name].__dict__, "out": out})
    KINDS[name].generate(config)
    spec = spec_of(TrainConfig(data=out))
    assert spec.kind.name == name
    assert stored_spec(spec.to_json()) == spec
    data = spec.load()
    assert (data.dim, len(data.splits["train"])) == (config.space, 40)
    row = train(TrainConfig(data=out, model="E", steps=2, batch=8, blocks=2, out=str(tmp_path / "run"), threads=1))
    assert row["status"] == "ok"


def test_files_of_other_parameters_are_not_replaced(tmp_path):
    KINDS["o3"].generate(O3Config(out=str(tmp_path), train=4, val=0, eval=0))
    with pytest.raises(ValueError, match=r"holds another train\.npz \(seed=0\)"):
        KINDS["o3"].generate(O3Config(out=str(tmp_path), train=4, val=0, eval=0, seed=1))
    with pytest.raises(ValueError, match=r"holds another train\.npz"):
        KINDS["o5"].generate(O5Config(out=str(tmp_path), train=4, val=0, eval=0))
