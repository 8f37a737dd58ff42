"""A peer's state dict read as layers of ours: its keys checked, its basis of maps changed to ours."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anygatr.nn.linear import EquiLinear
from anygatr.nn.width import Width
from anygatr.ops.linear import invariant_blades
from anygatr.spaces.geometry import Geometry

# axes: k blades, m maps, j invariant blades, g grades


@dataclass(frozen=True)
class Weights:
    """The parameters of an `EquiLinear`, free of their layer: inputs and outputs can be chosen, scaled and joined."""

    geometry: Geometry
    weight: Float[Tensor, "c_out c_in m"]
    s_to_mv: Float[Tensor, "j c_out s_in"]
    mv_to_s: Float[Tensor, "j s_out c_in"]
    s_to_s: Float[Tensor, "s_out s_in"]
    bias_mv: Float[Tensor, "j c_out"]
    bias_s: Float[Tensor, " s_out"]

    def outputs(self, mv: Int[Tensor, " c"], s: Int[Tensor, " c_s"]) -> "Weights":
        """These output channels, in this order."""
        return Weights(
            self.geometry,
            self.weight[mv],
            self.s_to_mv[:, mv],
            self.mv_to_s[:, s],
            self.s_to_s[s],
            self.bias_mv[:, mv],
            self.bias_s[s],
        )

    def inputs(self, mv: slice, s: slice) -> "Weights":
        """These input channels alone."""
        return replace(
            self,
            weight=self.weight[:, mv],
            s_to_mv=self.s_to_mv[..., s],
            mv_to_s=self.mv_to_s[..., mv],
            s_to_s=self.s_to_s[:, s],
        )

    def gained(self, mv: Float[Tensor, "c_in g"], s: Float[Tensor, " s_in"] | None = None) -> "Weights":
        """What the layer would be if each grade of each input channel, and each scalar, were first multiplied by these."""
        basis = self.geometry.linear_basis
        mv = mv.to(self.weight)
        s = mv.new_ones(self.s_to_s.shape[1]) if s is None else s.to(mv)
        read = mv[:, [source for source, _ in basis.grades]]
        invariant = mv[:, self.geometry.algebra.grades[list(invariant_blades(basis))]]
        return replace(
            self,
            weight=self.weight * read,
            s_to_mv=self.s_to_mv * s,
            mv_to_s=self.mv_to_s * invariant.T.unsqueeze(1),
            s_to_s=self.s_to_s * s,
        )

    @classmethod
    def stacked(cls, *parts: "Weights") -> "Weights":
        """The layer whose outputs are those of all parts, one after the other."""
        axis = {"weight": 0, "s_to_mv": 1, "mv_to_s": 1, "s_to_s": 0, "bias_mv": 1, "bias_s": 0}
        joined = {name: torch.cat([getattr(part, name) for part in parts], dim) for name, dim in axis.items()}
        return cls(parts[0].geometry, **joined)


@torch.no_grad()
def fill(layer: EquiLinear, weights: Weights) -> None:
    """Give a layer these parameters."""
    for field in fields(weights):
        parameter = getattr(layer, field.name)
        if isinstance(parameter, nn.Parameter):
            value = getattr(weights, field.name)
            assert parameter.shape == value.shape, (field.name, parameter.shape, value.shape)
            parameter.copy_(value)


class Source:
    """A peer's state dict. Every key asked for is remembered; `finish` lists all that was wrong in one error."""

    def __init__(self, peer: str, state: Mapping[str, Tensor], geometry: Geometry, maps: Float[Tensor, "a k k"]):
        floating = [t.dtype for t in state.values() if isinstance(t, Tensor) and t.is_floating_point()]
        self.dtype = floating[0] if floating else torch.get_default_dtype()
        self.peer, self.geometry = peer, geometry
        self.state = {key: t for key, t in state.items() if not isinstance(t, Tensor) or t.numel()}
        self.invariants = len(invariant_blades(geometry.linear_basis))
        self.change = _coefficients(maps, geometry)
        self.asked: set[str] = set()
        self.missing: list[str] = []
        self.misshaped: list[str] = []

    def take(self, key: str, *shape: int) -> Tensor:
        """The tensor of that name and shape; zeros, and a note for `finish`, where there is none."""
        nothing = torch.zeros(shape, dtype=self.dtype)
        if not nothing.numel():
            return nothing
        self.asked.add(key)
        found = self.state.get(key)
        if found is None:
            self.missing.append(f"{key} {shape}")
        elif not isinstance(found, Tensor) or found.shape != shape:
            described = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            self.misshaped.append(f"{key} {described}, expected {shape}")
        else:
            return found.detach().to("cpu", self.dtype)
        return nothing

    def linear(self, prefix: str, inputs: Width, outputs: Width, bias: bool = True) -> Weights:
        """The equivariant linear layer of that name: `weight`, `s2mvs`, `mvs2s`, `s2s`, and `bias` without scalars."""
        j = self.invariants
        weight = self.take(f"{prefix}.weight", outputs.mv, inputs.mv, len(self.change))
        s_to_mv = self.take(f"{prefix}.s2mvs.weight", outputs.mv * j, inputs.s)
        mv_to_s = self.take(f"{prefix}.mvs2s.weight", outputs.s, inputs.mv * j)
        if not bias:
            bias_mv, bias_s = weight.new_zeros(outputs.mv, j), weight.new_zeros(outputs.s)
        elif inputs.s:
            bias_mv = self.take(f"{prefix}.s2mvs.bias", outputs.mv * j).unflatten(0, (outputs.mv, j))
            bias_s = self.take(f"{prefix}.mvs2s.bias", outputs.s)
        else:
            bias_mv = nn.functional.pad(self.take(f"{prefix}.bias", outputs.mv, 1), (0, j - 1))
            bias_s = self.take(f"{prefix}.mvs2s.bias", outputs.s)
        return Weights(
            self.geometry,
            weight @ self.change.to(weight),
            s_to_mv.unflatten(0, (outputs.mv, j)).movedim(1, 0),
            mv_to_s.unflatten(1, (inputs.mv, j)).movedim(2, 0),
            self.take(f"{prefix}.s2s.weight", outputs.s, inputs.s),
            bias_mv.T,
            bias_s,
        )

    def finish(self) -> None:
        """Raise if any key was missing, misshaped or never asked for."""
        unknown = [key for key in self.state if key not in self.asked]
        problems = {"missing": self.missing, "misshaped": self.misshaped, "unknown": unknown}
        if not any(problems.values()):
            return
        lines = [f"  {label}: {key}" for label, keys in problems.items() for key in keys]
        prefix = next((key.removesuffix("linear_in.weight") for key in unknown if key.endswith("linear_in.weight")), "")
        hint = (
            f"remove the prefix {prefix!r} from every key" if prefix else "pass the config that the weights were made with"
        )
        raise ValueError(f"state_dict is not that of the {self.peer} config describes; {hint}\n" + "\n".join(lines))


def refuse_others(state: Mapping[str, Tensor], config: Mapping[str, object]) -> None:
    """Raise for what is no state dict or no config, and for the peers' other networks, known by what only they have."""
    for name, value, remedy in (
        ("state_dict", state, "net.state_dict()"),
        ("config", config, "the arguments that the peer's network was built with, as a dictionary"),
    ):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is a {type(value).__name__}; pass {remedy}")
    slim = "in_v_channels" in config or any(key.endswith(".weight_v") for key in state)
    conditional = "s_channels_cond" in config or any(".crossattention." in key for key in state)
    blocks = {key.split("blocks.")[1].split(".")[0] for key in state if "blocks." in key}
    turned = sum(key.endswith("pos_encoding.inv_freq") for key in state)
    axial = bool({"pos_encodings", "collapse_dims"} & set(config)) or 0 < turned < len(blocks)
    found = {
        "LGATrSlim": (slim and not conditional, "it has no multivectors, so no GATr has its weights"),
        "ConditionalLGATrSlim": (slim and conditional, "it has no multivectors, so no GATr has its weights"),
        "ConditionalLGATr": (conditional and not slim, "train anygatr.nn.ConditionalGATr instead"),
        "AxialGATr": (axial, "train anygatr.nn.AxialGATr instead"),
    }
    for network, (recognised, remedy) in found.items():
        if recognised:
            raise ValueError(f"state_dict and config are those of {network}, which is not converted: {remedy}")


def _coefficients(maps: Float[Tensor, "a k k"], geometry: Geometry) -> Float[Tensor, "a m"]:
    """maps_a = sum_m coefficients_am W_m, with W_m our maps of unit Frobenius norm."""
    ours = geometry.linear_basis.tensor.flatten(1)
    ours = ours / ours.norm(dim=1, keepdim=True)
    coefficients = torch.linalg.lstsq(ours.T, maps.flatten(1).T).solution.T
    defect = float((coefficients @ ours - maps.flatten(1)).abs().max())
    assert defect < 1e-12, f"the peer's maps are not equivariant under {geometry.group}: defect {defect:.1e}"
    return coefficients
