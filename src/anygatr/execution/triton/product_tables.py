"""The terms of a product plan as tables, for plans too long to be unrolled."""

from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from anygatr.ops.product import ProductPlan

PLACES = 2**16  # a pair of blades is one integer, left * PLACES + right


class TermTables(NamedTuple):
    """Which blades of the factors each blade of the results adds up.

    A target is one blade of one result, blade * results + result. Its runs are `runs[targets[n]:targets[n + 1]]`: left
    factor, right factor, where its pairs begin and end, their sign, and 1 where the sum is times the reference.
    """

    targets: Int[Tensor, " targets+1"]
    runs: Int[Tensor, "runs 6"]
    pairs: Int[Tensor, " pairs"]


@lru_cache(maxsize=64)
def product_tables(plan: ProductPlan, blades: int, device: torch.device) -> TermTables:
    """The tables on a device, moved once."""
    lists: dict[tuple[int, int], dict[tuple[int, int, int, bool], list[int]]] = {}
    for term in plan.terms:
        for k, i, j, sign in term.entries:
            runs = lists.setdefault((k, term.target), {})
            runs.setdefault((term.left, term.right, sign, term.odd), []).append(i * PLACES + j)
    targets, rows, pairs = [0], list[list[int]](), list[int]()
    for k in range(blades):
        for result in range(plan.sizes[0]):
            for (left, right, sign, odd), own in lists.get((k, result), {}).items():
                rows.append([left, right, len(pairs), len(pairs) + len(own), sign, int(odd)])
                pairs += own
            targets.append(len(rows))
    made = (torch.tensor(t, dtype=torch.int32) for t in (targets, rows, pairs))
    return TermTables(*(t.to(device) for t in made))
