"""The networks as a user holds them: paths, padding, checkpoints, copies, precision, bad input."""

import copy
import io
import pickle

import pytest
import torch
from family import SMALL, name

import anygatr
from anygatr import AxialGATr, ConditionalGATr, GATr, summary
from anygatr.nn import EquiLinear, GradeDropout, Width
from anygatr.ops.batch import Batch
from anygatr.spaces.presets import geometry

WIDTHS = {"inputs": Width(2, 3), "hidden": Width(4, 8), "outputs": Width(2, 1)}
LENGTHS = [4, 1, 7, 7, 3]
PATHS = [geometry("E", 2), geometry("iP", 2), geometry("C", 1), geometry("L", 2)]


def net_of(geo, **options):
    torch.manual_seed(0)
    net = GATr(geo, **WIDTHS, blocks=2, heads=4, **options)
    for block in net.blocks:
        torch.nn.init.normal_(block.attention.out.weight, std=0.3)  # attention starts small; let it matter here
    return net.double()


def data(geo, rng, *tokens, width=WIDTHS["inputs"]):
    x = torch.randn(*tokens, width.mv, geo.algebra.dim, generator=rng, dtype=torch.float64)
    return x, torch.randn(*tokens, width.s, generator=rng, dtype=torch.float64)


def padded(t, lengths):
    return torch.nn.utils.rnn.pad_sequence(list(t.split(lengths)), batch_first=True)


@pytest.mark.parametrize("geo", PATHS, ids=name)
@pytest.mark.parametrize(
    "options",
    [{}, {"multi_query": False, "reinsert": (0,)}, {"rope": True, "checkpoint": True}],
    ids=["plain", "multi-head", "rope-checkpoint"],
)
def test_every_path_gives_the_same_numbers(geo, options, rng):
    """Each sample alone, padded with garbage and masked, and packed: outputs to 1e-12, gradients to 1e-10.

    Distance features divide by weights of about 1e-3, which costs the gradients the two digits.
    """
    net = net_of(geo, **options)
    x, s = data(geo, rng, sum(LENGTHS))
    mask = padded(torch.ones(sum(LENGTHS), dtype=torch.bool), LENGTHS)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)

    def alone(x, s):
        outputs = [net(a, b) for a, b in zip(x.split(LENGTHS), s.split(LENGTHS), strict=True)]
        return tuple(torch.cat(t) for t in zip(*outputs, strict=True))

    def masked(x, s):
        x, s = padded(x, LENGTHS), padded(s, LENGTHS)
        y, t = net(x.masked_fill(~mask[..., None, None], torch.nan), s.masked_fill(~mask[..., None], torch.inf), mask=mask)
        assert not y[~mask].any()
        assert not t[~mask].any()
        return y[mask], t[mask]

    def packed(x, s):
        return net(x, s, offsets=offsets)

    results = []
    for path in (alone, masked, packed):
        leaf = x.clone().requires_grad_()
        y, t = path(leaf, s)
        loss = (y.sin().sum() + t.cos().sum()) / len(x)
        results.append([y, t, *torch.autograd.grad(loss, [leaf, *(p for p in net.parameters() if p.numel())])])
    for other in results[1:]:
        for i, (a, b) in enumerate(zip(results[0], other, strict=True)):
            tolerance = 1e-12 if i < 2 else 1e-10
            assert torch.allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("geo", PATHS, ids=name)
def test_padding_touches_nothing(geo, rng):
    """A sample of nothing but padding is zero, not NaN, and gradients stay finite."""
    net = net_of(geo)
    x, s = data(geo, rng, 3, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0]], dtype=torch.bool)
    y, t = net(x, s, mask=mask)
    assert not y[1].any()
    assert bool(y[mask].any())
    (y.sum() + t.sum()).backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in net.parameters() if p.numel())
    other = torch.where(mask[..., None, None], x, 1e6)
    assert net(other, s, mask=mask)[0].equal(y)


def test_checkpointing_changes_nothing_but_memory(rng):
    geo = geometry("iP")
    x, s = data(geo, rng, 2, 6)
    results = []
    for checkpoint in (False, True):
        net = net_of(geo, checkpoint=checkpoint)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):  # noqa: B023
            y, t = net(x, s)
        (y.sum() + t.sum()).backward()
        results.append((y, sum(saved), [p.grad for p in net.parameters()]))
    (y, plain, grads), (y_c, recomputed, grads_c) = results
    assert y.equal(y_c)
    assert all(a.equal(b) for a, b in zip(grads, grads_c, strict=True) if a is not None)
    assert recomputed < plain / 3


@pytest.mark.parametrize("geo", SMALL, ids=name)
@pytest.mark.parametrize(
    ("inputs", "hidden", "outputs"),
    [((1, 0), (2, 0), (1, 0)), ((0, 3), (2, 4), (0, 2)), ((1, 2), (0, 4), (0, 2)), ((2, 0), (2, 4), (1, 3))],
)
def test_zero_widths(geo, inputs, hidden, outputs, rng):
    net = GATr(geo, Width(*inputs), Width(*hidden), Width(*outputs), blocks=2, heads=2).double()
    x, s = data(geo, rng, 2, 5, width=Width(*inputs))
    y, t = net(x, s)
    assert y.shape == (2, 5, outputs[0], geo.algebra.dim)
    assert t.shape == (2, 5, outputs[1])
    (y.sum() + t.sum()).backward()
    assert not [n for n, p in net.named_parameters() if p.requires_grad and p.grad is None]


def test_missing_scalars_are_zeros(rng):
    geo = geometry("C", 2)
    net, (x, s) = net_of(geo), data(geo, rng, 2, 5)
    assert net(x)[0].equal(net(x, torch.zeros_like(s))[0])


def test_reinserted_channels_reach_queries_and_keys_but_not_values(rng):
    """With one token attention is the identity on values, so a reinserted channel must not matter; with two it must."""
    geo = geometry("E", 2)
    torch.manual_seed(0)
    layer = net_of(geo, reinsert=(0,)).blocks[0].attention
    x, s = torch.randn(4, 2, 4, dtype=torch.float64), torch.randn(2, 8, dtype=torch.float64)
    batches = [Batch(x.new_ones(1), torch.randn(4, 2, 1, dtype=torch.float64), scalars=s[:, :0]) for _ in range(2)]
    one = [layer(x[:, :1], s[:1], b._replace(inputs=b.inputs[:, :1], scalars=s[:1, :0]))[0] for b in batches]
    two = [layer(x, s, b)[0] for b in batches]
    assert one[0].equal(one[1])
    assert not torch.allclose(two[0], two[1], atol=1e-6)


def test_axial_attends_along_one_axis_at_a_time(rng):
    """One block mixes along the first axis only; a second along the other."""
    geo = geometry("C", 2)
    x, s = data(geo, rng, 3, 4)
    moved = x.clone()
    moved[0, 0] += 1
    for blocks, touched in [(1, {(i, 0) for i in range(3)}), (2, {(i, j) for i in range(3) for j in range(4)})]:
        net = AxialGATr(geo, **WIDTHS, blocks=blocks, heads=4).double()
        changed = (net(moved, s)[0] - net(x, s)[0]).abs().amax((-1, -2)) > 1e-12
        assert {tuple(index) for index in changed.nonzero().tolist()} == touched


def test_conditional_sees_the_real_condition_only(rng):
    geo = geometry("iP", 2)
    net = ConditionalGATr(geo, condition=Width(1, 2), **WIDTHS, blocks=1, heads=4).double()
    x, s = data(geo, rng, 2, 5)
    cx, cs = data(geo, rng, 2, 4, width=Width(1, 2))
    mask, real = torch.ones(2, 5, dtype=torch.bool), torch.tensor([[1, 1, 1, 0]] * 2, dtype=torch.bool)
    y, _ = net(x, s, cx, cs, mask, real)
    assert torch.allclose(y, net(x, s, cx[:, :3], cs[:, :3])[0], atol=1e-13)
    assert not torch.allclose(y, net(x, s, cx, cs)[0], atol=1e-6)


def test_dropout_drops_whole_grades():
    geo = geometry("C", 2)
    torch.manual_seed(0)
    layer, x = GradeDropout(geo, 0.5), torch.ones(geo.algebra.dim, 200, 3)
    y, s = layer(x, torch.ones(200, 4))
    for part in geo.algebra.slices:
        assert bool((y[part] == y[part][:1]).all())
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert float(y.mean()) == pytest.approx(1, abs=0.1)
    assert not y[0].equal(y[1])
    assert layer.eval()(x, s) == (x, s)


def test_copies_and_files(rng):
    geo = geometry("C", 2)
    net, (x, s) = net_of(geo), data(geo, rng, 2, 5)
    expected = net(x, s)[0]
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    fresh = GATr(geo, **WIDTHS, blocks=2, heads=4).double()
    fresh.load_state_dict(torch.load(file))
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), fresh, net.float().double()):
        assert torch.allclose(other(x, s)[0], expected, atol=1e-6)
    assert fresh(x, s)[0].equal(expected)
    assert all(name.split(".")[-1] != "combinations" for name in net.state_dict())
    swapped = torch.func.functional_call(fresh, {k: 2 * v for k, v in fresh.named_parameters()}, (x, s))[0]
    assert not torch.allclose(swapped, expected)


def test_precision_survives_conversion():
    """The tables of a network made double are the exact ones, even after a detour through float32."""
    layer = EquiLinear(geometry("P"), Width(1), Width(1)).float().double()
    assert layer.combinations.equal(layer.op.tables()["combinations"])


@pytest.mark.parametrize("geo", [geometry(n) for n in ("E", "P", "iP", "C")], ids=name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_autocast_runs_and_stays_close(geo, dtype, rng):
    net = net_of(geo).float()
    x, s = (t.float() for t in data(geo, rng, 2, 6))
    with torch.autocast("cpu", dtype):
        y, t = net(x, s)
        loss = y.float().square().mean() + t.float().square().mean()
    loss.backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in net.parameters())
    expected = net(x, s)[0]
    assert float((y - expected).detach().norm() / expected.detach().norm()) < 0.05


def _bad(geo, rng):
    x, s = data(geo, rng, 2, 5)
    packed = {"x": x[0], "s": s[0]}
    return {
        "8 blades": {"x": x[..., :-1], "s": s},
        "network has 2": {"x": x[..., :1, :], "s": s},
        "network has 3": {"x": x, "s": s[..., :1]},
        "s has shape": {"x": x, "s": s[:, :4]},
        "mask has shape": {"x": x, "s": s, "mask": torch.ones(2, 4, dtype=torch.bool)},
        "mask has dtype": {"x": x, "s": s, "mask": torch.ones(2, 5)},
        "pass one": {"x": x, "s": s, "mask": torch.ones(2, 5, dtype=torch.bool), "offsets": torch.tensor([0, 5])},
        "into one axis": {"x": x, "s": s, "offsets": torch.tensor([0, 5])},
        "run from 1 to 5": {**packed, "offsets": torch.tensor([1, 5])},
        "run from 0 to 4": {**packed, "offsets": torch.tensor([0, 4])},
        "is less than": {**packed, "offsets": torch.tensor([0, 3, 2, 5])},
        "sample 1 is empty": {**packed, "offsets": torch.tensor([0, 3, 3, 5])},
        "integers": {**packed, "offsets": torch.tensor([0.0, 5.0])},
    }


@pytest.mark.parametrize("message", _bad(geometry("P", 2), torch.Generator()))
def test_bad_input_is_explained(message, rng):
    geo = geometry("P", 2)
    with pytest.raises(ValueError, match=message):
        net_of(geo)(**_bad(geo, rng)[message])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "heads=3 must divide hidden.mv \\* 2 = 8; try heads=(2|4)"),
        ({"heads": 0}, "positive integer"),
        ({"reinsert": (2,)}, "reinsert=\\(2,\\): 2 is not an input channel; use 0 to 1"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"blocks": -1}, "blocks=-1"),
        ({"hidden": Width(0, 0)}, "no channels"),
        ({"hidden": Width(4, 0), "rope": True}, "rope=True"),
    ],
)
def test_bad_construction_is_explained(options, message):
    with pytest.raises(ValueError, match=message):
        GATr(geometry("E", 2), **{**WIDTHS, "blocks": 1, "heads": 4, **options})


@pytest.mark.parametrize("arguments", [(-1, 2), (2.5, 1), (True, 0)])
def test_width_counts_channels(arguments):
    with pytest.raises(ValueError, match="non-negative integer"):
        Width(*arguments)


def test_width_is_a_pair():
    mv, s = Width(3, 4) * 2
    assert (mv, s) == (6, 8)
    assert pickle.loads(pickle.dumps(Width(3, 4))) == Width(3, 4)
    assert repr(Width(3)) == "Width(3, 0)"


def test_sizes_of_the_published_networks():
    """Parameter counts of the original GATr: n-body 2.21 M, arteries 0.246 M, with as many weights for each layer."""
    geo = geometry("iP")
    nbody = GATr(geo, Width(1, 1), Width(16, 128), Width(1, 1), blocks=10, heads=8)
    arteries = GATr(geo, Width(3, 1), Width(8, 32), Width(1, 1), blocks=10, heads=4, reinsert=(0,))
    assert summary(nbody).parameters == sum(p.numel() for p in nbody.parameters()) == 2_209_058
    assert summary(arteries).parameters == 246_418


def test_summary_counts_what_it_says():
    geo, tokens = geometry("E", 2), 10
    net = GATr(geo, Width(1, 0), Width(4, 0), Width(1, 0), blocks=2, heads=2)
    found = summary(net, tokens)
    assert found.parameters == sum(p.numel() for p in net.parameters())
    rows = {row.name: row for row in found.rows}
    # one product of G(2, 0, 0) has 16 multiply-adds, on 8 channels of 2 blocks
    assert rows["blocks.*.mlp.bilinear.products"].flops == 2 * 16 * 8 * 2
    # 4 blades kept by their grade, 4 -> 8 + 4 + 4 channels, 2 blocks
    assert rows["blocks.*.attention.qkv"].flops == 2 * 4 * 4 * 16 * 2
    # q, k over 4 blades and values of 4 blades, 4 channels, 2 heads, 10 keys, 2 blocks
    assert rows["blocks.*.attention.attend"].flops == 2 * tokens * 2 * (16 + 16) * 2
    # queries, keys and values, 4 blades of 16 channels, are kept in float32 for attention's backward pass in 2 blocks
    assert rows["blocks.*.attention.qkv"].bytes == 4 * 16 * 4 * 2


def test_summary_counts_the_path_that_runs():
    """Fused norms, products and gates keep nothing; what is kept in all is what autograd was given to keep."""
    net = GATr(geometry("iP"), Width(2, 3), Width(8, 16), Width(1, 0), blocks=2, heads=4)
    found = summary(net, 16)
    kept, parameters = {}, {p.untyped_storage().data_ptr() for p in (*net.parameters(), *net.buffers())}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.untyped_storage().data_ptr(), t), lambda t: t):
        outputs = net(*net.example(16))
    plain = sum(t.untyped_storage().nbytes() for address, t in kept.items() if address not in parameters)
    del outputs
    assert found.bytes == pytest.approx(plain / 16, rel=0.02)
    assert not any(row.bytes for row in found.rows if row.name.endswith(("norm", "activation", "products")))
    with anygatr.backend("torch"):
        assert summary(net, 16).bytes > found.bytes


def test_summary_needs_a_network():
    found = summary(GATr(geometry("E", 2), Width(1, 0), Width(4, 0), Width(1, 0), blocks=2, heads=2))
    assert "total" in str(found)
    with pytest.raises(ValueError, match="contains none of GATr"):
        summary(torch.nn.Linear(1, 1))
