"""The published layout through the whole pipeline: reading, damage, preprocessing, cache, splits, rotations."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from artery_shapes import published_file, tube

from anygatr.lab.data.arteries.dataset import ArteryDataset, label_scale, splits
from anygatr.lab.data.arteries.preprocess import fixed_rotations, inlet_diameter, preprocess
from anygatr.lab.data.arteries.store import ArteryFile, BadArteryError, new_file, sample_name

SAMPLE = Path(__file__).parent / "data" / "arteries.h5"


@pytest.fixture
def published(tmp_path):
    return published_file(tmp_path / "database.hdf5", [tube(sample_name(n), seed=n) for n in range(5)])


@pytest.mark.parametrize("inlet_key", ["inlet_idcs", "inlet_idx"])
def test_published_layout_is_read(tmp_path, inlet_key):
    artery = tube()
    read = ArteryFile(published_file(tmp_path / "database.hdf5", [artery], inlet_key)).read("sample_0000")
    for key in ("pos", "face", "wss", "inlet"):
        np.testing.assert_array_equal(getattr(read, key), getattr(artery, key))


def test_cut_and_mask_are_those_of_the_paper():
    artery = tube(radius=0.2, length=2.0)
    diameter = inlet_diameter(artery)
    assert diameter == pytest.approx(0.4, rel=0.03)  # the area of a 16-gon
    sample, height = preprocess(artery), artery.pos[:, 2]
    wall = np.hypot(artery.pos[:, 0], artery.pos[:, 1]) > 0.199
    end = 6.0 + 0.2  # the far point is the middle of the outlet cap
    spacing = 6.0 / 60
    assert np.abs(sample.pos[:, 2].min() - 4 * diameter) <= spacing
    assert np.abs(sample.pos[:, 2].max() - (end - 4 * diameter)) <= spacing
    inside = wall & (height > 4 * diameter + spacing) & (height < end - 4 * diameter - spacing)
    assert inside.sum() <= len(sample.pos) <= inside.sum() + 2 * 16
    masked = sample.pos[sample.mask, 2]
    assert np.abs(masked.min() - 5 * diameter) <= 2 * spacing
    assert np.abs(masked.max() - (end - 5 * diameter)) <= 2 * spacing
    assert sample.geo.min() > 1.5  # not counted from the cut
    np.testing.assert_allclose(np.linalg.norm(sample.normals, axis=1), 1.0, atol=1e-6)
    assert (sample.normals[:, :2] * sample.pos[:, :2]).sum(axis=1).min() > 0.19  # outward
    assert sample.face.max() < len(sample.pos)


def test_bifurcating_keeps_everything():
    artery = tube()
    sample = preprocess(artery, "bifurcating")
    np.testing.assert_array_equal(sample.pos, artery.pos)
    assert 0 < sample.mask.sum() < len(sample.pos)
    with pytest.raises(ValueError, match="kind='triple'"):
        preprocess(artery, "triple")


def test_dataset_streams_splits_and_caches(published):
    train = ArteryDataset(published, "train")
    assert [len(ArteryDataset(published, s)) for s in ("train", "val", "test")] == [3, 1, 1]
    first = train[0]
    assert (first.name, first.pos.dtype, first.mask.dtype) == ("sample_0000", np.float32, np.bool_)
    cached = train.cache / "sample_0000.npz"
    assert cached.exists()
    assert not (train.cache / "sample_0001.npz").exists()  # only what was asked for
    np.testing.assert_array_equal(train[0].geo, first.geo)
    cached.write_bytes(cached.read_bytes()[:100])  # a torn cache is made again
    np.testing.assert_array_equal(train[0].geo, first.geo)
    scale = np.sqrt(np.mean(np.concatenate([(s.wss**2).sum(axis=1) for s in train])))
    assert label_scale(train) == pytest.approx(scale, rel=1e-5)


def test_samples_are_usable_where_nothing_can_be_written(published):
    published.with_name(published.name + ".cache").write_text("a file in the way of the cache")
    with pytest.warns(UserWarning, match="is not cached"):
        assert len(ArteryDataset(published)[0].pos) > 0


def test_published_split_is_the_single_one():
    parts = splits([sample_name(n) for n in range(2000)])
    assert [(p[0], p[-1]) for p in parts.values()] == [
        ("sample_0000", "sample_1599"),
        ("sample_1600", "sample_1799"),
        ("sample_1800", "sample_1999"),
    ]
    assert [len(part) for part in splits(["a", "b", "c"]).values()] == [1, 1, 1]
    assert [len(part) for part in splits(["a", "b"]).values()] == [2, 0, 0]


def test_rotations_are_fixed_uniform_and_mirror_half():
    matrices = fixed_rotations()
    np.testing.assert_allclose(matrices @ matrices.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (2000, 3, 3)), atol=1e-12)
    assert 900 < (np.linalg.det(matrices) < 0).sum() < 1100
    assert np.abs(matrices.mean(axis=0)).max() < 0.05  # Haar: every entry has mean zero ...
    assert np.abs((matrices**2).mean(axis=0) - 1 / 3).max() < 0.03  # ... and second moment 1/3
    np.testing.assert_allclose(matrices[0, 0], [-0.8297, -0.2062, 0.5187], atol=1e-4)  # the same in every run


def test_rotated_samples_turn_together(published):
    plain, turned = ArteryDataset(published)[3], ArteryDataset(published, rotated=True)[3]
    matrix = fixed_rotations()[3]
    for key in ("pos", "normals", "wss"):
        np.testing.assert_allclose(getattr(turned, key), getattr(plain, key) @ matrix.T, atol=1e-5)
    np.testing.assert_array_equal(turned.geo, plain.geo)
    np.testing.assert_array_equal(turned.mask, plain.mask)


def damage(group, what):
    if what == "missing wss":
        del group["wss"]
    elif what == "missing inlet_idcs or inlet_idx":
        del group["inlet_idcs"]
    elif what == "outside the":
        group["face"][0, 0] = 99_999
    elif what == "rows that are not finite":
        group["pos"][0] = np.nan
    elif what == "has shape":
        del group["wss"]
        group["wss"] = np.zeros((5, 3), np.float32)
    elif what == "has type":
        del group["face"]
        group["face"] = np.zeros((5, 3), np.float32)
    elif what == "is empty":
        del group["inlet_idcs"]
        group["inlet_idcs"] = np.zeros(0, np.int32)
    elif what == "open surface":
        face = group["face"][5:]
        del group["face"]
        group["face"] = face
    elif what == "not a manifold":
        face = np.concatenate([group["face"][:], [[*group["face"][0, :2], len(group["pos"]) - 1]]])
        del group["face"]
        group["face"] = face
    elif what == "no area":
        group["pos"][int(group["face"][0, 0])] = group["pos"][int(group["face"][0, 1])]
    elif what == "no face lies in the inlet":
        del group["inlet_idcs"]
        group["inlet_idcs"] = np.array([300], np.int32)
    else:
        raise AssertionError(what)


DAMAGES = [
    "missing wss", "missing inlet_idcs or inlet_idx", "outside the", "rows that are not finite", "has shape", "has type",
    "is empty", "open surface", "not a manifold", "no area", "no face lies in the inlet",
]  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_named_and_the_rest_usable(published, what):
    with h5py.File(published, "r+") as file:
        damage(file["sample_0002"], what)
    dataset = ArteryDataset(published)
    with pytest.raises(BadArteryError, match=f"sample_0002.*{what}"):
        dataset[2]
    with pytest.warns(UserWarning, match="sample_0002"):
        names = [sample.name for sample in dataset]
    assert len(names) == 4
    assert list(dataset.problems) == ["sample_0002"]
    with pytest.warns(UserWarning, match="dropped"):
        dataset.prepare()
    assert len(dataset) == 4
    assert dataset[2].name == "sample_0003"


def test_short_vessels_and_stray_names_are_named(tmp_path):
    artery = tube(length=0.5)
    short = tube("sample_0001", radius=0.2, length=0.05)
    path = published_file(tmp_path / "a.h5", [artery, short])
    assert len(ArteryDataset(path)[0].pos) > 0
    file = ArteryFile(path)
    with pytest.raises(BadArteryError, match=r"a\.h5: sample_0007: no such group"):
        file.read("sample_0007")
    with pytest.raises(FileNotFoundError, match="anygatr data arteries"):
        ArteryFile(tmp_path / "absent.h5")
    (tmp_path / "torn.h5").write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"torn\.h5.* not a readable HDF5 file"):
        ArteryFile(tmp_path / "torn.h5")


def test_new_file_appears_only_when_complete(tmp_path):
    path = tmp_path / "x.h5"
    with pytest.raises(TypeError), new_file(path) as file:
        file["a"] = object()
    assert list(tmp_path.iterdir()) == []
    with new_file(path) as file:
        file["a"] = 1
        assert not path.exists()
    assert list(tmp_path.iterdir()) == [path]


def test_committed_sample_is_usable(tmp_path):
    assert SAMPLE.stat().st_size < 1_000_000
    shutil.copy(SAMPLE, tmp_path)
    samples = list(ArteryDataset(tmp_path / SAMPLE.name))
    assert len(samples) == 3
    for sample in samples:
        speed = np.linalg.norm(sample.wss, axis=1)
        assert np.abs((sample.wss * sample.normals).sum(axis=1)).max() < 0.1 * speed.max()
        assert sample.mask.mean() > 0.5
