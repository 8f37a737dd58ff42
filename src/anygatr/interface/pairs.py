"""Named numbers and vectors of pairs of tokens, checked: dense grids (..., receiver, sender, columns) or lists of edges."""

from collections.abc import Mapping

import torch
from torch import Tensor

from anygatr.interface.fields import Field, Inputs
from anygatr.interface.tokens import Tokens
from anygatr.networks.pairs import check_edges, real_cells
from anygatr.spaces import kinds
from anygatr.spaces.coordinates import finite, require
from anygatr.spaces.geometry import Geometry

ABSENT = -1
"""The code of a pair without a class."""


def declare_pairs(geo: Geometry, declaration: Mapping[str, str], inputs: Inputs) -> Inputs:
    """The fields of pairs: numbers, classes and vectors, whose zero says nothing."""
    found = Inputs(geo, declaration, invariants=True, anchored=False)
    for field in found.fields:
        if field.name in [other.name for other in inputs.fields]:
            raise ValueError(f"pairs has {field.name!r}, which is an input of tokens already; give it another name")
        zero = torch.zeros(1, kinds.columns(geo, field.part), dtype=torch.float64)
        if field.name in found.positional or any(mv.any() for mv in kinds.embed(geo, field.part, zero)):
            raise ValueError(
                f"pairs has {field.name}={field.kind!r}; what belongs to a pair is a scalar, a category, a pseudoscalar or "
                "a vector, such as the difference of two positions"
            )
    return found


def checked_pairs(
    inputs: Inputs | None, pairs: Mapping[str, Tensor] | None, edges: Tensor | None, tokens: Tokens
) -> dict[str, Tensor]:
    """The fields of pairs, each (*cells, columns); nothing at padding."""
    if inputs is None:
        if pairs is not None or edges is not None:
            raise ValueError(
                "pairs were given, but the model has none; declare them: model(..., pairs={'bond': 'category*4'})"
            )
        return {}
    names = [field.name for field in inputs.fields]
    if pairs is None or set(pairs) != set(names):
        found = "None" if pairs is None else ", ".join(pairs) or "none"
        raise ValueError(f"pairs has {found}; this model takes {', '.join(names)}: pairs={{name: tensor}}")
    shape = next(iter(tokens.values.values())).shape[:-1]
    if edges is not None:
        edges = check_edges(edges, shape, tokens.mask, tokens.sample)
    elif tokens.offsets is not None:
        raise ValueError("edges=None, but packed samples have no grid of pairs; pass edges (2, E)")
    cells = torch.Size((*shape, shape[-1])) if edges is None else edges.shape[1:]
    real = real_cells(tokens.mask).unsqueeze(-1) if edges is None and tokens.mask is not None else None
    return {field.name: _checked(field, inputs.geo, pairs[field.name], cells, real, tokens) for field in inputs.fields}


def _checked(field: Field, geo: Geometry, x: Tensor, cells: torch.Size, real: Tensor | None, tokens: Tokens) -> Tensor:
    size, name = field.columns(geo), f"pairs[{field.name!r}]"
    if not isinstance(x, Tensor) or x.is_complex() or not (x.is_floating_point() or field.is_coded):
        raise ValueError(f"{name} is {getattr(x, 'dtype', type(x).__name__)}; pass a floating point tensor")
    x = x if x.is_floating_point() else x.to(next(iter(tokens.values.values())).dtype)
    x = x.unsqueeze(-1) if size == 1 and x.shape == cells else x
    if x.shape != (*cells, size):
        grid = "" if len(cells) == 1 else ", receiver before sender,"
        raise ValueError(f"{name} has shape {tuple(x.shape)}; these pairs{grid} need {(*cells, size)}")
    if real is not None:
        x = torch.where(real, x, ABSENT if field.is_coded else 0)
    if field.is_coded:

        def wrong() -> Tensor:
            return (x != x.round()) | (x < ABSENT) | (x >= field.count)

        def error() -> ValueError:
            return ValueError(
                f"{name} has the category {x[wrong()][0].item():g}; it was declared with {field.count} classes, the codes "
                f"0 to {field.count - 1}, or {ABSENT} for a pair of none"
            )

        require(lambda: ~wrong().any(), error)
    return finite(x, name)
