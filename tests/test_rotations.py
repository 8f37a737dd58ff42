"""The kind rotation6: columns of a rotation matrix, equivariant, orthonormal, and learned where a quaternion is not."""

import pytest
import torch

from anygatr import Width, geometry, model
from anygatr.spaces import kinds
from anygatr.testing import certify


@pytest.mark.parametrize("geo", [("E", True), ("iP", False), ("C", True)], ids=str)
def test_predictions_are_orthonormal_and_follow_motions(geo):
    torch.manual_seed(0)
    inputs = {"place": "point", "body": "scalar*3"}
    net = model(geometry(geo[0], mirrors=geo[1]), inputs, {"r": "rotation6"}, Width(4, 8), 2, heads=2, per="sample").double()
    assert certify(net, dtypes=[torch.float64]).ok
    a, b = net(place=torch.randn(5, 4, 3).double(), body=torch.randn(5, 4, 3).double())["r"].split(3, -1)
    columns = torch.stack([a, b], -1)
    torch.testing.assert_close(columns.mT @ columns, torch.eye(2).double().expand(5, 2, 2), rtol=0, atol=1e-12)


def test_reading_is_gram_schmidt_and_follows_mirrors():
    geo = geometry("E")
    mv = [geo.embed_vector(torch.randn(50, 3).double()) for _ in range(2)]
    found = kinds.read(geo, "rotation6", mv)
    vectors = torch.stack([geo.extract_vector(x) for x in mv], -1)
    q, r = torch.linalg.qr(vectors)
    expected = (q * torch.diagonal(r, dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT.flatten(-2)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    mirror = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    mirror = mirror * -torch.linalg.det(mirror)
    moved = [geo.embed_vector(geo.extract_vector(x) @ mirror.T) for x in mv]
    turned = kinds.move(geo, "rotation6", found, mirror, torch.zeros(3).double())
    torch.testing.assert_close(kinds.read(geo, "rotation6", moved), turned, rtol=1e-12, atol=1e-12)
    # negative control: the third column is a cross product, which a mirror turns the other way
    third, image = (torch.linalg.cross(*x.split(3, -1)) for x in (found, turned))
    torch.testing.assert_close(image, -third @ mirror.T, rtol=1e-12, atol=1e-12)


def test_no_attitudes_where_boosts_change_lengths():
    with pytest.raises(ValueError, match="cannot represent a rotation6"):
        model("L", {"p": "momentum"}, {"r": "rotation6"})


def clouds(count, rng):
    """Clouds in the coordinates of their bodies, the same turned and shifted, and the rotation matrices."""
    body = torch.randn(count, 8, 3, generator=rng)
    q, r = torch.linalg.qr(torch.randn(count, 3, 3, generator=rng))
    q = q * torch.diagonal(r, dim1=-2, dim2=-1).sign().unsqueeze(-2)
    rotation = q * torch.linalg.det(q)[:, None, None]
    return body, body @ rotation.mT + torch.randn(count, 1, 3, generator=rng), rotation


def matrix(kind, values):
    if kind == "rotation6":
        a, b = values.split(3, -1)
        return torch.stack([a, b, torch.linalg.cross(a, b)], -1)
    x, y, z, w = torch.nn.functional.normalize(values, dim=-1).unbind(-1)
    rows = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        *(2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        *(2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    ]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


@pytest.mark.slow
def test_attitudes_are_learned_where_quaternions_are_not():
    errors = {}
    for kind in ("rotation6", "rotation"):
        torch.manual_seed(0)
        rng = torch.Generator().manual_seed(1)
        net = model("E", {"place": "point", "body": "scalar*3"}, {"r": kind}, Width(8, 16), 2, heads=2, per="sample")
        optimiser = torch.optim.Adam(net.parameters(), 3e-3)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 300)
        for _ in range(300):
            body, place, rotation = clouds(64, rng)
            # the same loss for both, of matrices: a quaternion and its negative are one rotation
            loss = (matrix(kind, net(place=place, body=body)["r"]) - rotation).square().sum((-1, -2)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            decay.step()
        body, place, rotation = clouds(500, rng)
        with torch.no_grad():
            found = matrix(kind, net(place=place, body=body)["r"])
        cosine = ((found * rotation).sum((-1, -2)) - 1) / 2
        errors[kind] = float(torch.rad2deg(torch.acos(cosine.clamp(-1, 1))).mean())
    print(errors)
    assert errors["rotation6"] < 20 < 90 < errors["rotation"]
