"""The interactive pages compute what the library computes: coefficients after a drag, a key, a slider, to 1e-6."""

import math

import pytest
import torch
from torch import Tensor

from anygatr import Geometry, geometry

PLACE, DIRECTION, RADIUS, TURN = [1, 0.5, 1], [0, 0.6, 0.8], 0.8, [0, 0, 0.6, 0.8]
OBJECTS = {
    "point": (PLACE,),
    "vector": ([0.5, 1, 1],),
    "plane": (DIRECTION, PLACE),
    "line": (PLACE, DIRECTION),
    "sphere": (PLACE, RADIUS),
    "circle": (PLACE, DIRECTION, RADIUS),
    "motor": (TURN, PLACE),
}
HAS = {"E": ["point", "vector"], "P": ["point", "vector", "plane", "line", "motor"], "C": [*OBJECTS]}
PAIRS = [(name, kind) for name, kinds in HAS.items() for kind in kinds]
SLIDERS = {"angle": -75, "tx": 1.25, "ty": -0.5, "tz": 0.75, "offset": 0.4}
READ = {
    "point": ("readPoint", []),
    "plane": ("readPlane", ["normal", "foot"]),
    "line": ("readLine", ["foot", "direction"]),
    "sphere": ("readRound", ["centre", "radius"]),
    "circle": ("readRound", ["centre", "normal", "radius"]),
}
SET = """([name, value]) => {
  const control = document.querySelector(`#playground [name=${name}]`);
  if (control.type === "checkbox") control.checked = value; else control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def double(value) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def close(found, expected: Tensor) -> bool:
    return torch.allclose(double(found), expected.double(), rtol=0, atol=1e-6)


def slid(page, name: str) -> float:
    return float(page.locator(f"input[name={name}]").input_value())


def cells(page, name: str) -> dict:
    """The multivectors and inner products in the table of a geometry, in full precision."""
    read = "cells => cells.map(cell => [cell.dataset.label, JSON.parse(cell.dataset.exact)])"
    return dict(page.eval_on_selector_all(f"figure[data-space={name}] td", read))


def points_agree(page) -> bool:
    p, q, t = (double([slid(page, name)]) for name in "pqt")
    agree = []
    for name in "EPC":
        geo, shown = geometry(name, dim=1), cells(page, name)
        versor = geo.transform(torch.eye(1), t)
        for label, x in (("p", p), ("q", q)):
            agree.append(close(shown[label], geo.embed_point(x)))
            agree.append(close(shown[f"T[{label}]"], geo.symmetry.act(versor, geo.embed_point(x))))
            agree.append(close(shown[f"the point at {label} + t"], geo.embed_point(x + t)))
        moved = [geo.symmetry.act(versor, geo.embed_point(x)) for x in (p, q)]
        agree.append(close(shown["⟨p, q⟩"], geo.algebra.inner(geo.embed_point(p), geo.embed_point(q))))
        agree.append(close(shown["⟨T[p], T[q]⟩"], geo.algebra.inner(*moved)))
    return all(agree)


def test_dragged_points_have_the_coefficients_of_the_library(visit):
    page = visit("interactive/points")
    for name in "EPC":
        page.locator("input[name=p]").fill("1.5")
        handle = page.locator(f"figure[data-space={name}] .handle.p")
        handle.scroll_into_view_if_needed()
        box, before = handle.bounding_box(), slid(page, "p")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x - 20, y + 5, steps=2)
        page.mouse.up()
        assert slid(page, "p") < before - 0.1, name
        assert points_agree(page), name


def test_points_move_by_keys(visit):
    page = visit("interactive/points")
    for slider, key in (("q", "ArrowRight"), ("t", "PageDown")):
        before = slid(page, slider)
        page.locator(f"input[name={slider}]").focus()
        page.keyboard.press(key)
        assert slid(page, slider) != before
    assert points_agree(page)
    page.evaluate("Space.prototype.translation = function () { return this.one; }")
    page.keyboard.press("PageUp")
    assert not points_agree(page)  # the comparison notices translations that do nothing


def motion(angle: float, shift: list[float], mirror: bool, offset: float) -> tuple[Tensor, Tensor]:
    """The matrix and translation: the reflection in z = offset, then the turn about z, then the shift."""
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn = double([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    flip = double([1, 1, -1 if mirror else 1])
    return turn * flip, double(shift) + double([0, 0, 2 * offset if mirror else 0])


def columns(page, geo: Geometry) -> Tensor:
    """The table of coefficients: before, after, versor. Blades that are zero in all of them have no row."""
    out = torch.zeros(3, geo.algebra.dim).double()
    read = (
        "rows => rows.map(row => [row.dataset.blade, [...row.querySelectorAll('td')].map(td => Number(td.dataset.exact))])"
    )
    for blade, values in page.eval_on_selector_all("#playground tbody tr", read):
        out[:, geo.algebra.index(blade)] = double(values)
    return out


def moved_agrees(page, name: str, kind: str, mirror: bool) -> bool:
    geo = geometry(name)
    before = getattr(geo, f"embed_{kind}")(*map(double, OBJECTS[kind]))
    shift = [SLIDERS[key] for key in ("tx", "ty", "tz")]
    versor = geo.transform(*motion(SLIDERS["angle"], shift, mirror, SLIDERS["offset"]))
    shown = columns(page, geo)
    same_versor = close(shown[2], versor) or close(-shown[2], versor)  # u and -u are one motion
    return same_versor and close(shown[0], before) and close(shown[1], geo.symmetry.act(versor, before))


@pytest.mark.parametrize("mirror", [False, True], ids=["motion", "mirrored"])
def test_moved_objects_have_the_coefficients_of_the_library(visit, mirror):
    page = visit("interactive/playground")
    for name, value in {**SLIDERS, "mirror": mirror}.items():
        page.evaluate(SET, [name, value])
    for name, kind in PAIRS:
        page.evaluate(SET, ["space", name])
        page.evaluate(SET, ["object", kind])
        assert moved_agrees(page, name, kind, mirror), (name, kind)
        assert page.locator("svg .object.after").count(), (name, kind)
    page.evaluate("Space.prototype.translation = function () { return this.one; }")
    page.evaluate(SET, ["angle", SLIDERS["angle"]])
    assert not moved_agrees(page, name, kind, mirror)


def test_what_is_drawn_is_what_the_library_extracts(visit):
    page = visit("interactive/playground")
    for name, kind in PAIRS:
        if kind not in READ:
            continue
        geo = geometry(name)
        versor = geo.transform(*motion(40, [0.3, -1, 0.5], True, 0.2))
        mv = geo.symmetry.act(versor, getattr(geo, f"embed_{kind}")(*map(double, OBJECTS[kind])))
        reader, parts = READ[kind]
        found = page.evaluate("([name, reader, x]) => new Space(name, 3)[reader](x)", [name, reader, mv.tolist()])
        expected = getattr(geo, f"extract_{kind}")(mv)
        for part, value in zip(parts, expected, strict=True) if parts else ():
            assert close(found[part], value), (name, kind, part)
        assert parts or close(found, expected), (name, kind)


def test_keys_move_the_sliders_and_turn_the_view(visit):
    page = visit("interactive/playground")
    text = page.locator("#playground .says").text_content()
    page.locator("input[name=angle]").focus()
    page.keyboard.press("PageUp")
    assert page.locator("#playground .says").text_content() != text
    shape = page.locator("svg .object.after").first.get_attribute("points")
    page.locator("#playground svg").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("svg .object.after").first.get_attribute("points") != shape


def test_objects_that_an_algebra_lacks_cannot_be_chosen(visit):
    page = visit("interactive/playground")
    for name, kinds in HAS.items():
        page.evaluate(SET, ["space", name])
        options = page.locator("select[name=object] option").all()
        assert [option.text_content() for option in options if option.is_enabled()] == kinds
