"""The simulator of many GPUs: its limits are those that can be computed by hand."""

import pytest

from anygatr.networks.network_program import network_program
from anygatr.ops.attention import Attention
from benchmarks.scale.simulate import NUMBER, Network, key_numbers, network_of, step
from benchmarks.speed.networks.contestants import CONFIGURATIONS, Configuration

SMALL = Configuration(1, 1_000_000, 1, 4, 8, 2)


def test_one_gpu_exchanges_nothing():
    found = step(CONFIGURATIONS["c"].cut(1), 1)
    assert (found.exchanging, found.sent) == (0.0, 0.0)
    assert found.computing > 0


def test_a_ring_sends_a_tensor_twice():
    link = Network(latency=0.0)
    assert link.sum(25e9, 1000) == pytest.approx(2 * 0.999)
    assert link.gather(300e9, 8) == pytest.approx(7 / 8)


def test_tokens_of_one_sample_are_divided_and_their_keys_are_sent():
    whole, half = step(SMALL, 1, sharded=True), step(SMALL, 2, sharded=True)
    assert half.computing == pytest.approx(whole.computing / 2)
    net = network_of(SMALL)
    (attend,) = [one.op for one in network_program(net).steps if isinstance(one.op, Attention)]
    weights = NUMBER * sum(p.numel() for p in net.parameters())
    assert half.sent == pytest.approx(weights + 3 / 2 * NUMBER * SMALL.tokens * key_numbers(attend))
