"""The speed benchmark: the reference is the same network, ratios need repetitions, verdicts follow from rows."""

import json
from dataclasses import asdict
from mmap import mmap

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from anygatr import GATr, Width, geometry
from anygatr.execution.c import build, tensors
from anygatr.networks.network_program import network_program
from benchmarks.harness.files import RESULTS, ROOT, SNIPPETS, put_json
from benchmarks.harness.peak_memory import MIB, growth
from benchmarks.harness.peak_rate import peak_rate
from benchmarks.harness.timing import interleaved, ratio, spread
from benchmarks.speed import old_and_new, roofline, step_profile
from benchmarks.speed.networks.arithmetic import forward_flops, multiply_adds, step_flops
from benchmarks.speed.networks.contestants import CONFIGURATIONS, Configuration, contestant
from benchmarks.speed.networks.dense_reference import DenseGATr
from benchmarks.speed.run import EAGER, merged, rows_of
from benchmarks.speed.tables.networks import compilation, memory, overview, snippets, targets, times
from benchmarks.speed.tables.networks import table as markdown
from benchmarks.speed.tables.targets import verdicts

needs_compiler = pytest.mark.skipif(not build.available(), reason="there is no C compiler")
SMALL = Configuration(batch=2, tokens=5, blocks=2, mv=4, s=8, heads=2)


def network(name: str, **options: object) -> GATr:
    torch.manual_seed(0)
    net = GATr(geometry(name), Width(2, 3), Width(4, 8), Width(2, 3), blocks=2, heads=2, **options)
    for block in net.blocks:  # starts small, so that a wrong attention would hardly show
        torch.nn.init.normal_(block.attention.out.weight)
    return net


@pytest.mark.parametrize("multi_query", [True, False], ids=["shared", "multi"])
@pytest.mark.parametrize("name", ["E", "P", "iP", "C"])
def test_dense_reference_is_the_same_network(name, multi_query, rng):
    net = network(name, multi_query=multi_query).double()
    x = torch.randn(2, 5, 2, net.geometry.algebra.dim, generator=rng, dtype=torch.float64)
    s = torch.randn(2, 5, 3, generator=rng, dtype=torch.float64)
    results = []
    for call in (net, DenseGATr(net)):
        outputs = call(x, s)
        loss = sum(y.square().mean() for y in outputs)
        weights = [p for p in net.parameters() if p.requires_grad]
        results.append([*outputs, *torch.autograd.grad(loss, weights, allow_unused=True)])
    for ours, dense in zip(*results, strict=True):
        assert (ours is None) == (dense is None)
        if ours is not None:
            torch.testing.assert_close(ours, dense, rtol=1e-9, atol=1e-11 * float(dense.detach().abs().max()))


def test_dense_reference_sees_a_changed_weight(rng):
    net = network("iP")
    dense = DenseGATr(network("iP"))
    with torch.no_grad():
        dense.net.blocks[1].mlp.bilinear.factors.weight[0, 0, 0] += 0.1
    x, s = torch.randn(5, 2, 16, generator=rng), torch.randn(5, 3, generator=rng)
    with torch.no_grad():
        assert float((net(x, s)[0] - dense(x, s)[0]).abs().max()) > 1e-4


def test_dense_reference_refuses_what_it_does_not_do():
    with pytest.raises(ValueError, match="rope=True"):
        DenseGATr(network("E", rope=True))


def test_a_ratio_from_one_repetition_is_refused():
    with pytest.raises(ValueError, match="1 repetition has no spread"):
        ratio([1.0], [2.0])
    with pytest.raises(ValueError, match="do not pair"):
        ratio([1.0, 1.0], [2.0])


def test_a_ratio_is_taken_round_by_round():
    found = ratio([1.0, 10.0, 2.0], [2.0, 20.0, 5.0])  # the machine was busy in the second round
    assert found == (0.5, 0.4, 0.5)


def test_rounds_are_interleaved():
    order: list[str] = []
    samples = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 3
    assert {name: (len(s.cpu), len(s.wall)) for name, s in samples.items()} == {"a": (3, 3), "b": (3, 3)}


def test_spread_is_relative_to_the_median():
    assert spread([1.0, 2.0, 3.0]) == (2.0, 0.25)


@pytest.mark.parametrize("name", EAGER)
def test_contestants_train_and_infer(name):
    made = contestant(name, SMALL)
    made.warm()
    made.train()
    made.infer()
    assert made.net.training


def test_an_unknown_contestant_is_named():
    with pytest.raises(ValueError, match="model='Q'"):
        contestant("Q", SMALL)


def row(model: str, seconds: list[float], **about: object) -> dict[str, object]:
    base = {"kind": "time", "configuration": "a", "blocks": CONFIGURATIONS["a"].blocks, "threads": 1, "what": "train"}
    return {**base, "model": model, "cpu": seconds, "wall": [2 * t for t in seconds], "load": 0.5, **about}


def test_verdicts_follow_from_rows():
    rows = [
        row("transformer", [1.0, 1.0]),
        row("lgatr", [4.0, 4.0]),
        row("lgatr compiled", [2.0, 2.0]),
        row("iP", [0.4, 0.4]),
        row("iP compiled", [0.3, 0.3]),
        row("P", [0.4, 0.4]),
        row("C", [1.1, 1.1]),
    ]
    found = {(v.ours, v.theirs): v for v in verdicts(rows)}
    assert found["iP", "transformer"].met
    assert found["iP", "transformer"].chosen == "iP compiled"
    assert not found["iP", "lgatr"].met  # 0.15 of its better form
    assert not found["C", "P"].met
    assert ("E", "P") not in found
    slow = [*rows[:3], row("iP", [0.5, 0.5]), rows[4]]
    assert not next(v for v in verdicts(slow) if v.theirs == "transformer").met  # eager is too far behind


def test_a_target_that_no_kernel_can_reach_is_told_apart():
    rows = [row("transformer", [1.0, 1.0]), row("iP", [0.4, 0.4])]
    needed = step_flops("iP", CONFIGURATIONS["a"], "train") / 0.31
    for share, expected in ((0.9, "beyond the machine"), (1.1, "missed")):
        peak = {"kind": "peak", "model": "machine", "threads": 1, "flops": share * needed}
        assert [str(v) for v in verdicts([*rows, peak])] == [expected]
        other = peak | {"threads": 2}
        assert [str(v) for v in verdicts([*rows, other])] == ["missed"]
    assert [str(v) for v in verdicts([rows[0], row("iP", [0.3, 0.3]), peak | {"flops": 1.0}])] == ["met"]


@needs_compiler
def test_cores_compute_something():
    assert 1e8 < peak_rate(1, repetitions=1) < 1e13


def test_repetitions_are_added_or_replaced():
    old, new = [row("iP", [1.0, 2.0])], [row("iP", [3.0])]
    assert merged(old, new, add=True)[0]["cpu"] == [1.0, 2.0, 3.0]
    assert merged(old, new, add=False)[0]["cpu"] == [3.0]
    assert len(merged(old, [row("iP", [3.0], threads=2)], add=True)) == 2
    with pytest.raises(ValueError, match="--add needs the networks"):
        merged(old, [row("P", [3.0])], add=True)


def test_rows_timed_together_are_replaced_together():
    together = [row("iP", [1.0, 2.0]), row("P", [1.0, 2.0])]
    assert merged(together, [row("iP", [3.0, 3.0])], add=False) == [row("iP", [3.0, 3.0])]


def test_rows_of_another_processor_are_left_behind(tmp_path):
    path, rows = tmp_path / "speed.json", [row("iP", [1.0, 2.0])]
    assert rows_of(path, {"cpu": "one"}) == []
    path.write_text(json.dumps({"machine": {"cpu": "one"}, "rows": rows}))
    assert rows_of(path, {"cpu": "one"}) == rows
    assert rows_of(path, {"cpu": "another"}) == []


def test_pages_say_what_was_met(tmp_path):
    rows = [
        row("transformer", [1.0, 1.0]),
        row("iP", [0.4, 0.4]),
        {"kind": "memory", "configuration": "a", "model": "iP", "option": "", "growth": 301 * MIB},
        {"kind": "compile", "configuration": "a", "model": "C", "option": "", "seconds": 100.0, "warm_seconds": 9.0}
        | {"graphs_later": 0, "seconds_later": 2.0},
    ]
    pages = [page(rows) for page in (targets, memory, compilation)]
    assert [cells[header.index("met")] for header, table in pages for cells in table] == ["missed", "missed", "met"]
    assert len(times(rows)[1]) == 2
    snippets({"rows": rows, "machine": {"cpu": "a processor", "cores": 2, "torch": "2"}}, tmp_path)
    assert "missed" in (tmp_path / "speed-targets.md").read_text()


def test_growth_sees_what_a_call_touches():
    base = growth(lambda: None)  # an earlier peak of this process, where it cannot be forgotten
    # memory of its own: what the heap has free is resident already
    found = growth(lambda: torch.frombuffer(mmap(-1, base + 64 * MIB), dtype=torch.uint8).fill_(1)) - base
    assert 60 * MIB < found < 80 * MIB


def test_multiply_adds_of_the_transformer_are_those_that_torch_counts():
    size = Configuration(batch=2, tokens=6, blocks=1, mv=2, s=8, heads=2)
    network = contestant("transformer", size)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as mode:
        network.net.train()(*network.inputs)
    assert mode.get_total_flops() == 2 * multiply_adds("transformer", size) * size.batch * size.tokens


def test_multiply_adds_grow_with_blades_and_are_unknown_for_other_peoples_networks():
    size = Configuration(batch=2, tokens=6, blocks=1, mv=8, s=0, heads=2)
    counts = [multiply_adds(name, size) for name in ("E", "P", "C")]
    assert counts == sorted(counts)
    assert multiply_adds("lgatr", size) is None


def test_a_step_computes_three_times_an_inference_and_logits_once_more():
    size = Configuration(batch=2, tokens=6, blocks=3, mv=8, s=4, heads=2)
    once, step = (step_flops("iP", size, what) for what in ("infer", "train"))
    assert once == 2 * multiply_adds("iP", size) * 2 * 6 * 3
    net = GATr(geometry("iP"), Width(1, 1), Width(8, 4), Width(1, 1), blocks=3, heads=2)
    attention = 2 * 6 * forward_flops(network_program(net), 6)[1]
    assert step == 3 * once + attention / 2


@pytest.mark.parametrize(
    ("name", "configuration", "flops"),
    [
        ("E", "a", (436_224, 32_768)),
        ("P", "a", (563_200, 40_960)),
        ("iP", "a", (559_648, 45_056)),
        ("C", "a", (972_800, 81_920)),
        ("iP", "b", (1_197_120, 73_728)),
        ("iP", "c", (81_168, 8_064_000)),
    ],
)
def test_multiply_adds_of_a_block_stay_what_they_were(name, configuration, flops):
    """As counted layer by layer, before programs were counted; targets and tables are made from them."""
    assert multiply_adds(name, CONFIGURATIONS[configuration]) == sum(flops) // 2
    size = CONFIGURATIONS[configuration]
    tokens = size.blocks * size.batch * size.tokens
    assert step_flops(name, size, "train") == tokens * (3 * flops[0] + 3.5 * flops[1])


@needs_compiler
def test_a_profile_accounts_for_the_whole_step(monkeypatch):
    """Kernels and what is outside them, each with its arithmetic; kernels run as before once it is made."""
    monkeypatch.setitem(CONFIGURATIONS, "a", Configuration(2, 4, 1, 8, 16, 2))
    call = tensors.call
    rows = step_profile.profile("a", 2)
    assert tensors.call is call
    parts = rows[1:]
    assert [row["part"] for row in parts] == list(step_profile.PARTS)
    assert all(row["seconds"] > 0 for row in parts)
    net = contestant("iP", CONFIGURATIONS["a"]).net
    once = sum(forward_flops(network_program(net), 4))
    forwards = {row["part"]: row["flops"] for row in parts}
    assert forwards["linear"] + forwards["attend"] == 2 * 4 * once
    assert forwards["linear_backward"] == 2 * forwards["linear"]
    page = step_profile.page({"rows": rows, "machine": {"cpu": "a processor", "cores": 2, "torch": "2"}})
    whole = next(line for line in page.splitlines() if "**step**" in line)
    assert f"| {1e3 * sum(row['seconds'] for row in parts):.0f} | 100 % |" in whole


@needs_compiler
@pytest.mark.parametrize("name", ["E", "iP"])
def test_operations_of_the_roofline_are_one_kernel_each(name, monkeypatch):
    called, call = [], tensors.call

    def noted(function, *arguments):
        called.append(function.__name__)
        call(function, *arguments)

    monkeypatch.setattr(tensors, "call", noted)
    for label, operation in roofline.operations(geometry(name), SMALL).items():
        operation.step()
        forward = "attention" if label == "attention" else "pipeline"
        assert called == [forward, "attention_backward" if label == "attention" else "linear_backward"]
        called.clear()


def test_a_checkout_is_as_fast_as_itself():
    """Both compute the same network, and all calls of all rounds are there."""
    job = {"geometry": "E", "size": asdict(SMALL), "threads": 1, "backend": "torch"}
    rows = list(old_and_new.compare(ROOT, ROOT, job, 2))
    assert [row["what"] for row in rows] == ["train", "infer"]
    for row in rows:
        assert all(len(row[side][clock]) == 2 for side in ("old", "new") for clock in ("cpu", "wall"))
        assert row["loss_difference"] < old_and_new.SAME
        assert row["what"] in old_and_new.line({**row, **job, "configuration": "a"})


def test_a_checkout_without_the_library_is_refused(tmp_path):
    job = {"geometry": "E", "size": asdict(SMALL), "threads": 1, "backend": None}
    with pytest.raises(ValueError, match="has no src/anygatr"):
        list(old_and_new.compare(tmp_path, ROOT, job, 2))


def test_checkouts_take_turns():
    order = [name for number in range(4) for name in old_and_new.turns(number)]
    assert order == ["old", "new", "new", "old"] * 2
    assert old_and_new.Quartiles.of([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) == (1.5, 2.0, 2.5)


@pytest.mark.parametrize("table", [overview, times, memory, compilation], ids=lambda table: table.__name__)
def test_tables_are_what_the_stored_rows_say(table):
    """The pages show the rows that are committed: after measuring, `python -m benchmarks.speed.run --report`."""
    header, cells = table(json.loads((RESULTS / "speed.json").read_text())["rows"])
    snippet = {"compilation": "speed-compile"}.get(table.__name__, f"speed-{table.__name__}")
    assert (SNIPPETS / f"{snippet}.md").read_text().startswith(markdown(header, cells))


def test_the_overview_shows_the_faster_form():
    rows = [
        row("iP", [0.3, 0.3]),
        row("iP compiled", [0.4, 0.4]),
        row("lgatr", [2.0, 2.0]),
        row("lgatr compiled", [1.0, 1.0]),
    ]
    _, cells = overview([*rows, row("iP", [0.2, 0.2], threads=2), row("iP", [9.0, 9.0], blocks=1)])
    assert cells[0][:3] == ("iP-GATr", "300 / 400", "– / –")  # wall-clock time of two threads
    assert cells[1][:2] == ("lgatr 2.0.0", "1,000* / –")


def test_stored_rows_have_a_line_each(tmp_path):
    stored = {"machine": {"cpu": "one"}, "rows": [row("iP", [1.0]), row("P", [2.0])]}
    put_json(tmp_path / "speed.json", stored)
    assert json.loads((tmp_path / "speed.json").read_text()) == stored
    assert len((tmp_path / "speed.json").read_text().splitlines()) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["speed.json"]
