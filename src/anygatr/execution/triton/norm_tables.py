"""The groups of a norm for its kernels."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from anygatr.ops.norm import NormPlan


@lru_cache(maxsize=64)
def norm_members(plan: NormPlan, device: torch.device) -> tuple[Int[Tensor, " numbers"], int]:
    """Where the terms of each group begin and end, then the same for each blade, then the terms; and how many groups.

    Terms of a group are (blade, partner, sign), those of a blade (group, partner, sign): all terms in which it comes first.
    """
    of_groups = [[(p.blade, p.partner, p.sign) for p in group] for group in plan.groups]
    of_blades = [
        [(g, p.partner, p.sign) for g, group in enumerate(plan.groups) for p in group if p.blade == blade]
        for blade in range(plan.blades)
    ]
    lists, head, body = [*of_groups, *of_blades], list[int](), list[int]()
    for terms in lists:
        head += [2 * len(lists) + len(body), 2 * len(lists) + len(body) + 3 * len(terms)]
        body += [int(number) for term in terms for number in term]
        assert all(sign == int(sign) for *_, sign in terms), "a metric has the signs 1 and -1"
    return torch.tensor([*head, *body], dtype=torch.int32).to(device), len(plan.groups)
