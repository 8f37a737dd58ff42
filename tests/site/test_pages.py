"""Every page on a phone and in the dark: nothing is wider than the screen, and no line of code is cut."""

import pytest

PHONE = {"width": 390, "height": 844}
# what sticks out of the screen and is in no box that scrolls
OUTSIDE = """() => [...document.querySelectorAll(".md-content *")].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let box = element.parentElement; box && !box.matches(".md-content"); box = box.parentElement) {
    if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return false;
  }
  return true;
}).map(element => element.outerHTML.slice(0, 120))"""
CUT = """() => [...document.querySelectorAll("pre > code")].filter(code => code.scrollWidth > code.clientWidth + 1)
  .map(code => code.textContent.slice(0, 120))"""
WIDE = """() => {
  const line = document.querySelector("pre > code");
  line.style.whiteSpace = "pre";
  line.textContent = "x".repeat(200);
}"""


@pytest.mark.parametrize("pages", ["q*/", pytest.param("**/", marks=pytest.mark.slow)])
def test_pages_fit_a_phone(visit, site, pages):
    page = visit("", PHONE)
    found = {}
    for address in [site / "index.html", *sorted(site.glob(f"{pages}index.html"))]:
        page.goto(address.as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth") > PHONE["width"]
        complaints = page.evaluate(OUTSIDE) + page.evaluate(CUT)
        if wide or complaints:
            found[str(address.relative_to(site))] = complaints
    assert found == {}
    page.goto((site / "quickstart" / "index.html").as_uri())
    page.evaluate(WIDE)
    assert page.evaluate(CUT)  # the check notices a line that is cut


def test_drawings_can_be_read_in_the_dark(visit):
    """The letters of drawings are as light as those of the text, on a dark ground."""
    page = visit("interactive/points", color_scheme="dark")
    brightness = """selector => {
      const colour = getComputedStyle(document.querySelector(selector));
      const [r, g, b] = (selector === "body" ? colour.backgroundColor : colour.fill).match(/[\\d.]+/g).map(Number);
      return (r + g + b) / 3;
    }"""
    assert page.evaluate(brightness, "body") < 60
    assert page.evaluate(brightness, ".interactive svg text") > 150
