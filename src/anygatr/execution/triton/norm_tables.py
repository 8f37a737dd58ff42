"""The groups of a norm for its kernels."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from anygatr.ops.norm import NormPlan


@lru_cache(maxsize=64)
def norm_members(plan: NormPlan, device: torch.device) -> tuple[Int[Tensor, " numbers"], int]:
    """For each group where its members begin and end, then (blade, sign) of each; blades without a metric come last.

    The latter are a group with the sign 0, so that gradients visit every blade once. And the number of groups.
    """
    seen = {blade for group in plan.groups for blade, _ in group}
    groups = [*plan.groups, tuple((blade, 0.0) for blade in range(plan.blades) if blade not in seen)]
    signs = [sign for group in groups for _, sign in group]
    assert all(sign == int(sign) for sign in signs), "a metric has squares 1, 0 and -1"
    head, body = list[int](), list[int]()
    for group in groups:
        head += [2 * len(groups) + len(body), 2 * len(groups) + len(body) + 2 * len(group)]
        body += [number for blade, sign in group for number in (blade, int(sign))]
    return torch.tensor([*head, *body], dtype=torch.int32).to(device), len(groups)
