"""Advice without training: facts about the geometries, and a sentence that follows from them."""

import json

import pytest

from anygatr.lab.comparison.advise import Verdict, advise, recommend
from anygatr.lab.config.commands import AdviseConfig


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    fields = {"inputs": ("position:point", "wall:plane", "ball:sphere"), "target": ("force:vector",)}
    return {verdict.name: verdict for verdict in advise(AdviseConfig(**fields, mv=4, s=8))}


def test_what_can_be_represented(verdicts):
    assert verdicts["C"].exact
    assert verdicts["iP"].fields["wall"] == "exact"
    assert verdicts["iP"].fields["ball"] == "as point + scalar"
    assert verdicts["E"].fields["wall"] == "as vector + scalar"
    assert verdicts["E"].needs_origin
    assert not verdicts["P"].needs_origin


def test_mirrors_expressivity_and_cost(verdicts):
    """Projective points change sign under mirrors; P alone cannot build every bilinear map; 32 blades cost more than 8."""
    assert {name: verdict.mirrors for name, verdict in verdicts.items()} == {"E": True, "P": False, "iP": False, "C": True}
    assert {name: verdict.complete for name, verdict in verdicts.items()} == {"E": True, "P": False, "iP": True, "C": True}
    assert [verdicts[name].maps for name in ("E", "P", "iP", "C")] == [4, 9, 9, 20]
    assert verdicts["E"].flops < verdicts["P"].flops < verdicts["C"].flops
    assert [verdicts[name].products for name in ("E", "C")] == [8 * 8, 32 * 32]


def test_the_sentence_follows(verdicts):
    assert recommend(verdicts.values()).startswith("Start with C: it represents every field exactly")
    points = {v.name: v for v in advise(AdviseConfig(mv=4, s=8))}
    assert recommend(points.values()).startswith("Start with iP")
    assert recommend([points["P"], points["E"]]).startswith("Start with E")


def test_momenta_call_for_spacetime(capsys):
    advise(AdviseConfig(inputs=("p:momentum",), target=("mass:scalar",), mv=4, s=8, json=True))
    found = json.loads(capsys.readouterr().out)
    lorentz = next(verdict for verdict in found["geometries"] if verdict["name"] == "L")
    assert lorentz["exact"]
    assert "L" in found["advice"]


@pytest.mark.parametrize(("changes", "message"), [({"inputs": ()}, "inputs"), ({"target": ("x:plan",)}, "plane")])
def test_bad_input(changes, message):
    with pytest.raises(ValueError, match=message):
        advise(AdviseConfig(**changes))
