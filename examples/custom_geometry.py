"""A geometry of one's own: the Poincare group of spacetime. Declared in ten lines, then a network, certified.

Events are the points of a projective algebra whose four axes carry the metric of spacetime, so that its "translations and
rotations" are the shifts, rotations and boosts of special relativity. Nothing else has to be written: the equivariant
maps are solved for, points, momenta and motions embed by the same formulas as in Euclidean space.
"""

import torch

from anygatr.algebra import Algebra
from anygatr.equivariance.symmetry import euclidean
from anygatr.interface.model import model
from anygatr.spaces.geometry import Geometry
from anygatr.testing import certify

torch.manual_seed(0)

algebra = Algebra(1, 3, 1, names=("e4", "e0", "e1", "e2", "e3"))
poincare = Geometry(
    algebra,
    symmetry=euclidean(algebra, infinity="e4", mirrors=False),
    axes=("e0", "e1", "e2", "e3"),
    infinity=algebra["e4"],
    point="meet",
    time="e0",
    products=("geometric", "join"),
    norm="grade_abs",
    name="Poincare",
)
print(poincare)

net = model(
    poincare,
    inputs={"event": "point", "momentum": "momentum", "charge": "scalar"},
    targets={"next": "point"},
    hidden=(8, 16),
    blocks=2,
    heads=2,
)

# particles that drift along their momentum: next = event + momentum
event, momentum, charge = torch.randn(64, 6, 4), torch.randn(64, 6, 4), torch.randn(64, 6)
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(61):
    error = (net(event=event, momentum=momentum, charge=charge)["next"] - event - momentum).square().mean()
    optimiser.zero_grad()
    error.backward()
    optimiser.step()
    if step % 20 == 0:
        print(f"step {step:2d}  mean squared error {error.item():.4f}   (standing still: {momentum.square().mean():.4f})")

# a boost along x and a shift of spacetime: the prediction follows
rapidity = torch.tensor(1.0, dtype=torch.float64)
boost = torch.eye(4, dtype=torch.float64)
boost[:2, :2] = torch.stack(
    [torch.stack([rapidity.cosh(), rapidity.sinh()]), torch.stack([rapidity.sinh(), rapidity.cosh()])]
)
shift = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
net, event, momentum, charge = net.double(), event.double(), momentum.double(), charge.double()
before = net(event=event, momentum=momentum, charge=charge)["next"]
after = net(event=event @ boost.T + shift, momentum=momentum @ boost.T, charge=charge)["next"]
print(f"boosted and shifted: largest deviation {(after - before @ boost.T - shift).abs().max():.1e}")

certificate = certify(net.net)  # each of the ten generators, layer by layer
print(certificate)
assert certificate.ok
