"""One process of several that share the tokens of a sample: compares itself with a single process. Started by test_shard."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

from anygatr import Width, geometry, model

CASES = [
    {"geo": "C"},
    {"geo": "iP", "masked": True, "origin": "mass"},
    {"geo": "P", "per": "sample", "pool": "sum", "multi_query": False, "reinsert": ["position"]},
    {"geo": "E", "per": "sample", "rope": True},
]
TOKENS = 23


def built(geo: str, masked: bool = False, **options: Any) -> tuple[Any, dict[str, Tensor], Tensor | None]:
    torch.manual_seed(0)
    kinds = {"position": "point", "normal": "plane" if geo == "P" else "vector", "mass": "scalar"}
    net = model(geometry(geo), kinds, {"out": "scalar"}, Width(4, 8), blocks=2, heads=2, **options)
    fields = {field.name: field.draw(net.geo, 2, TOKENS).float() for field in net.inputs.fields}
    fields["mass"] = fields["mass"].abs() + 0.1
    place = torch.arange(TOKENS)
    mask = torch.stack([place < TOKENS - 4, place % 3 != 1]) if masked else None
    return net, fields, mask


def results(net: Any, fields: dict[str, Tensor], mask: Tensor | None, once: float, *group: Any) -> list[Tensor]:
    """Predictions, the gradient of the positions and those of the parameters."""
    place = fields["position"].clone().requires_grad_()
    out = net(*group, **fields | {"position": place}, mask=mask)["out"]
    (out.square().sum() * once).backward()
    return [out.detach(), place.grad, *(p.grad for p in net.parameters() if p.grad is not None)]


def check(case: dict[str, Any], rank: int, count: int) -> None:
    net, fields, mask = built(**case)
    net.fit_unit(**fields, mask=mask)
    expected = results(net, fields, mask, 1.0)
    edges = [0, *(TOKENS * (i + 1) // count - (i % 2 == 0 and i + 1 < count) * 3 for i in range(count))]
    mine = slice(edges[rank], edges[rank + 1])
    part = {name: x[:, mine] for name, x in fields.items()}
    whole, net = net, built(**case)[0]
    once = 1 / count if case.get("per") == "sample" else 1.0
    found = results(net, part, None if mask is None else mask[:, mine], once, dist.group.WORLD)
    assert net.units.values == whole.units.values
    for gradient in found[2:]:
        dist.all_reduce(gradient)
    if case.get("per") != "sample":
        expected[0] = expected[0][:, mine]
    expected[1] = expected[1][:, mine]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(other.abs().max())))
    alone = net(**part, mask=None if mask is None else mask[:, mine])["out"]
    assert not torch.allclose(alone, found[0], atol=1e-4), "a part by itself is as good as all"


def refused() -> None:
    net, fields, _ = built("E")
    packed = {name: x[0] for name, x in fields.items()}
    for call, message in (
        (lambda: net(dist.group.WORLD, **packed, offsets=torch.tensor([0, TOKENS])), "leave out offsets"),
        (lambda: built("E", large="anchors", unit=None)[0](dist.group.WORLD, **fields), "leave out large='anchors'"),
        (lambda: net("world", **fields), "group='world' is no process group"),
        (lambda: net(dist.group.WORLD, **{n: x[: 1 + dist.get_rank()] for n, x in fields.items()}), "same samples"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


if __name__ == "__main__":
    address, rank, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=count)
    torch.set_num_threads(1)
    for case in CASES:
        check(case, rank, count)
    refused()
    dist.destroy_process_group()
