"""Prints the equivariant maps of the Euclidean, projective and conformal algebras and what a network can build of them."""

from anygatr import expressivity, geometry
from anygatr.lab.config.mathematics import MapsConfig
from anygatr.lab.mathematics import print_verdict, show_maps
from anygatr.lab.system.terminal import Terminal

console = Terminal()
for name in ("E", "P", "C"):
    show_maps(MapsConfig(name))
    console.print()

console.rule("Which equivariant bilinear maps can a network build?")
for name, mirrors, products, linear in (
    ("E", True, ("geometric",), "all"),
    ("C", True, ("geometric",), "all"),
    ("P", True, ("geometric",), "all"),
    ("P", False, ("geometric",), "all"),
    ("P", False, ("geometric", "join"), "paper"),
    ("P", False, ("geometric", "join"), "all"),
):
    group = "E(3)" if mirrors else "SE(3)"
    print_verdict(console, name, group, expressivity(geometry(name, mirrors=mirrors).symmetry, 2, products, linear))
