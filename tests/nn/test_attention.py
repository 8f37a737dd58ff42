"""Attention over dense, masked and packed tokens: the same numbers on every path, short and long, in every derivative."""

from itertools import pairwise

import pytest
import torch
from family import stream
from torch.autograd import gradcheck, gradgradcheck

import anygatr
from anygatr.execution import execute
from anygatr.nn import Width
from anygatr.nn.attention import Attend
from anygatr.ops.batch import Batch
from anygatr.ops.ragged import PADDING, pack, packed_attention
from anygatr.ops.rope import rotate
from anygatr.ops.sdpa import attention
from anygatr.spaces.presets import geometry

LENGTHS = [3, 17, 4, 40, 16, 1, 17]


def tensors(rng, tokens, heads=4, keys=1, f=6, w=9):
    shapes = [(*tokens, heads, f), (*tokens, keys, f), (*tokens, keys, w)]
    return [torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in shapes]


def clear(q, k, v, scale, mask=None):
    logits = scale * torch.einsum("...qhf,...nhf->...hqn", q, k.expand(*k.shape[:-2], q.shape[-2], -1))
    if mask is not None:
        logits = logits.masked_fill(~mask[..., None, None, :], -torch.inf)
    return torch.einsum("...hqn,...nhw->...qhw", logits.softmax(-1), v.expand(*v.shape[:-2], q.shape[-2], -1))


@pytest.mark.parametrize("keys", [1, 4], ids=["shared", "multi"])
@pytest.mark.parametrize("n", [5, 40], ids=["short", "long"])
@pytest.mark.parametrize("masked", [False, True], ids=["full", "masked"])
@pytest.mark.parametrize("batch", [(), (2, 3)], ids=["single", "batch"])
def test_attention_equals_its_formula(keys, n, masked, batch, rng):
    q, k, v = (t.requires_grad_() for t in tensors(rng, (*batch, n), keys=keys))
    mask = torch.rand(*batch, n, generator=rng) < 0.7 if masked else None
    if mask is not None:
        mask[..., 0] = True
    results = []
    for call in (attention, clear):
        out = call(q, k, v, 0.3, mask)
        results.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("keys", [1, 4], ids=["shared", "multi"])
def test_packed_equals_each_sample_alone(keys, rng):
    """Buckets with and without padding, explicit and flash."""
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    q, k, v = (t.requires_grad_() for t in tensors(rng, (int(offsets[-1]),), keys=keys))
    plan = pack(offsets)
    samples = [slice(a, b) for a, b in pairwise(offsets.tolist())]
    packed = packed_attention(q, k, v, plan, 0.3)
    alone = torch.cat([clear(q[s], k[s], v[s], 0.3) for s in samples])
    assert torch.allclose(packed, alone, atol=1e-13)
    weights = torch.randn(packed.shape, generator=rng, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(packed, (q, k, v), weights), torch.autograd.grad(alone, (q, k, v), weights), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-12)


def test_plan_wastes_little_and_loses_nothing():
    lengths = torch.randint(1, 500, (200,), generator=torch.Generator().manual_seed(0))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    plan = pack(offsets)
    assert torch.equal(plan.places[plan.places < offsets[-1]].sort().values, torch.arange(int(offsets[-1])))
    assert torch.equal(plan.slots[plan.places < offsets[-1]], plan.places[plan.places < offsets[-1]])
    assert len(plan.slots) <= int(offsets[-1]) / (1 - PADDING)
    assert torch.equal(plan.position, torch.cat([torch.arange(n) for n in lengths.tolist()]))
    assert torch.equal(plan.sample.bincount(), lengths)


@pytest.mark.parametrize("n", [3, 9], ids=["short", "long"])
def test_dense_attention_has_second_derivatives(n, rng):
    q, k, v = (t.requires_grad_() for t in tensors(rng, (1, n), heads=2, f=3, w=4))
    mask = torch.arange(n)[None] < n - 1
    call = lambda q, k, v: attention(q, k, v, 0.7, mask)  # noqa: E731
    assert gradcheck(call, (q, k, v), fast_mode=True)
    assert gradgradcheck(call, (q, k, v), fast_mode=True)


def test_packed_attention_has_second_derivatives(rng):
    plan = pack(torch.tensor([0, 2, 10, 17]))  # 8 and 7 share a padded bucket
    assert plan.buckets.tolist() == [[2, 8, 1], [1, 2, 0]]
    q, k, v = (t.requires_grad_() for t in tensors(rng, (17,), heads=2, f=3, w=4))
    call = lambda q, k, v: packed_attention(q, k, v, plan, 0.7)  # noqa: E731
    assert gradcheck(call, (q, k, v), fast_mode=True)
    assert gradgradcheck(call, (q, k, v), fast_mode=True)


def test_packed_operator_is_declared_correctly(rng):
    q, k, v = tensors(rng, (12,))
    plan = pack(torch.tensor([0, 5, 12]))
    torch.library.opcheck(
        torch.ops.anygatr.packed_attention.default,
        (*(t.requires_grad_() for t in (q, k, v)), plan.slots, plan.places, plan.buckets, 0.5),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_memory_is_linear_in_tokens(packed):
    """No buffer of n x n numbers: the largest allocation of forward and backward stays near the features' own size."""
    n, heads = 3000, 2
    q, k, v = (torch.randn(n, h, 16, requires_grad=True) for h in (heads, 1, 1))
    plan = pack(torch.tensor([0, n - 100, n]))
    with torch.profiler.profile(profile_memory=True) as profile:
        (packed_attention(q, k, v, plan, 0.1) if packed else attention(q, k, v, 0.1)).sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < n * n * 4 / 4
    assert largest >= 0


def test_rope_sees_differences_of_positions_only(rng):
    s = torch.randn(2, 1, 6, generator=rng, dtype=torch.float64)
    dots = []
    for a, b in [(3, 7), (103, 107), (3, 8)]:
        q, k = rotate(s, torch.tensor([a, b]))
        dots.append(float((q * k).sum()))
    assert dots[0] == pytest.approx(dots[1], abs=1e-12)
    assert abs(dots[0] - dots[2]) > 1e-3


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layout", ["dense", "masked", "packed", "cross"])
@pytest.mark.parametrize(("preset", "multi_query"), [("iP", True), ("C", True), ("iP", False)])
def test_long_samples_equal_their_rows_in_memory(preset, multi_query, layout, threads, rng):
    """More keys than a block, more queries than a chunk, and short samples beside long ones."""
    geo = geometry(preset)
    attend = Attend(geo, heads=4, key_heads=1 if multi_query else 4, head=Width(3, 5), cross=layout == "cross").double()
    for weight in attend.log_weights:
        torch.nn.init.normal_(weight, generator=rng)
    heads = attend.heads + 2 * attend.key_heads
    dense = layout in ("dense", "masked")
    tokens = (2, 600) if dense else (1, 1200)
    queries = stream(geo, rng, tokens, Width(3, 5) * (4 if layout == "cross" else heads))
    keys = stream(geo, rng, (1, 700), Width(3, 5) * (2 * attend.key_heads)) if layout == "cross" else None
    mask = torch.rand(tokens, generator=rng) > 0.3 if layout == "masked" else None
    packed = None
    if layout == "packed":
        queries = queries[0].flatten(1, 2), queries[1].flatten(0, 1)
        packed = pack(torch.tensor([0, 3, 603, 604, 1200]))
    leaves = [t.requires_grad_() for t in (*queries, *(keys or ()))]

    batch = Batch(torch.ones(1).double(), queries[0][..., :0], None if layout == "cross" else mask, packed)

    def results():
        out = execute(attend, *queries, batch, *(keys or ()))
        generator = torch.Generator().manual_seed(0)
        cotangents = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in out]
        return *out, *torch.autograd.grad(out, [*leaves, *attend.parameters()], cotangents)

    with anygatr.backend("torch"):
        expected = results()
    try:
        torch.set_num_threads(threads)
        found = results()
    finally:
        torch.set_num_threads(1)
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).abs().max()) < 1e-11 * float(b.abs().max())


@pytest.mark.parametrize(
    ("preset", "dtype", "bound"), [("iP", torch.float64, 1e-11), ("E", torch.float64, 1e-12), ("E", torch.float32, 2e-5)]
)
@pytest.mark.parametrize(("heads", "key_heads"), [(3, 1), (3, 3), (1, 1)])
def test_heads_that_do_not_divide_a_block_of_queries(heads, key_heads, preset, dtype, bound, rng):
    """Rows of one token may lie in two blocks; short samples follow each other."""
    geo = geometry(preset)
    attend = Attend(geo, heads, key_heads, head=Width(4, 19)).to(dtype)
    for weight in attend.log_weights:
        torch.nn.init.normal_(weight, mean=-3, generator=rng)  # else points near infinity drown all digits
    x, s = stream(geo, rng, (85,), Width(4, 19) * (heads + 2 * key_heads))
    packed = pack(torch.tensor([0, 30, 46, 47, 85]))
    leaves = [x.to(dtype).requires_grad_(), s.to(dtype).requires_grad_()]

    batch = Batch(torch.ones(1, dtype=dtype), x[..., :0].to(dtype), packed=packed)

    def results():
        out = execute(attend, *leaves, batch)
        given = [torch.linspace(-1, 1, t.numel(), dtype=dtype).view_as(t) for t in out]
        return *out, *torch.autograd.grad(out, [*leaves, *attend.parameters()], given)

    found = results()
    with anygatr.backend("torch"):
        expected = results()
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).detach().abs().max()) < bound * float(b.detach().abs().max())
