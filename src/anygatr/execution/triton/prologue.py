"""Calls of the kernels of norms and gates, which are prologues of linear maps: statistics forwards, gradients backwards."""

import torch
from torch import Tensor

from anygatr.execution.triton import norm_kernels
from anygatr.execution.triton.launch import LANGUAGE, call, programs
from anygatr.execution.triton.norm_tables import norm_members
from anygatr.execution.triton.schedule import LoadPrologue

MV = {None: 0, "norm": 1, "gate": 2}
SCALARS = {None: 0, "norm": 1, "exact": 2, "tanh": 3}
"""As `pointwise.py` names them."""
TOKENS, NUMBERS = 16, 256  # of a program
LAYER_NORM_EPS = 1e-5  # torch's


def modes(prologue: LoadPrologue) -> dict[str, int]:
    """What a linear map does while it loads, as constants of its kernels."""
    return {"MV": MV[prologue.mv], "SCALARS": SCALARS[prologue.s]}


def statistics(prologue: LoadPrologue, x: Tensor, s: Tensor, real: torch.dtype) -> Tensor:
    """What normalises each token; empty where nothing is normalised."""
    tokens = s.shape[:-1].numel()
    if "norm" not in (prologue.mv, prologue.s):
        return x.new_empty(0, dtype=real)
    out = x.new_empty(4, tokens, dtype=real)
    members, groups = norm_members(prologue.norm, x.device) if prologue.norm else (out, 0)
    form, eps = prologue.norm.floor if prologue.norm else ("add", 0.0)
    call(
        norm_kernels.statistics_kernel,
        (programs(tokens, TOKENS),),
        *(x, s, members, out, tokens, x.shape[-1], s.shape[-1], groups),
        MV=int(prologue.mv == "norm" and x.shape[-1] > 0),
        SCALARS=int(prologue.s == "norm" and s.shape[-1] > 0),
        ABSOLUTE=bool(prologue.norm and prologue.norm.absolute),
        CLAMP=form == "clamp",
        EPS=eps,
        SCALAR_EPS=LAYER_NORM_EPS,
        REAL=LANGUAGE[real],
        TOKENS=TOKENS,
        CHANNELS=16,
    )
    return out


def prologue_backward(
    prologue: LoadPrologue, gx: Tensor, gs: Tensor, x: Tensor, s: Tensor, statistics: Tensor, real: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Gradients of what the map read as gradients of what the prologue read."""
    mv, scalars = bool(x.shape[-1]) and prologue.mv, bool(s.shape[-1]) and prologue.s
    out_x, out_s = torch.empty_like(gx) if mv else gx, torch.empty_like(gs) if scalars else gs
    tokens = s.shape[:-1].numel()
    if "norm" in (mv, scalars):
        members, groups = norm_members(prologue.norm, x.device) if prologue.norm else (statistics, 0)
        call(
            norm_kernels.norm_backward_kernel,
            (programs(tokens, TOKENS),),
            *(gx, gs, x, s, statistics, members, out_x, out_s, tokens, x.shape[-1], s.shape[-1], groups, len(x)),
            MV=int(mv == "norm"),
            SCALARS=int(scalars == "norm"),
            ABSOLUTE=bool(prologue.norm and prologue.norm.absolute),
            REAL=LANGUAGE[real],
            TOKENS=TOKENS,
            CHANNELS=16,
        )
    if mv == "gate" or scalars in ("exact", "tanh"):
        numbers = x[0].numel(), s.numel()
        call(
            norm_kernels.gate_backward_kernel,
            (programs(max(numbers), NUMBERS),),
            *(gx, gs, x, s, out_x, out_s, *numbers, len(x)),
            MV=MV["gate"] if mv == "gate" else 0,
            SCALARS=SCALARS[scalars] if scalars in ("exact", "tanh") else 0,
            REAL=LANGUAGE[real],
            NUMBERS=NUMBERS,
        )
    return out_x, out_s
