"""Files appear whole or not at all, whatever their names, and leave nothing behind."""

import os
import threading

import pytest

from anygatr.files.whole import remove_unfinished, replacing, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "a.json", "old")

    def write_half():
        with replacing(tmp_path / "a.json") as temporary:
            temporary.write_text("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()
    assert (tmp_path / "a.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_name_of_the_longest_length_can_be_written(tmp_path):
    name = "n" * 251 + ".npz"
    write_text(tmp_path / name, "x")
    assert os.listdir(tmp_path) == [name]


def test_content_reaches_the_disk_before_the_name(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(sorted(os.listdir(tmp_path))))
    write_text(tmp_path / "a", "x")
    assert len(seen) == 2
    assert "a" not in seen[0]
    assert seen[1] == ["a"]


def test_threads_that_write_side_by_side_do_not_meet(tmp_path):
    def write(i):
        for _ in range(20):
            write_text(tmp_path / f"{i}", str(i) * 1000)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(i): str(i) * 1000 for i in range(4)}


def test_what_a_killed_process_left_is_removed(tmp_path):
    write_text(tmp_path / "kept", "x")
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("x")
        left = temporary.name
    (tmp_path / left).write_text("torn by a kill")
    remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "kept"]
