"""Categories as inputs and sums over tokens: what a molecule needs besides its positions."""

import pytest
import torch

from anygatr import model
from anygatr.checkpoint import load, save
from anygatr.testing import certify

MOLECULE = {"place": "point", "element": "category*4"}


def build(geo: str = "E", pool: str = "mean", **targets: str):
    torch.manual_seed(0)
    asked = targets or ({"energy": "scalar"} if geo == "P" else {"energy": "scalar", "dipole": "vector"})
    return model(geo, MOLECULE, asked, hidden=(4, 8), blocks=2, heads=2, per="sample", pool=pool).double()


def sample(*shape: int, seed: int = 0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    place = torch.randn(*shape, 3, generator=draw, dtype=torch.float64)
    return {"place": place, "element": torch.randint(0, 4, shape, generator=draw)}


@pytest.mark.parametrize("geo", ["E", "iP", "C"])
def test_a_category_is_one_scalar_per_class(geo):
    """The same network on one-hot columns gives the same numbers; another code gives others."""
    net = build(geo)
    torch.manual_seed(0)
    plain = {"place": "point", "element": "scalar*4"}
    other = model(geo, plain, {"energy": "scalar", "dipole": "vector"}, (4, 8), 2, 2, per="sample").double()
    values = sample(3, 5)
    one_hot = torch.nn.functional.one_hot(values["element"], 4).double()
    ours, theirs = net(**values), other(place=values["place"], element=one_hot)
    assert torch.equal(ours["energy"], theirs["energy"])
    changed = net(place=values["place"], element=(values["element"] + 1) % 4)
    assert float((changed["energy"] - ours["energy"]).abs().min()) > 1e-6
    assert certify(net).ok


def test_codes_are_checked_but_not_those_of_padding():
    net, values = build(), sample(2, 5)
    with pytest.raises(ValueError, match=r"element has the category 4; it was declared with 4 classes, the codes 0 to 3"):
        net(place=values["place"], element=values["element"].clamp(max=3) + (values["element"] == 3))
    with pytest.raises(ValueError, match=r"category 1\.5"):
        net(place=values["place"], element=torch.full((2, 5), 1.5, dtype=torch.float64))
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 4] = False
    values["element"][1, 4] = -1
    padded, alone = net(**values, mask=mask), net(**{name: x[1:, :4] for name, x in values.items()})
    assert torch.allclose(padded["energy"][1], alone["energy"][0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("text", ["category", "category*1"])
def test_a_category_says_how_many_classes_it_has(text):
    with pytest.raises(ValueError, match="how many classes"):
        model("E", {"place": "point", "element": text}, {"energy": "scalar"})
    with pytest.raises(ValueError, match=r"'element' is a category, which can be an input only.*'scalar\*4'"):
        model("E", {"place": "point"}, {"element": "category*4"})


@pytest.mark.parametrize("geo", ["E", "P", "iP", "C"])
def test_a_sum_grows_with_the_sample_and_a_mean_does_not(geo):
    """Sums and means of the same network differ by the number of tokens, dense, masked and packed alike."""
    means, sums = build(geo), build(geo, "sum")
    values = sample(2, 6)
    mean, total = means(**values), sums(**values)
    assert torch.allclose(total["energy"], 6 * mean["energy"], rtol=0, atol=1e-12)
    packed = sums(**{name: x.flatten(0, 1) for name, x in values.items()}, offsets=torch.tensor([0, 6, 12]))
    assert torch.allclose(packed["energy"], total["energy"], rtol=0, atol=1e-12)
    mask = torch.arange(6) < 4
    masked = sums(**values, mask=mask.expand(2, 6))
    assert torch.allclose(masked["energy"], sums(**{k: x[:, :4] for k, x in values.items()})["energy"], rtol=0, atol=1e-12)
    assert certify(sums).ok


def test_positions_are_means_even_where_the_rest_is_summed():
    values, targets = sample(2, 6), {"energy": "scalar", "centre": "point"}
    for geo in ("E", "C"):
        mean, total = build(geo, **targets)(**values), build(geo, "sum", **targets)(**values)
        assert torch.allclose(mean["centre"], total["centre"], rtol=0, atol=1e-12)
        assert not torch.allclose(mean["energy"], total["energy"])


def test_pool_is_checked_and_saved(tmp_path):
    with pytest.raises(ValueError, match="pool='max' must be 'mean', or 'sum'"):
        build(pool="max")
    net, values = build(pool="sum"), sample(2, 5)
    save(net, tmp_path / "net.safetensors")
    assert torch.equal(load(tmp_path / "net.safetensors").double()(**values)["energy"], net(**values)["energy"])
