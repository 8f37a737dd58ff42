"""PointNet++ and GEM-CNN: their searches against brute force, their symmetries with controls, and that they learn."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from anygatr.lab.baselines import gem_cnn, pointnet2, surface_graph
from anygatr.lab.baselines.neighbours import PerMesh, farthest_points, nearest, padded, within
from anygatr.lab.data.task import Task

TASK = Task({"position": "point", "wall": "plane", "geodesic": "scalar"}, {"wss": "vector"}, 3, "token")


def tube(count: int = 160, seed: int = 0) -> dict[str, torch.Tensor]:
    """A bent tube, its nodes placed at random, with a smooth tangential field along it: one sample, float64."""
    rng = np.random.default_rng(seed)
    along, around = rng.uniform(0, 4, count), rng.uniform(0, 2 * np.pi, count)
    radius = 0.5 + 0.1 * np.sin(2 * along)
    centre = np.stack([along, 0.2 * along**2, 0 * along], 1)
    forward = np.stack([np.ones(count), 0.4 * along, np.zeros(count)], 1)
    forward /= np.linalg.norm(forward, axis=1, keepdims=True)
    side, up = np.cross(forward, [0.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])
    normal = np.cos(around)[:, None] * side + np.sin(around)[:, None] * up
    position = centre + radius[:, None] * normal
    fields = {
        "position": position,
        "wall": np.concatenate([normal, position], 1),
        "geodesic": along,
        "wss": forward * (1 + along)[:, None],
    }
    return {name: torch.from_numpy(x).unsqueeze(0) for name, x in fields.items()}


def inputs(fields: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: fields[name] for name in TASK.inputs}


def moved(fields: dict[str, torch.Tensor], matrix: np.ndarray, shift: np.ndarray) -> dict[str, torch.Tensor]:
    m, t = torch.from_numpy(matrix), torch.from_numpy(shift)
    place = fields["position"] @ m.T + t
    return fields | {"position": place, "wall": torch.cat([fields["wall"][..., :3] @ m.T, place], -1)}


def turn(seed: int = 0) -> np.ndarray:
    return Rotation.random(random_state=seed).as_matrix()


def network(samples: int = gem_cnn.SAMPLES) -> gem_cnn.GemCNN:
    torch.manual_seed(0)
    return gem_cnn.GemCNN(TASK, channels=6, blocks=1, samples=samples).double()


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(((a - b).norm() / b.norm()).detach())


def test_farthest_points_are_the_farthest():
    points = np.random.default_rng(0).normal(size=(60, 3))
    chosen = farthest_points(points, 20)
    for i in range(1, 20):
        away = np.linalg.norm(points[:, None] - points[chosen[:i]], axis=2).min(axis=1)
        assert away[chosen[i]] == away.max()
    with pytest.raises(ValueError, match="count=61"):
        farthest_points(points, 61)


def test_neighbours_are_those_of_brute_force():
    rng = np.random.default_rng(1)
    points, centres = rng.normal(size=(80, 3)), rng.normal(size=(30, 3))
    distance = np.linalg.norm(points - centres[:, None], axis=2)
    rows, columns = within(points, centres, 0.9)
    lonely = ~(distance <= 0.9).any(axis=1)
    assert lonely.any()
    wanted = (distance <= 0.9) | (lonely[:, None] & (distance == distance.min(axis=1, keepdims=True)))
    found = np.zeros_like(wanted)
    found[rows, columns] = True
    assert (found == wanted).all()
    table, real = padded(rows, columns, len(centres))
    assert [sorted(t[r].tolist()) for t, r in zip(table, real, strict=True)] == [np.flatnonzero(w).tolist() for w in wanted]
    d, index = nearest(points, centres, 3)
    assert (index == distance.argsort(axis=1)[:, :3]).all()
    assert np.allclose(d, np.sort(distance, axis=1)[:, :3])


def test_a_mesh_is_prepared_once():
    made = []
    prepare = PerMesh(lambda x, radius: made.append(radius) or len(made), size=2)
    x, y = np.zeros((3, 3)), np.ones((3, 3))
    assert prepare(x, radius=1.0) == prepare(x.copy(), radius=1.0) == 1
    assert prepare(x, radius=2.0) == 2
    assert prepare(y, radius=1.0) == 3
    assert prepare(x, radius=1.0) == 4  # forgotten, being the oldest


def test_transport_along_a_great_circle_keeps_the_angle_with_it():
    angle = np.linspace(0.1, 2.5, 9)
    normals = np.stack([np.cos(angle), np.sin(angle), np.zeros(9)], 1)
    start = surface_graph.tangent_frames(np.array([[1.0, 0.0, 0.0]]), np.zeros(1))
    gauge = np.random.default_rng(0).uniform(0, 6, 9)
    to = surface_graph.tangent_frames(normals, gauge)
    found = surface_graph.transport_angles(to, np.broadcast_to(start, to.shape))
    circle = np.stack([-np.sin(angle), np.cos(angle), np.zeros(9)], 1)  # the tangent of the circle at each node
    own = np.arctan2((circle * to[:, 1]).sum(1), (circle * to[:, 0]).sum(1))
    first = np.arctan2(start[0, 1, 1], start[0, 0, 1])  # its angle at the start, where the tangent is e2
    assert np.allclose(np.exp(1j * (own - found)), np.exp(1j * first))


@pytest.mark.parametrize(("samples", "bound"), [(21, 0.06), (161, 2e-3)])
def test_gauge_invariance(samples, bound):
    fields, net = inputs(tube()), network(samples)
    gauge = 6.3 * torch.rand(1, 160, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert difference(net(**fields, gauge=gauge)["wss"], net(**fields)["wss"]) < bound


def test_gauge_invariance_is_exact_for_turns_by_a_sample():
    fields, net = inputs(tube()), network()
    gauge = (
        2 * torch.pi / gem_cnn.SAMPLES * torch.randint(0, 7, (1, 160), generator=torch.Generator().manual_seed(1)).double()
    )
    assert difference(net(**fields, gauge=gauge)["wss"], net(**fields)["wss"]) < 1e-10


@pytest.mark.parametrize("broken", ["transport", "direction"])
def test_without_transport_or_log_map_the_gauge_shows(monkeypatch, broken):
    original = gem_cnn.Phases.__init__

    def forgetful(self, scale, dtype):
        object.__setattr__(scale, broken, torch.zeros_like(getattr(scale, broken)))
        original(self, scale, dtype)

    monkeypatch.setattr(gem_cnn.Phases, "__init__", forgetful)
    fields, net = inputs(tube()), network(161)
    gauge = 6.3 * torch.rand(1, 160, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert difference(net(**fields, gauge=gauge)["wss"], net(**fields)["wss"]) > 0.1


def test_rotation_equivariance():
    fields, net, matrix = inputs(tube()), network(161), turn()
    out = net(**fields)["wss"]
    there = net(**moved(fields, matrix, np.array([3.0, -2.0, 9.0])))["wss"]
    assert difference(there, out @ torch.from_numpy(matrix).T) < 2e-3
    assert difference(there, out) > 0.1  # the prediction did turn
    mirrored = net(**moved(fields, np.diag([1.0, 1.0, -1.0]), np.zeros(3)))["wss"]
    assert difference(mirrored, out * torch.tensor([1.0, 1.0, -1.0])) > 0.05  # no mirrors: frames have a hand


def test_pointnet_sees_translations_not_but_rotations():
    torch.manual_seed(0)
    fields, net = inputs(tube()), pointnet2.PointNet2(TASK, channels=8, levels=3).double()
    out = net(**fields)["wss"]
    assert difference(net(**moved(fields, np.eye(3), np.array([5.0, 1.0, 2.0])))["wss"], out) < 1e-10
    matrix = turn()
    assert difference(net(**moved(fields, matrix, np.zeros(3)))["wss"], out @ torch.from_numpy(matrix).T) > 0.1


def test_the_unit_of_length_changes_nothing():
    """So that GEM-CNN's runs in another unit may stand in one table; a power of two rounds nothing."""
    fields = inputs(tube())
    place, normal = 8 * fields["position"], fields["wall"][..., :3]
    larger = fields | {"position": place, "wall": torch.cat([normal, place], -1)}
    assert network()(**larger)["wss"].equal(network()(**fields)["wss"])
    found = []
    for seen in (fields, larger):  # a network for each: radii are those of the first mesh it sees
        torch.manual_seed(0)
        found.append(pointnet2.PointNet2(TASK, channels=8, levels=3).double()(**seen)["wss"])
    assert difference(*found) < 1e-10  # it has a smallest distance, for points that coincide


@pytest.mark.parametrize("make", [lambda: network(), lambda: pointnet2.PointNet2(TASK, 8, 3).double()], ids=["gem", "pn2"])
def test_packed_meshes_do_not_touch_each_other(make):
    torch.manual_seed(0)
    a, b, net = tube(100, 1), tube(140, 2), make()
    packed = {name: torch.cat([a[name][0], b[name][0]]) for name in TASK.inputs}
    both = net(**packed, offsets=torch.tensor([0, 100, 240]))["wss"]
    assert torch.allclose(both[:100], net(**inputs(a))["wss"][0])
    assert torch.allclose(both[100:], net(**inputs(b))["wss"][0])


@pytest.mark.parametrize(
    "make", [lambda: gem_cnn.GemCNN(TASK, 6, 1), lambda: pointnet2.PointNet2(TASK, 16, 3)], ids=["gem", "pn2"]
)
def test_learns_one_mesh_by_heart(make):
    torch.manual_seed(0)
    net, fields = make(), {name: x.float() for name, x in tube(80).items()}
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(100):
        loss = (net(**inputs(fields))["wss"] - fields["wss"]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.02 * float(fields["wss"].square().mean())


def test_radii_are_those_of_the_first_mesh_and_kept_with_the_weights():
    net = network()
    net(**inputs(tube(160)))
    length = float(net.spacing)
    net(**inputs(tube(400)))
    other = network()
    other.load_state_dict(net.state_dict())
    other(**inputs(tube(400)))
    assert float(net.spacing) == float(other.spacing) == length


@pytest.mark.parametrize("make", [gem_cnn.GemCNN, pointnet2.PointNet2])
def test_refuses_what_is_no_surface(make):
    with pytest.raises(ValueError, match="the task has"):
        make(Task({"mass": "scalar"}, {"final": "vector"}, 3, "token"), 8, 2)
