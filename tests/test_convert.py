"""Converted networks give the peers' outputs: official GATr's golden files, and lgatr itself beside ours."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from anygatr import GATr, convert
from anygatr.checkpoint import load, save
from anygatr.convert import _outer_maps, from_gatr, from_lgatr
from anygatr.convert_weights import Weights
from anygatr.nn import Width
from anygatr.ops.rope import BASE
from anygatr.spaces.features import Distance
from anygatr.spaces.presets import geometry
from anygatr.testing import assert_equivariant

GOLDEN = sorted((Path(__file__).parent / "golden").glob("gatr_*.npz"))
TOLERANCE = 1e-10


def golden(path):
    arrays = dict(np.load(path))
    config = json.loads(str(arrays.pop("config")))
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    state = {key.removeprefix("param/"): value for key, value in tensors.items() if key.startswith("param/")}
    return state, config, tensors


def distance(a, b):
    return max(float((x - y).detach().abs().max()) if x.numel() else 0.0 for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_gatr_is_reproduced(path):
    state, config, tensors = golden(path)
    net = from_gatr(state, config)
    x, s = tensors["in/mv"], tensors["in/s"]
    assert distance(net(x, s), (tensors["out/mv"], tensors["out/s"])) < TOLERANCE
    assert distance(net(x[:1], s[:1]), (tensors["out_first/mv"], tensors["out_first/s"])) < TOLERANCE
    assert all(parameter.dtype == torch.float64 for parameter in net.parameters())


def test_both_golden_files_are_here():
    assert [path.stem for path in GOLDEN] == ["gatr_mha_reinsert", "gatr_mq"]


def _channel_order(channels, heads):
    return torch.arange(channels * heads)


def _float64_maps(geo):
    maps = _outer_maps(geo)
    return maps / maps.flatten(1).norm(dim=1)[:, None, None]


MISTAKES = {
    "join sign": (Weights, "gained", lambda weights, *gains: weights),
    "order of heads": (convert, "_head_major", _channel_order),
    "added eps": (convert, "geometry", lambda name, norm_form=None, **more: geometry(name, **more)),
    "maps divided in float64": (convert, "_outer_maps", _float64_maps),
}


@pytest.mark.parametrize(("place", "name", "mistake"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_mistakes_are_seen(path, place, name, mistake, monkeypatch):
    """Negative controls: without any one of the peer's peculiarities the outputs differ."""
    state, config, tensors = golden(path)
    monkeypatch.setattr(place, name, mistake)
    net = from_gatr(state, config)
    assert distance(net(tensors["in/mv"], tensors["in/s"]), (tensors["out/mv"], tensors["out/s"])) > 10 * TOLERANCE


def test_gatr_takes_its_nested_arguments_and_objects():
    state, config, tensors = golden(GOLDEN[0])
    flat = dict(config)
    attention = {key: flat.pop(key) for key in ("num_heads", "multi_query")} | {"in_mv_channels": 99, "dropout_prob": 0.5}
    for nested in (attention, SimpleNamespace(**attention)):
        net = from_gatr(state, {**flat, "attention": nested, "mlp": {"activation": "gelu", "mv_channels": None}})
        assert distance(net(tensors["in/mv"], tensors["in/s"]), (tensors["out/mv"], tensors["out/s"])) < TOLERANCE


def test_gatr_normaliser_reaches_the_distance_feature():
    state, config, tensors = golden(GOLDEN[1])
    net = from_gatr(state, {**config, "normalizer_eps": 0.1})
    assert [f.eps for f in net.geometry.features if isinstance(f, Distance)] == [0.1]
    assert distance(net(tensors["in/mv"], tensors["in/s"]), (tensors["out/mv"], tensors["out/s"])) > 1e-6


def test_gatr_without_input_scalars_has_its_bias():
    """None is a bias of its own instead of the bias of the scalars' map; the outputs are those for scalars of zero."""
    state, config, tensors = golden(GOLDEN[1])
    x, s = tensors["in/mv"], tensors["in/s"]
    expected = from_gatr(state, config)(x, torch.zeros_like(s))
    bare = {key: value for key, value in state.items() if not key.startswith(("linear_in.s2mvs", "linear_in.s2s"))}
    bare["linear_in.bias"] = state["linear_in.s2mvs.bias"].unsqueeze(1)
    assert distance(from_gatr(bare, {**config, "in_s_channels": None})(x), expected) < 1e-13


def test_gatr_positions():
    """Rotary positions: the first token is where it was, so a sample of one token has the outputs without positions."""
    state, config, tensors = golden(GOLDEN[1])
    x, s = tensors["in/mv"], tensors["in/s"]
    plain = from_gatr(state, config)
    half = 4
    frequencies = BASE ** (-torch.arange(half) / half)
    placed = {f"blocks.{i}.attention.pos_encoding.inv_freq": frequencies for i in range(config["num_blocks"])}
    net = from_gatr({**state, **placed}, {**config, "pos_encoding": True})
    assert distance(net(x[:, :1], s[:, :1]), plain(x[:, :1], s[:, :1])) < 1e-13
    assert distance(net(x, s), plain(x, s)) > 1e-6


BASIC = {
    "num_blocks": 2,
    "in_mv_channels": 2,
    "out_mv_channels": 1,
    "hidden_mv_channels": 4,
    "in_s_channels": 3,
    "out_s_channels": 2,
    "hidden_s_channels": 8,
    "attention": {"num_heads": 2},
    "mlp": {},
}
LGATR = {
    "defaults": {},
    "multi-query": {"attention": {"num_heads": 2, "multi_query": True, "attn_ratio": 2}},
    "reinsertion": {"reinsert_mv_channels": (1,), "reinsert_s_channels": (0, 2)},
    "multi-query, reinsertion": {
        "attention": {"num_heads": 2, "multi_query": True},
        "reinsert_mv_channels": (0, 1),
        "reinsert_s_channels": (1,),
    },
    "head scale, floors": {"attention": {"num_heads": 8, "head_scale": True}},
    "narrow mlp, no gains, dropout": {"mlp": {"mlp_ratio": 1}, "norm_elementwise_affine": False, "dropout_prob": 0.2},
    "no scalars in or out": {"in_s_channels": 0, "out_s_channels": 0},
    "no multivectors in": {"in_mv_channels": 0},
}


def peer(subgroup, options, scale=1.0):
    """An LGATr whose every parameter is far from its start, with inputs."""
    lgatr = pytest.importorskip("lgatr")
    config = {**BASIC, "primitives": {"subgroup": subgroup}, **options}
    generator = torch.Generator().manual_seed(5)
    net = lgatr.LGATr(**config).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    x = scale * torch.randn(2, 5, config["in_mv_channels"], 16, generator=generator).double()
    s = scale * torch.randn(2, 5, config["in_s_channels"], generator=generator).double()
    return net, config, x, s


@pytest.mark.parametrize("options", LGATR.values(), ids=LGATR)
@pytest.mark.parametrize("subgroup", [True, False], ids=["proper", "full"])
def test_lgatr_is_reproduced(options, subgroup):
    theirs, config, x, s = peer(subgroup, options)
    ours = from_lgatr(theirs.state_dict(), config).eval()
    expected, expected_s = theirs(x, s)
    y, t = ours(x, s)
    assert bool(len(ours.geometry.symmetry.mirrors)) == (not subgroup)
    assert distance((y, t), (expected, t[..., :0] if expected_s is None else expected_s)) < TOLERANCE
    assert float(expected.detach().abs().max()) > 1e-2


def test_lgatr_is_reproduced_where_the_norm_clamps():
    theirs, config, x, s = peer(True, {}, scale=1e-3)
    for key, parameter in theirs.named_parameters():
        if "linear_in" in key:
            parameter.data.mul_(1e-2)
    assert distance(from_lgatr(theirs.state_dict(), config)(x, s), theirs(x, s)) < TOLERANCE


def test_gains_of_lgatr_matter(monkeypatch):
    theirs, config, x, s = peer(True, {})
    monkeypatch.setattr(Weights, "gained", lambda weights, *gains: weights)
    assert distance(from_lgatr(theirs.state_dict(), config)(x, s), theirs(x, s)) > 1e-3


def test_converted_network_is_saved_and_loaded(tmp_path):
    state, config, tensors = golden(GOLDEN[0])
    save(from_gatr(state, config), tmp_path / "gatr.safetensors")
    net = load(tmp_path / "gatr.safetensors")
    assert distance(net(tensors["in/mv"], tensors["in/s"]), (tensors["out/mv"], tensors["out/s"])) < TOLERANCE


@pytest.mark.parametrize("move", [from_gatr, from_lgatr])
def test_all_wrong_keys_are_in_one_error(move):
    if move is from_gatr:
        state, config, _ = golden(GOLDEN[1])
    else:
        theirs, config, _, _ = peer(True, {})
        state = theirs.state_dict()
    state = dict(state)
    del state["linear_in.s2s.weight"], state["blocks.1.attention.out_linear.mvs2s.bias"]
    state["linear_out.weight"] = torch.zeros(7, 7, 7)
    state["blocks.0.mlp.layers.0.linear_left.s2mvs.weight"] = torch.zeros(3)
    state["blocks.9.extra"] = torch.zeros(1)
    with pytest.raises(ValueError, match="state_dict") as error:
        move(state, config)
    for line in (
        r"missing: linear_in.s2s.weight (8, 3)",
        r"missing: blocks.1.attention.out_linear.mvs2s.bias (8,)",
        r"misshaped: linear_out.weight (7, 7, 7), expected (1, 4,",
        r"misshaped: blocks.0.mlp.layers.0.linear_left.s2mvs.weight (3,), expected",
        r"unknown: blocks.9.extra",
    ):
        assert line in str(error.value)
    assert str(error.value).count("\n") == 5


@pytest.mark.parametrize(
    ("mv", "s", "heads", "rope", "head"),
    [(16, 128, 8, False, (4, 32)), (4, 8, 16, False, (1, 4)), (5, 9, 4, False, (2, 4)), (5, 9, 4, True, (2, 8)),
     (16, 36, 8, True, (4, 10))],
)  # fmt: skip
def test_heads_of_gatr_have_its_floors(mv, s, heads, rope, head):
    """2 * channels // heads, but at least one multivector and four scalars; with positions an even eight."""
    config = {**BASIC, "hidden_mv_channels": mv, "hidden_s_channels": s, "num_heads": heads, "pos_encoding": rope}
    config = {key: value for key, value in config.items() if key not in ("attention", "mlp")}
    with pytest.raises(ValueError, match="state_dict") as error:
        from_gatr({}, config)
    keys = "missing: blocks.0.attention.qkv_module"
    assert f"{keys}.k_linear.weight ({head[0]}, {mv}, 9)\n" in str(error.value)
    assert f"{keys}.k_linear.s2s.weight ({head[1]}, {s})\n" in str(error.value)
    assert f"{keys}.q_linear.s2s.weight ({head[1] * heads}, {s})\n" in str(error.value)


@pytest.mark.parametrize("move", [from_gatr, from_lgatr])
def test_other_things_than_dictionaries_are_named(move):
    with pytest.raises(ValueError, match=r"state_dict is a Linear; pass net\.state_dict\(\)"):
        move(torch.nn.Linear(1, 1), BASIC)
    with pytest.raises(ValueError, match="config is a NoneType; pass the arguments"):
        move({}, None)


def test_prefix_of_a_wrapper_is_named():
    state, config, _ = golden(GOLDEN[0])
    with pytest.raises(ValueError, match=r"remove the prefix 'net\.' from every key"):
        from_gatr({f"net.{key}": value for key, value in state.items()}, config)


@pytest.mark.parametrize(
    ("move", "change", "lines"),
    [
        (
            from_gatr,
            {"in_mv_channels": ..., "activation": "relu", "depth": 3},
            ["in_mv_channels: missing", "depth: not", "'relu'"],
        ),
        (from_gatr, {"pos_enc_base": 10000}, ["pos_enc_base=10000"]),
        (from_lgatr, {"mlp": {"nonlinearity": "silu", "num_layers_mlp": 3}}, ["'silu'", "num_layers_mlp=3"]),
        (
            from_lgatr,
            {"primitives": {"bivector": False, "geometric_product": False}},
            ["bivector=False", "geometric_product=False"],
        ),
    ],
)
def test_all_wrong_arguments_are_in_one_error(move, change, lines):
    config = {**(golden(GOLDEN[1])[1] if move is from_gatr else BASIC), **change}
    config = {key: value for key, value in config.items() if value is not ...}
    with pytest.raises(ValueError, match="config cannot be converted") as error:
        move({}, config)
    for line in lines:
        assert line in str(error.value)


def _others():
    """The peers' networks that are not converted, each as (name, state dict, config)."""
    lgatr = pytest.importorskip("lgatr")
    vectors = {f"{part}_v_channels": 2 for part in ("in", "hidden", "out")} | {"num_blocks": 1, "num_heads": 2}
    vectors |= {f"{part}_s_channels": 4 for part in ("in", "hidden", "out")}
    parts = {f"{part}_{kind}_channels": 4 for part in ("in", "hidden", "out") for kind in ("mv", "s")}
    crossed = {"num_blocks": 1, "attention": {"num_heads": 2}, "crossattention": {"num_heads": 2}, "mlp": {}}
    yield "LGATrSlim", lgatr.LGATrSlim, vectors
    yield "ConditionalLGATrSlim", lgatr.ConditionalLGATrSlim, {**vectors, "v_channels_cond": 2, "s_channels_cond": 2}
    yield "ConditionalLGATr", lgatr.ConditionalLGATr, {**parts, **crossed, "mv_channels_cond": 2, "s_channels_cond": 2}


def test_other_networks_of_the_peers_are_recognised():
    """By their keys where the config says nothing, and by the config where the keys say nothing."""
    for network, build, config in _others():
        state = build(**config).state_dict()
        for state_dict, arguments in ((state, BASIC), ({}, config)):
            with pytest.raises(ValueError, match=rf"those of {network}, which is not converted"):
                from_lgatr(state_dict, arguments)
    state, config, _ = golden(GOLDEN[0])
    positions = {"blocks.1.attention.pos_encoding.inv_freq": torch.ones(4)}  # axial: in every other block
    for state_dict, arguments in (({**state, **positions}, config), (state, {**config, "pos_encodings": (True, False)})):
        with pytest.raises(ValueError, match=r"those of AxialGATr.*anygatr\.nn\.AxialGATr"):
            from_gatr(state_dict, arguments)


def test_lgatr_takes_its_objects():
    lgatr = pytest.importorskip("lgatr")
    theirs, config, x, s = peer(True, {"attention": {"num_heads": 4}})
    objects = {"attention": lgatr.SelfAttentionConfig(num_heads=4), "mlp": lgatr.MLPConfig(), "primitives": None}
    assert distance(from_lgatr(theirs.state_dict(), {**config, **objects})(x, s), theirs(x, s)) < TOLERANCE


@torch.no_grad()
def test_what_changes_speed_alone_is_taken():
    theirs, config, x, s = peer(False, {})
    speed = {"naive_amp": False, "checkpoint_blocks": True, "compile": False}
    fast = {"subgroup": False, "sparse_gp": False, "sparse_linear": True}
    ours = from_lgatr(theirs.state_dict(), {**config, **speed, "primitives": fast})
    assert distance(ours(x, s), theirs(x, s)) < TOLERANCE
    assert ours.checkpoint


def test_embeddings_of_the_guide_are_the_peers():
    """What docs/migration.md says: official GATr's components, and L-GATr's, written out."""
    generator = torch.Generator().manual_seed(3)
    x, n = (torch.randn(3, generator=generator, dtype=torch.float64) for _ in range(2))
    q = torch.nn.functional.normalize(torch.randn(4, generator=generator, dtype=torch.float64), dim=0)
    geo = geometry("iP")
    offset = -float(n @ x)
    for ours, theirs in [
        (geo.embed_point(x), {"e123": 1, "e023": -x[0], "e013": x[1], "e012": -x[2]}),
        (geo.embed_translation(x), {"1": 1, "e01": -x[0] / 2, "e02": -x[1] / 2, "e03": -x[2] / 2}),
        (geo.embed_plane(n, x), {"e0": offset, "e1": n[0], "e2": n[1], "e3": n[2]}),
        (geo.embed_rotation(q), {"1": q[3], "e12": -q[2], "e13": q[1], "e23": -q[0]}),
        (geo.embed_scalar(x[0]), {"1": x[0]}),
        (geo.embed_pseudoscalar(x[0]), {"e0123": x[0]}),
    ]:
        assert torch.allclose(ours, sum(float(value) * geo.algebra[blade] for blade, value in theirs.items()), atol=1e-14)
    mv = torch.randn(16, generator=generator, dtype=torch.float64)
    assert torch.equal(geo.extract_vector(mv), mv[2:5])
    lgatr = pytest.importorskip("lgatr")
    for mirrors in (True, False):
        lorentz = geometry("L", mirrors=mirrors)
        assert torch.equal(lorentz.embed_momentum(q), lgatr.embed_vector(q))
        assert torch.equal(lorentz.extract_momentum(mv), lgatr.extract_vector(mv))


@pytest.mark.parametrize("name", ["E", "iP", "C", "L"])
def test_options_of_the_peers_are_equivariant_everywhere(name):
    """What the peers have and our defaults have not: inner norms, scalars seen again, values that see them, own widths."""
    options = {"inner_norm": True, "mlp_ratio": 3, "scalar_gelu": "tanh", "head": Width(2, 3)}
    again = {"reinsert": (1,), "reinsert_s": (0, 2), "values_see_inputs": True}
    net = GATr(geometry(name, 2), Width(2, 3), Width(4, 5), Width(2, 1), blocks=1, heads=3, **options, **again)
    assert_equivariant(net.double(), net.geometry)
    x, s = net.example(7)
    packed = net(x, s, offsets=torch.tensor([0, 3, 7]))
    alone = [net(x[:3], s[:3]), net(x[3:], s[3:])]
    assert distance(packed, [torch.cat(parts) for parts in zip(*alone, strict=True)]) < 1e-12
    seen = s.clone()
    seen[:, 0] += 1
    net.linear_in.s_to_s.data.zero_()
    net.linear_in.s_to_mv.data.zero_()
    assert distance(net(x, s), net(x, seen)) > 1e-6  # the scalars arrive by no other way
