import pytest
import torch

from anygatr.lab.data.dataset import Dataset, join_splits

KINDS = {"position": "point", "charge": "scalar", "energy": "scalar"}


def dense(size: int = 10, tokens: int = 4, per: str = "token") -> Dataset:
    generator = torch.Generator().manual_seed(size)
    position = torch.randn(size, tokens, 3, generator=generator, dtype=torch.float64)
    position[..., 0] = torch.arange(size)[:, None]  # the first coordinate names the sample
    energy = position[..., 0] if per == "token" else position[:, 0, 0]
    fields = {"position": position, "charge": position[..., 1].clone(), "energy": energy.clone()}
    return Dataset(fields, KINDS, ("energy",), dim=3, per=per)


def ragged(per: str) -> Dataset:
    """Samples 0..9 with 1 to 4 tokens."""
    data = dense(per=per).packed()
    counts = torch.arange(10) % 4 + 1
    keep = (torch.arange(4) < counts[:, None]).flatten()
    fields = {k: v if len(v) == 10 else v[keep] for k, v in data.fields.items()}
    return Dataset(fields, KINDS, ("energy",), 3, per, torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))


DATA = [(make, per) for make in (dense, ragged) for per in ("token", "sample")]


@pytest.fixture(params=DATA, ids=lambda case: f"{case[0].__name__} per {case[1]}")
def data(request) -> Dataset:
    make, per = request.param
    return make(per=per)


def names(batch: dict[str, torch.Tensor], per: str) -> list[int]:
    """The samples of a batch, read from its positions, after checking that everything in it belongs together."""
    position, energy = batch["position"], batch["energy"]
    if "offsets" in batch:
        first = position[batch["offsets"][:-1], 0]
        of_token = first.repeat_interleave(batch["offsets"].diff())
        assert position[:, 0].equal(of_token)
    else:
        first = position[:, 0, 0]
        assert position[..., 0].equal(first[:, None].expand(position.shape[:2]))
    assert batch["charge"].equal(position[..., 1])
    assert energy.equal(position[..., 0] if per == "token" else first)
    return first.int().tolist()


def test_an_epoch_has_every_sample_once(data):
    batches = list(data.batches(4, torch.Generator().manual_seed(0)))
    seen = [name for batch in batches for name in names(batch, data.per)]
    assert sorted(seen) == list(range(10))
    assert seen != list(range(10))
    assert len(batches) == 3
    assert len(list(data.batches(4, drop_last=True))) == 2
    assert [n for batch in data.batches(3) for n in names(batch, data.per)] == list(range(10))


def test_the_generator_decides_the_order(data):
    def order(seed: int) -> list[int]:
        return [n for b in data.batches(4, torch.Generator().manual_seed(seed)) for n in names(b, data.per)]

    assert order(0) == order(0)
    assert order(0) != order(1)


def test_subset_is_the_first_samples(data):
    assert names(data.subset(3).batch(), data.per) == [0, 1, 2]


@pytest.mark.parametrize("size", [0, -1, 11])
def test_sizes_beyond_the_data_are_named(data, size):
    with pytest.raises(ValueError, match=rf"size={size} must lie in 1..10"):
        data.subset(size)
    with pytest.raises(ValueError, match=rf"size={size}"):
        next(data.batches(size, drop_last=True))


def test_packed_and_dense_are_inverse():
    for per in ("token", "sample"):
        data = dense(per=per)
        back = data.packed().dense()
        assert back.offsets is None
        assert all(back.fields[k].equal(v) for k, v in data.fields.items())
    assert ragged("token").dense().offsets is not None


def test_splits_of_different_token_count_join_and_part_again():
    parts = {"train": dense(6), "val": dense(5), "object_generalization": dense(4, tokens=7)}
    data = join_splits(parts)
    assert data.offsets is not None
    assert "16" not in str(data)
    for name, part in parts.items():
        again = data.split(name)
        assert again.offsets is None
        assert all(again.fields[k].equal(v) for k, v in part.fields.items())
    assert join_splits({"train": dense(6), "val": dense(5)}).offsets is None


def test_splits_must_agree_on_their_fields():
    with pytest.raises(ValueError, match="split 'val' has other fields than 'train'"):
        join_splits({"train": dense(), "val": dense().rename({"charge": "mass"})})


def test_unknown_split_is_named():
    with pytest.raises(ValueError, match=r"split='tain' is not in this data set; did you mean train\?"):
        join_splits({"train": dense(), "val": dense()}).split("tain")


def test_a_model_can_be_declared_from_the_data():
    data = dense()
    assert data.input_kinds == {"position": "point", "charge": "scalar"}
    assert data.target_kinds == {"energy": "scalar"}
    assert str(data) == "10 samples of 4 tokens in 3D: position:point, charge:scalar, energy:scalar; splits: none"
