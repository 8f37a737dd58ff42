"""Weights of official GATr and of L-GATr moved into our networks, with the same outputs.

A peer's layer is read as one of ours (`Weights`); what the peer does differently, such as its order of heads, its sign of
the join or the learned gains of its norms, is absorbed there, so that the network itself knows nothing of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anygatr.convert_weights import Source, Weights, fill, refuse_others
from anygatr.networks.gatr import GATr
from anygatr.nn.block import Block
from anygatr.nn.width import Width
from anygatr.spaces.features import Distance
from anygatr.spaces.geometry import Geometry
from anygatr.spaces.presets import geometry

REQUIRED = object()
CHANNELS = {f"{part}_{kind}_channels": REQUIRED for kind in ("mv", "s") for part in ("in", "out", "hidden")}
NETWORK = {**CHANNELS, "reinsert_mv_channels": None, "reinsert_s_channels": None, "dropout_prob": None}
ATTENTION = {"num_heads": 8, "multi_query": True}
GATR = {
    **NETWORK,
    **ATTENTION,
    "num_blocks": 10,
    "increase_hidden_channels": 2,
    "normalizer_eps": 1e-3,
    "pos_encoding": False,
    "pos_enc_base": 4096,
    "activation": "gelu",
    "checkpoint_blocks": False,
}
LGATR = {
    **NETWORK,
    **ATTENTION,
    "num_blocks": REQUIRED,
    "multi_query": False,
    "attn_ratio": 1,
    "head_scale": False,
    "nonlinearity": "gelu",
    "mlp_ratio": 4,
    "num_layers_mlp": 2,
    "subgroup": True,
    "bivector": True,
    "geometric_product": True,
    "norm_elementwise_affine": True,
    "checkpoint_blocks": False,
}
# what the peers' networks fill in themselves, and what changes their speed but not their outputs
FILLED_IN = {
    "mv_channels",
    "s_channels",
    "output_init",
    "additional_qk_mv_channels",
    "additional_qk_s_channels",
    "checkpoint",
}
SPEED = {"sparse_gp", "sparse_linear", "naive_amp", "compile", "compile_kwargs", "activation_memory_budget"}
ONLY = {  # the options whose other values our networks do not have
    "pos_enc_base": 4096,
    "activation": "gelu",
    "nonlinearity": "gelu",
    "num_layers_mlp": 2,
    "bivector": True,
    "geometric_product": True,
}


def from_gatr(state_dict: Mapping[str, Tensor], config: Mapping[str, Any]) -> GATr:
    """Our `GATr` with the outputs of official GATr (1.4) for this state dict and these constructor arguments.

    `config` has the arguments of its `GATr`; those of `attention` and `mlp` may be nested as there, or flat.
    """
    refuse_others(state_dict, config)
    options = _options("GATr", config, GATR)
    inputs, hidden, outputs = _widths(options)
    head = _head(hidden, options["num_heads"], options["increase_hidden_channels"], rope=options["pos_encoding"])
    features = tuple(
        replace(feature, eps=options["normalizer_eps"]) if isinstance(feature, Distance) else feature
        for feature in geometry("iP").features
    )
    geo = geometry("iP", norm_form="clamp", features=features)
    net = GATr(geo, inputs, hidden, outputs, head=head, rope=options["pos_encoding"], **_common(options))
    source = Source("GATr", state_dict, geo, _outer_maps(geo))
    if options["in_s_channels"] == 0:
        source.state["linear_in.bias"] = torch.zeros(hidden.mv, 1)  # it has a bias there for None but not for 0
    net.to(source.dtype)
    fill(net.linear_in, source.linear("linear_in", inputs, hidden))
    for i, block in enumerate(net.blocks):
        _fill_gatr_block(cast(Block, block), source, f"blocks.{i}", options)
    fill(net.linear_out, source.linear("linear_out", hidden, outputs))
    source.finish()
    return net


def from_lgatr(state_dict: Mapping[str, Tensor], config: Mapping[str, Any]) -> GATr:
    """Our `GATr` with the outputs of `lgatr.LGATr` (2.0) for this state dict and these constructor arguments.

    Those of `attention`, `mlp` and `primitives` may be nested as there, or flat. `subgroup=True`, its default, becomes the
    Lorentz geometry without mirrors.
    """
    refuse_others(state_dict, config)
    options = _options("LGATr", config, LGATR)
    inputs, hidden, outputs = _widths(options)
    head = _head(hidden, options["num_heads"], options["attn_ratio"])
    eps = float(torch.tensor(0.01, dtype=torch.float32))  # it keeps the number in float32 whatever the network's dtype
    geo = geometry("L", mirrors=not options["subgroup"], norm_form="clamp", norm_eps=eps)
    net = GATr(
        geo,
        inputs,
        hidden,
        outputs,
        head=head,
        mlp_ratio=options["mlp_ratio"],
        inner_norm=True,
        scalar_gelu="tanh",
        **_common(options),
    )
    source = Source("LGATr", state_dict, geo, _pseudoscalar_maps(geo))
    net.to(source.dtype)
    fill(net.linear_in, source.linear("linear_in", inputs, hidden))
    for i, block in enumerate(net.blocks):
        _fill_lgatr_block(cast(Block, block), source, f"blocks.{i}", options)
    fill(net.linear_out, source.linear("linear_out", hidden, outputs))
    source.finish()
    return net


def _fill_gatr_block(block: Block, source: Source, prefix: str, options: dict[str, Any]) -> None:
    hidden, attention = block.inputs, block.attention
    heads, head = attention.attend.heads, attention.attend.head
    qkv = _queries_keys_values(block, source, f"{prefix}.attention.qkv_module", options, bias=True)
    _fill_queries_keys_values(block, qkv)
    fill(attention.out, source.linear(f"{prefix}.attention.out_linear", head * heads, hidden))
    if options["pos_encoding"]:
        source.take(f"{prefix}.attention.pos_encoding.inv_freq", head.s // 2)  # a constant that ours computes
    log_weights = source.take(f"{prefix}.attention.attention.log_weights", heads, 1, head.mv)
    with torch.no_grad():
        attention.attend.log_weights[0].copy_(log_weights.squeeze(1))
    wide, layers = hidden * 2, f"{prefix}.mlp.layers"
    names = ("linear_left", "linear_right", "linear_join_left", "linear_join_right")
    factors = [source.linear(f"{layers}.0.{name}", hidden, Width(hidden.mv, 0)) for name in names]
    fill(block.mlp.bilinear.factors, Weights.stacked(*factors))
    # its join is dual(dual(x) ^ dual(y)), ours times (-1)^grade
    grades = torch.arange(block.geometry.algebra.n + 1)
    signs = torch.cat([torch.ones(hidden.mv, len(grades)), ((-1.0) ** grades).expand(hidden.mv, -1)])
    fill(block.mlp.bilinear.out, source.linear(f"{layers}.0.linear_out", Width(wide.mv, hidden.s), wide).gained(signs))
    fill(block.mlp.out, source.linear(f"{layers}.{_last(options)}", wide, hidden))


def _fill_lgatr_block(block: Block, source: Source, prefix: str, options: dict[str, Any]) -> None:
    hidden, attention = block.inputs, block.attention
    heads, head = attention.attend.heads, attention.attend.head
    affine, grades = options["norm_elementwise_affine"], block.geometry.algebra.n + 1
    gains = [
        (source.take(f"{prefix}.{norm}.weight_mv", hidden.mv, grades), source.take(f"{prefix}.{norm}.weight_s", hidden.s))
        if affine
        else (torch.ones(hidden.mv, grades), torch.ones(hidden.s))
        for norm in ("norm1", "norm2")
    ]
    qkv = _queries_keys_values(block, source, f"{prefix}.attention.qkv_module", options, bias=False)
    _fill_queries_keys_values(block, [(part.gained(*gains[0]), again) for part, again in qkv])
    out = source.linear(f"{prefix}.attention.out_linear", head * heads, hidden)
    if options["head_scale"]:
        scale = source.take(f"{prefix}.attention.head_scale", heads)
        mv, s = scale.repeat_interleave(head.mv), scale.repeat_interleave(head.s)
        out = out.gained(mv.unsqueeze(1).expand(-1, grades), s)
    fill(attention.out, out)
    wide, layers = hidden * options["mlp_ratio"], f"{prefix}.mlp.layers"
    names = ("linear_left", "linear_right")
    factors = [source.linear(f"{layers}.0.{name}", hidden, Width(wide.mv, 0)).gained(*gains[1]) for name in names]
    fill(block.mlp.bilinear.factors, Weights.stacked(*factors))
    out = source.linear(f"{layers}.0.linear_out", Width(wide.mv, hidden.s), wide)
    fill(block.mlp.bilinear.out, out.gained(torch.ones(wide.mv, grades), gains[1][1]))
    fill(block.mlp.out, source.linear(f"{layers}.{_last(options)}", wide, hidden))


def _queries_keys_values(
    block: Block, source: Source, prefix: str, options: dict[str, Any], bias: bool
) -> list[tuple[Weights, Weights]]:
    """For queries, keys and values: the layer that reads the stream, and the one that reads the input channels again."""
    hidden, (heads, head) = block.inputs, (block.attention.attend.heads, block.attention.attend.head)
    more = Width(len(options["reinsert_mv_channels"] or ()), len(options["reinsert_s_channels"] or ()))
    again = Width(hidden.mv + more.mv, hidden.s + more.s)
    if options["multi_query"]:
        q = source.linear(f"{prefix}.q_linear", again, head * heads, bias)
        k = source.linear(f"{prefix}.k_linear", again, head, bias)
        v = source.linear(f"{prefix}.v_linear", hidden, head, bias)
        parts = [q.outputs(_head_major(head.mv, heads), _head_major(head.s, heads)), k, v]
    else:
        qkv = source.linear(f"{prefix}.in_linear", again, head * heads * 3, bias)
        mv, s = _head_major(head.mv, heads), _head_major(head.s, heads)
        parts = [qkv.outputs(mv + i * len(mv), s + i * len(s)) for i in range(3)]
    return [
        (p.inputs(slice(hidden.mv), slice(hidden.s)), p.inputs(slice(hidden.mv, None), slice(hidden.s, None))) for p in parts
    ]


def _fill_queries_keys_values(block: Block, parts: list[tuple[Weights, Weights]]) -> None:
    fill(block.attention.qkv, Weights.stacked(*(stream for stream, _ in parts)))
    if block.attention.again is not None:
        seeing = [again for _, again in parts if again.weight.shape[1] or again.s_to_s.shape[1]]
        fill(block.attention.again, Weights.stacked(*seeing))


def _head_major(channels: int, heads: int) -> Int[Tensor, " n"]:
    """The peers have the head as the last index of a query's channels, ours have it first."""
    return torch.arange(channels * heads).view(channels, heads).T.flatten()


def _last(options: dict[str, Any]) -> int:
    """The number of the MLP's last linear layer: a dropout layer may come before its activation."""
    return 2 if options["dropout_prob"] is None else 3


def _outer_maps(geo: Geometry) -> Float[Tensor, "a k k"]:
    """Official GATr's maps: <x>_k, then e0 ^ <x>_k, each divided by its Frobenius norm."""
    alg = geo.algebra
    outer = torch.stack([alg.outer(alg["e0"], one) for one in torch.eye(alg.dim, dtype=torch.float64)], 1)
    maps = torch.cat([_projections(geo), (outer @ _projections(geo))[:-1]]).float()  # it divides in float32
    return (maps / maps.flatten(1).norm(dim=1)[:, None, None]).double()


def _pseudoscalar_maps(geo: Geometry) -> Float[Tensor, "a k k"]:
    """L-GATr's maps: <x>_k and, without mirrors, <x>_k I."""
    right = geo.algebra.right(geo.algebra.pseudoscalar)
    maps = _projections(geo)
    return maps if len(geo.symmetry.mirrors) else torch.cat([maps, right @ maps])


def _projections(geo: Geometry) -> Float[Tensor, "g k k"]:
    grades = geo.algebra.grades
    return torch.stack([torch.diag((grades == k).double()) for k in range(geo.algebra.n + 1)])


def _options(peer: str, config: Mapping[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The peer's arguments, flat, with its defaults; all that is missing, unknown or beyond us in one error."""
    given: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("attention", "mlp", "primitives"):
            inner = {} if value is None else value if isinstance(value, Mapping) else vars(value)
            given |= {name: option for name, option in inner.items() if name not in NETWORK}
        else:
            given[key] = value
    options = {**known, **{key: value for key, value in given.items() if key in known}}
    problems = [f"{key}: missing" for key, value in options.items() if value is REQUIRED]
    problems += [f"{key}: not an argument of {peer}" for key in given if key not in {*known, *FILLED_IN, *SPEED}]
    problems += [
        f"{key}={options[key]!r}: our networks have {only!r} alone"
        for key, only in ONLY.items()
        if key in options and (options[key] or None) != (only or None)
    ]
    if problems:
        raise ValueError(f"config cannot be converted from {peer}\n" + "\n".join(f"  {line}" for line in problems))
    return options


def _widths(options: dict[str, Any]) -> tuple[Width, Width, Width]:
    inputs, hidden, outputs = (
        Width(options[f"{part}_mv_channels"], options[f"{part}_s_channels"] or 0) for part in ("in", "hidden", "out")
    )
    return inputs, hidden, outputs


def _head(hidden: Width, heads: int, ratio: int, rope: bool = False) -> Width:
    """The peers' floor rules: at least one multivector and four scalars, with positions an even eight."""
    mv, s = max(ratio * hidden.mv // heads, 1), max(ratio * hidden.s // heads, 4)
    return Width(mv, max(s + s % 2, 8) if rope else s)


def _common(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of our `GATr` that both peers have."""
    return {
        "blocks": options["num_blocks"],
        "heads": options["num_heads"],
        "multi_query": options["multi_query"],
        "dropout": options["dropout_prob"] or 0.0,
        "reinsert": tuple(options["reinsert_mv_channels"] or ()),
        "reinsert_s": tuple(options["reinsert_s_channels"] or ()),
        "checkpoint": bool(options["checkpoint_blocks"]),
        "values_see_inputs": not options["multi_query"],
    }
