"""Training in float32: C-GATr, whose norm does not control its coefficients, learns without a spike."""

import statistics

import pytest
import torch

from anygatr import GATr
from anygatr.nn import Block, Width
from anygatr.spaces.presets import geometry


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_conformal_network_trains_without_a_spike():
    """2000 steps on a free flight of five bodies; the largest coefficient of the stream is logged and stays moderate."""
    torch.manual_seed(0)
    geo = geometry("C")
    net = GATr(geo, Width(2, 1), Width(4, 8), Width(1, 0), blocks=2, heads=4)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    largest: list[float] = []
    for block in net.blocks:
        assert isinstance(block, Block)
        block.register_forward_hook(lambda _, __, out: largest.append(float(out[0].detach().abs().max())))
    losses = []
    for step in range(2000):
        x, v, t = torch.randn(16, 5, 3), torch.randn(16, 5, 3), torch.rand(16, 5, 1)
        out, _ = net(torch.stack([geo.embed_point(x), geo.embed_vector(v)], -2), t)
        loss = (geo.extract_point(out.squeeze(-2)) - x - t * v).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if step % 200 == 0:
            print(f"step {step:4d}  loss {losses[-1]:.2e}  largest coefficient {max(largest[-200:]):.1f}")
    assert statistics.median(losses[-100:]) < 1e-2 * losses[0]
    # a spike: a batch a hundred times worse than the typical batch of the time
    for start in range(100, 2000, 100):
        assert max(losses[start : start + 100]) < 100 * statistics.median(losses[start - 100 : start])
    assert max(largest) < 1e3
