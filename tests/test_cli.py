"""The mathematician's commands, called as a user calls them."""

import json
import subprocess
import sys
import time

import pytest

from anygatr.lab.cli import main


def test_help_is_immediate_and_imports_no_torch():
    code = "import sys; from anygatr.lab.cli import main\ntry: main(['--help'])\n"
    code += "except SystemExit: print('torch' in sys.modules)"
    start = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("False\n")
    assert "expressivity" in out
    assert time.perf_counter() - start < 5  # under a second on an idle machine; the imports are what is tested


def test_algebra_prints_the_product_table(capsys):
    main(["algebra", "2", "0", "1"])
    out = capsys.readouterr().out
    assert "G(2,0,1)" in out
    assert "e0² = 0" in out
    assert "e012" in out
    assert "-e01" in out


def test_algebra_as_json(capsys):
    main(["algebra", "1", "1", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["blades"] == ["1", "e1", "e2", "e12"]
    assert record["metric"] == [1, 1, -1, -1]
    # e1 e2 = e12: the left factor for target e12 and right factor e2 is e1, with sign +1
    assert record["product"]["left_factor"][3][2] == "e1"
    assert record["product"]["sign"][3][2] == 1


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["E"], 4),
        (["P"], 9),
        (["P", "--group", "SE3"], 16),
        (["C", "--group", "E3", "--order", "1"], 20),
        (["C", "--group", "pin"], 6),
        (["L"], 5),
        (["L", "--group", "spin"], 10),
        (["4,1,0", "--group", "spin"], 12),
        (["E", "--group", "E1"], 2),
        (["P", "--order", "2"], 58),
    ],
)
def test_maps_counts(capsys, arguments, count):
    main(["maps", *arguments, "--json"])
    assert json.loads(capsys.readouterr().out)["count"] == count


def test_maps_prints_formulas(capsys):
    main(["maps", "C"])
    out = capsys.readouterr().out
    assert "20 E(3)-equivariant" in out
    assert "inf <inf <x>_2>_1" in out


def test_expressivity_names_what_is_missing(capsys):
    main(["expressivity", "P"])
    out = capsys.readouterr().out
    assert "incomplete" in out
    assert "(3, 4) -> 0" in out


def test_expressivity_with_join_falls_back_to_proper_motions(capsys):
    main(["expressivity", "P", "--products", "geometric", "join", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert (record["group"], record["rank"], record["complete"]) == ("SE(3)", 117, True)


def test_data_is_made_and_inspected(tmp_path, capsys):
    main(["data", "nbody", "--out", str(tmp_path), "--train", "8", "--val", "0", "--eval", "0", "--generalization", "0"])
    assert str(tmp_path / "train.npz") in capsys.readouterr().out
    main(["inspect", str(tmp_path / "train.npz")])
    assert f"--data {tmp_path}" in capsys.readouterr().out
    main(["inspect", str(tmp_path / "train.npz"), "--json"])
    assert json.loads(capsys.readouterr().out)["samples"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maps", "D"], "name='D' is not a geometry"),
        (["maps", "C", "--group", "E9"], "group='E9' is unknown"),
        (["maps", "C", "--order", "0"], "order=0"),
        (["algebra", "30"], "GiB"),
        (["expressivity", "P", "--group", "E3", "--products", "join"], "not equivariant"),
        (["maps", "3,0,0", "--group", "E3"], "use pin or spin"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        main(arguments)
    assert "\n" not in str(stopped.value)
