"""What is subtracted from targets that are sums over tokens before a network learns the rest."""

import numpy as np
import pytest
import torch

import anygatr
from anygatr import lab
from anygatr.interface.scaled import token_sums
from anygatr.lab.data.dataset import Dataset
from anygatr.lab.data.token_sums import linear_in_tokens, ridge
from anygatr.lab.training.run import TrainingRun

EACH = torch.tensor([-38.0, -0.5, -75.0], dtype=torch.float64)


def sums(samples: int, constant: float = 0.0, noise: float = 0.0, classes: int = 3) -> Dataset:
    """Targets that add up over the tokens of ragged samples, each class with a share of its own."""
    generator = torch.Generator().manual_seed(samples)
    counts = torch.randint(2, 9, (samples,), generator=generator)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    code = torch.randint(0, classes, (int(offsets[-1]),), generator=generator)
    y = token_sums({"code": code}, {"y": 0.0}, {"y": {"code": EACH.repeat(classes).tolist()}}, None, offsets)["y"] + constant
    y = y + noise * torch.randn(samples, generator=generator, dtype=torch.float64)
    return Dataset({"code": code, "y": y}, {"code": f"category*{classes}", "y": "scalar"}, ("y",), 3, "sample", offsets)


def shares(data: Dataset) -> tuple[torch.Tensor, float]:
    """What a token of each class adds in all, and the constant."""
    found = linear_in_tokens(data, "y")
    return found.each + torch.tensor(found.classes["code"], dtype=torch.float64), found.constant


@pytest.mark.parametrize("constant", [0.0, -5.5])
def test_shares_of_classes_and_a_constant_are_found_where_they_are(constant):
    each, found = shares(sums(60, constant))
    assert found == pytest.approx(constant, abs=1e-5)
    torch.testing.assert_close(each, EACH, atol=1e-5, rtol=0)


def test_noise_makes_no_constant():
    assert shares(sums(300, 0.0, noise=1.0))[1] == 0.0


def test_more_classes_than_samples_teach_nothing_wrong():
    """Each of 150 classes is in a sample or two: an unpenalised fit would reproduce the noise of 40 samples."""
    data = sums(40, classes=150)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data.fields["y"] = noise + data.counts
    found = linear_in_tokens(data, "y")
    left = (
        noise
        + data.counts
        - token_sums({"code": data.fields["code"]}, {"y": found.each}, {"y": found.classes}, None, data.offsets)["y"]
    )
    assert 0.5 < float(left.std()) < 1.5


def test_leave_one_out_errors_are_those_of_fits_without_the_sample():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y = x @ torch.ones(3, dtype=torch.float64) + 0.1 * torch.randn(12, generator=generator, dtype=torch.float64)
    penalties = torch.linalg.matrix_norm(x, 2).square() * 10.0 ** torch.arange(-10, 1, dtype=torch.float64)

    def without(i: int, penalty: torch.Tensor) -> torch.Tensor:
        kept = torch.arange(12) != i
        a, b = x[kept], y[kept]
        return y[i] - x[i] @ torch.linalg.solve(a.mT @ a + penalty * torch.eye(3, dtype=torch.float64), a.mT @ b)

    expected = min(float(sum(without(i, penalty) ** 2 for i in range(12))) for penalty in penalties)
    assert ridge(x, y)[1] == pytest.approx(expected, rel=1e-9)


def test_layouts_agree():
    """Packed, padded and dense samples, with the category of a token or of a whole sample."""
    shape, each, mask = {"y": {"code": [1.0, 10.0]}}, {"y": 0.5}, torch.tensor([[True, True, False], [True, True, True]])
    padded, offsets = torch.tensor([[0, 1, 1], [1, 1, 0]]), torch.tensor([0, 2, 5])
    expected = torch.tensor([12.0, 22.5], dtype=torch.float64)
    place = torch.zeros(2, 3, 3)
    torch.testing.assert_close(token_sums({"place": place, "code": padded}, each, shape, mask, None)["y"], expected)
    packed = {"place": place[mask], "code": padded[mask]}
    torch.testing.assert_close(token_sums(packed, each, shape, None, offsets)["y"], expected)
    whole = torch.tensor([31.5, 4.5], dtype=torch.float64)
    one = torch.tensor([[1], [0]])
    torch.testing.assert_close(token_sums({"code": one, "place": place}, each, shape, None, None)["y"], whole)
    ragged = {"code": one.flatten(), "place": place[mask]}
    expected = torch.tensor([21.0, 4.5], dtype=torch.float64)
    torch.testing.assert_close(token_sums(ragged, each, shape, None, offsets)["y"], expected)


def test_a_run_starts_from_the_best_linear_predictor(tmp_path):
    """Energies of atoms and little else: after three steps the error is that of what a network cannot know yet."""
    rng = np.random.default_rng(0)
    ptr = np.concatenate([[0], np.cumsum(rng.integers(3, 9, 80))])
    symbol, pos = rng.choice(list("CHO"), ptr[-1]), rng.normal(size=(ptr[-1], 3))
    each = np.array([dict(zip("CHO", EACH.tolist(), strict=True))[s] for s in symbol]) + 0.1 * (pos**2).sum(-1)
    energy = np.add.reduceat(each, ptr[:-1]) + 20
    np.savez(tmp_path / "m.npz", pos=pos, symbol=symbol, ptr=ptr, energy=energy)
    fields = {"inputs": ["pos:point", "symbol:category"], "target": ["energy:scalar"]}
    tiny = {"blocks": 1, "mv": 4, "s": 8, "heads": 2, "batch": 16, "threads": 1}
    out = tmp_path / "run"
    row = lab.train(data=str(tmp_path / "m.npz"), model="E", out=str(out), pool="sum", steps=3, **fields, **tiny)
    assert row["metrics"]["eval"]["rmse"] < 2  # 80 and more without
    units = TrainingRun.open(out).units
    assert units.normaliser.shift["energy"][0] == pytest.approx(20, abs=2)
    # the same predictions from the command, the run in Python and its model with a mask
    written = lab.predict(str(out), str(tmp_path / "m.npz"), out=str(tmp_path / "p.npz"))["energy"]
    run = anygatr.load_run(out)
    torch.testing.assert_close(run.predict(pos=pos, symbol=symbol, offsets=ptr)["energy"], written, atol=1e-3, rtol=1e-6)
    own = slice(ptr[1], ptr[2])
    single = run.predict(pos=pos[own], symbol=symbol[own])["energy"]
    assert float(single) == pytest.approx(float(written[1]), abs=1e-3)
