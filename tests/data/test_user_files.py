import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from anygatr.lab.data.files.dataset import load
from anygatr.lab.data.kinds import KINDS, columns, parse_fields
from anygatr.spaces import kinds as library
from anygatr.spaces.presets import geometry

INPUTS = {"position": "point", "velocity": "vector", "charge": "scalar"}
TARGETS = {"force": "vector"}
SIZES = {"train": 6, "val": 3, "eval": 2}


def dense(size: int = 11, tokens: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    vectors = {name: rng.normal(size=(size, tokens, 3)) for name in ("position", "velocity", "force")}
    return vectors | {"charge": rng.normal(size=(size, tokens)), "energy": rng.normal(size=size)}


def parts(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    ends = np.cumsum([0, *SIZES.values()])
    return {name: {k: a[ends[i] : ends[i + 1]] for k, a in arrays.items()} for i, name in enumerate(SIZES)}


def labels() -> np.ndarray:
    return np.repeat(["train", "valid", "test"], list(SIZES.values()))


def as_labelled(folder: Path) -> Path:
    np.savez(folder / "x.npz", **dense(), split=labels())
    return folder / "x.npz"


def as_numbered(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", **dense(), split=np.repeat([0, 1, 2], list(SIZES.values())))
    return folder / "x.npz"


def as_prefixed(folder: Path) -> Path:
    np.savez(folder / "x.npz", **{f"{split}_{k}": a for split, part in parts(dense()).items() for k, a in part.items()})
    return folder / "x.npz"


def as_directory(folder: Path) -> Path:
    for split, part in parts(dense()).items():
        np.savez(folder / f"{split}.npz", **part)
    return folder


def as_mapping(folder: Path) -> dict[str, Path]:
    as_directory(folder)
    return {"train": folder / "train.npz", "validation": folder / "val.npz", "test": folder / "eval.npz"}


def as_packed(folder: Path) -> Path:
    flat = {k: a if k == "energy" else a.reshape(-1, *a.shape[2:]) for k, a in dense().items()}
    np.savez(folder / "x.npz", **flat, offsets=np.arange(0, 45, 4), split=labels())
    return folder / "x.npz"


def as_padded(folder: Path) -> Path:
    wide = {k: a if k == "energy" else np.concatenate([a, np.full_like(a, np.nan)], axis=1) for k, a in dense().items()}
    np.savez(folder / "x.npz", **wide, mask=np.arange(8) < np.full((11, 1), 4), split=labels())
    return folder / "x.npz"


def as_h5(folder: Path, fixed: bool = True) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        for key, array in dense().items():
            file[key] = array
        file["split"] = labels().astype("S") if fixed else labels().astype(object)
    return folder / "x.h5"


def as_h5_with_text(folder: Path) -> Path:
    return as_h5(folder, fixed=False)


def as_h5_splits(folder: Path) -> Path:
    with h5py.File(folder / "x.hdf5", "w") as file:
        for split, part in parts(dense()).items():
            for key, array in part.items():
                file[f"{split}/{key}"] = array
    return folder / "x.hdf5"


def as_h5_samples(folder: Path) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        for i in range(11):
            group = file.create_group(f"run_{i}")  # run_10 sorts before run_2 as text
            for key, array in dense().items():
                group[key] = array[i]
            group.attrs["split"] = str(labels()[i])
    return folder / "x.h5"


LAYOUTS = [
    as_labelled,
    as_numbered,
    as_prefixed,
    as_directory,
    as_mapping,
    as_packed,
    as_padded,
    as_h5,
    as_h5_with_text,
    as_h5_splits,
    as_h5_samples,
]


@pytest.mark.parametrize("targets", [TARGETS, {"energy": "scalar"}], ids=["per token", "per sample"])
@pytest.mark.parametrize("save", LAYOUTS, ids=lambda save: save.__name__)
def test_every_layout_gives_the_same_data(save, targets, tmp_path):
    data = load(save(tmp_path), INPUTS, targets)
    assert data.dim == 3
    assert data.per == ("sample" if "energy" in targets else "token")
    assert data.input_kinds == INPUTS
    assert data.target_kinds == targets
    for split, part in parts(dense()).items():
        got = data.split(split)
        assert got.offsets is None
        for name in (*INPUTS, *targets):
            assert got.fields[name].dtype == torch.float64
            assert np.array_equal(got.fields[name].numpy(), part[name]), (split, name)


def ragged(folder: Path, form: str) -> tuple[Path, list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(1)
    counts = [3, 5, 2, 4, 6, 3]
    samples = [
        {
            "position": rng.normal(size=(n, 2)),
            "charge": rng.normal(size=n),
            "energy": rng.normal(),
            "face": np.ones((2 * n, 3), int),
        }
        for n in counts
    ]
    if form == "npz":
        packed = {k: np.concatenate([s[k] for s in samples]) for k in ("position", "charge")}
        energy = np.array([s["energy"] for s in samples])
        np.savez(folder / "x.npz", **packed, energy=energy, offsets=np.cumsum([0, *counts]))
        return folder / "x.npz", samples
    with h5py.File(folder / "x.h5", "w") as file:
        for i, sample in enumerate(samples):
            group = file.create_group(f"{i}")
            for key, array in sample.items():
                group[key] = array
    return folder / "x.h5", samples


@pytest.mark.parametrize("form", ["npz", "h5"])
def test_samples_of_different_size(form, tmp_path):
    path, samples = ragged(tmp_path, form)
    data = load(path, {"position": "point", "charge": "scalar"}, {"energy": "scalar"}, fractions=None)
    assert (data.dim, data.per, len(data), data.splits) == (2, "sample", 6, {})
    for i, sample in enumerate(samples):
        batch = data.select(torch.tensor([i])).batch()
        assert np.array_equal(batch["position"].numpy(), sample["position"])
        assert np.array_equal(batch["charge"].numpy(), sample["charge"])
        assert batch["energy"].item() == sample["energy"]


def test_channels_and_fields_of_whole_samples_reach_the_tokens(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "position": rng.normal(size=(20, 4, 3)),
        "legs": rng.normal(size=(20, 4, 2, 3)),  # two vectors per token
        "type": rng.integers(0, 2, size=(20, 4, 3)),  # one-hot
        "wind": rng.normal(size=(20, 3)),
        "temperature": rng.normal(size=20),
        "final": rng.normal(size=(20, 7)),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    kinds = parse_fields(["position:point", "legs:vector", "type:scalar", "wind:vector", "temperature:scalar"])
    data = load(tmp_path / "x.npz", kinds, {"final": "motor"}, fractions=None)
    fields = data.fields
    assert list(data.input_kinds) == ["position", "legs", "type", "wind", "temperature"]
    assert (data.kinds["legs"], data.kinds["type"]) == ("vector*2", "scalar*3")
    assert np.array_equal(fields["legs"].numpy(), arrays["legs"].reshape(20, 4, 6))
    assert np.array_equal(fields["type"].numpy(), arrays["type"])
    assert np.array_equal(fields["wind"].numpy()[:, 3], arrays["wind"])
    assert fields["temperature"].shape == (20, 4)
    assert data.per == "sample"


def test_samples_of_one_object_have_one_token(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", place=rng.normal(size=(20, 3)), turn=rng.normal(size=(20, 4)), y=rng.normal(size=(20, 3)))
    data = load(tmp_path / "x.npz", {"place": "point", "turn": "rotation"}, {"y": "point"})
    assert data.fields["place"].shape == (20, 1, 3)
    assert data.fields["y"].shape == (20, 3)


def test_shape_that_fits_both_is_decided_by_per(tmp_path):
    np.savez(tmp_path / "x.npz", position=np.random.default_rng(0).normal(size=(20, 4, 3)), y=np.ones((20, 4)))
    assert load(tmp_path / "x.npz", {"position": "point"}, {"y": "scalar"}).targets == ("y",)
    data = load(tmp_path / "x.npz", {"position": "point"}, {"y": "scalar"}, per="sample")
    assert data.target_kinds == {"y": "scalar*4"}


@pytest.mark.parametrize("dim", [2, 3])
def test_files_and_networks_know_the_same_kinds(dim):
    assert set(KINDS) == set(library.KINDS)
    for kind in KINDS:
        geo = geometry("L" if kind == "momentum" else "C", dim=dim)
        assert columns(kind, dim) == library.columns(geo, kind), kind


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if not KINDS[kind].coded))
def test_every_kind_loads_with_its_columns(kind, dim, tmp_path):
    rng = np.random.default_rng(0)
    width = columns(kind, dim)
    x = rng.normal(size=(12, 5, width) if width > 1 else (12, 5))
    np.savez(tmp_path / "x.npz", place=rng.normal(size=(12, 5, dim)), x=x)
    data = load(tmp_path / "x.npz", {"place": "point", "x": kind}, {})
    assert data.dim == dim
    assert np.array_equal(data.fields["x"].numpy(), x)


def test_made_splits_are_disjoint_complete_and_seeded(tmp_path):
    np.savez(tmp_path / "x.npz", **dense(100))
    data = load(tmp_path / "x.npz", INPUTS, TARGETS, seed=1)
    assert {name: len(index) for name, index in data.splits.items()} == {"train": 80, "val": 10, "eval": 10}
    assert torch.cat(list(data.splits.values())).sort().values.equal(torch.arange(100))
    again, other = (load(tmp_path / "x.npz", INPUTS, TARGETS, seed=seed) for seed in (1, 2))
    assert again.splits["val"].equal(data.splits["val"])
    assert not other.splits["val"].equal(data.splits["val"])


def test_a_missing_split_is_cut_from_the_training_samples(tmp_path):
    np.savez(tmp_path / "x.npz", **dense(40), split=np.repeat(["train", "test"], [30, 10]))
    data = load(tmp_path / "x.npz", INPUTS, TARGETS)
    assert {name: len(index) for name, index in data.splits.items()} == {"train": 27, "eval": 10, "val": 3}
    assert data.splits["eval"].equal(torch.arange(30, 40))


def test_undeclared_arrays_are_not_even_read(tmp_path):
    np.savez(tmp_path / "x.npz", **dense(), junk=np.array([{"a": 1}], dtype=object))
    assert len(load(tmp_path / "x.npz", INPUTS, TARGETS)) == 11


def write_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"position": 1}))


def write_object_array(path: Path) -> None:
    np.savez(path, **(dense() | {"position": np.array([[1, 2], [3]], dtype=object)}))


def write_truncated(path: Path) -> None:
    np.savez(path, **dense())
    path.write_bytes(path.read_bytes()[:500])


def write_damaged(path: Path) -> None:
    np.savez(path, **dense())
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(bytes(content))


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_pickle, "is a pickle, which is never loaded"),
        (write_object_array, "pickle .* never loaded .* with 'offsets'"),
        (write_truncated, "damaged or not a .npz file"),
        (write_damaged, "damaged or not a .npz file"),
        (write_nothing, "damaged or not a .npz file"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_files_that_cannot_be_read(write, message, tmp_path):
    write(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "x.npz", INPUTS, TARGETS)


def test_truncated_h5(tmp_path):
    path = as_h5(tmp_path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="damaged or not an HDF5 file"):
        load(path, INPUTS, TARGETS)


def test_missing_file_names_its_neighbour(tmp_path):
    as_labelled(tmp_path).rename(tmp_path / "mine.npz")
    with pytest.raises(FileNotFoundError, match=r"did you mean mine.npz"):
        load(tmp_path / "mime.npz", INPUTS, TARGETS)
    (tmp_path / "mine.csv").write_text("1,2,3")
    with pytest.raises(ValueError, match=r"unknown suffix '.csv'"):
        load(tmp_path / "mine.csv", INPUTS, TARGETS)
    with pytest.raises(ValueError, match=r"directory without train.npz \(it holds mine"):
        load(tmp_path, INPUTS, TARGETS)


def changed(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return dense() | arrays


def with_nan() -> dict[str, np.ndarray]:
    arrays = dense()
    arrays["velocity"][5, 2, 1] = np.nan
    return arrays


BAD_ARRAYS = [
    (
        {k: a for k, a in dense().items() if k != "velocity"},
        "'velocity' is missing .* known: charge, energy, force, position",
    ),
    (with_nan(), "field 'velocity': 1 of the samples hold NaN .* the first is sample 5"),
    (changed(velocity=np.ones((11, 4, 2))), "velocity:vector has 2, needs 3"),
    (
        changed(charge=np.ones((11, 3, 2, 2))),
        r"'charge' has shape \(11, 3, 2, 2\), but a scalar in 3D needs \(11, 4\) per token",
    ),
    (changed(force=np.ones((10, 4, 3))), r"'force' has shape \(10, 4, 3\)"),
    (changed(charge=np.full((11, 4), "H")), "'charge' holds <U1, not numbers"),
    (changed(charge=np.ones((11, 4), complex)), "'charge' is complex"),
    (changed(split=np.full(11, "weekday")), r"split\[0\]='weekday' is unknown"),
    (changed(split=np.zeros(4, int)), "one label for each of the 11 samples"),
    (changed(split=np.full(11, "test")), "none called train"),
    (changed(offsets=np.array([0, 5, 3])), "offsets=.* growing"),
    ({k: a[:2] for k, a in dense().items()}, "2 samples are too few"),
    ({k: a[:0] for k, a in dense().items()}, "holds no samples"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS, ids=[message[:20] for _, message in BAD_ARRAYS])
def test_bad_arrays_are_named(arrays, message, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "x.npz", INPUTS, TARGETS)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        ({}, TARGETS, "inputs is empty"),
        ({"force": "vector"}, TARGETS, "both inputs and targets"),
        ({"offsets": "scalar"}, TARGETS, "'offsets' is reserved"),
        (INPUTS, {"force": "vector", "energy": "scalar"}, "force per token, energy per sample"),
    ],
    ids=["empty", "both", "reserved", "mixed"],
)
def test_bad_declarations_are_named(inputs, targets, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(as_labelled(tmp_path), inputs, targets)


def test_a_field_missing_in_one_h5_group_is_named(tmp_path):
    path = as_h5_samples(tmp_path)
    with h5py.File(path, "a") as file:
        del file["run_7/velocity"]
    with pytest.raises(ValueError, match="'run_7' lacks"):
        load(path, INPUTS, TARGETS)


def test_coincident_points_are_reported(tmp_path):
    arrays = dense()
    arrays["position"][3, 0] = arrays["position"][3, 2]
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.warns(UserWarning, match="field 'position': 1 samples, the first is sample 3"):
        load(tmp_path / "x.npz", INPUTS, TARGETS)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("position", "'position' is not of the form name:kind"),
        (":point", "is not of the form"),
        ("x:piont", "did you mean point"),
        ("x:velocity", "did you mean vector"),
        ("x:quaternion", "did you mean rotation"),
        ("x:qwrtz", "known: category, circle, line, momentum, motor"),
    ],
)
def test_bad_field_specs_are_explained(spec, message):
    with pytest.raises(ValueError, match=message):
        parse_fields([spec])


def test_field_specs():
    assert parse_fields(["position:point", "q:scalar"]) == {"position": "point", "q": "scalar"}
    with pytest.raises(ValueError, match="declared twice"):
        parse_fields(["x:point", "x:vector"])
