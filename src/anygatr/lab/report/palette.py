"""One name, colour, symbol and dash for each model, the same in every figure and in every report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anygatr.lab.config.model_names import base_name, overrides
from anygatr.spaces.presets import PRESETS


@dataclass(frozen=True)
class Look:
    """How a model is shown. Colours keep a contrast of 3:1 on white and on black; the symbol says it without colour."""

    label: str
    colour: str
    symbol: str
    dash: str = "solid"

    def faded(self, opacity: float) -> str:
        """The colour, transparent, for bands."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"


KNOWN = {
    "E": Look("E-GATr", "#C77700", "circle"),
    "P": Look("P-GATr", "#D4373E", "x"),
    "iP": Look("iP-GATr", "#2B7BD9", "square"),
    "C": Look("C-GATr", "#14915B", "diamond"),
    "L": Look("L-GATr", "#6B8E23", "star"),
    "transformer": Look("Transformer", "#9A5BD0", "triangle-up", "dot"),
    "se3_transformer": Look("SE(3)-Transformer", "#0E8FA3", "triangle-down", "dot"),
    "segnn": Look("SEGNN", "#8A7A00", "pentagon", "dot"),
    "pointnet2": Look("PointNet++", "#D4508F", "cross", "dot"),
    "gem_cnn": Look("GEM-CNN", "#8A7264", "hexagon", "dot"),
}
SPARE = (
    ("#5B7A99", "hourglass"),
    ("#A8653A", "bowtie"),
    ("#B04FB8", "star-diamond"),
    ("#4F8F8F", "diamond-tall"),
    ("#97793C", "diamond-wide"),
)


def looks(models: Sequence[str]) -> dict[str, Look]:
    """The look of each model; models we do not know take the spare colours in order."""
    known = {model: KNOWN[model] for model in models if model in KNOWN}
    known |= {model: _without_mirrors(KNOWN[base_name(model)]) for model in models if _is_chiral(model)}
    strangers = [model for model in models if model not in known]
    spare = {model: Look(model, *SPARE[i % len(SPARE)], dash="dash") for i, model in enumerate(strangers)}
    return {model: known.get(model) or spare[model] for model in models}


def is_algebra(model: str) -> bool:
    """Whether a model is a GATr, named after its preset, with mirrors or without."""
    return model in PRESETS or _is_chiral(model)


def _is_chiral(model: str) -> bool:
    """Whether a name is that of a preset with mirrors=false and nothing else changed."""
    if base_name(model) not in PRESETS or "=" not in model:
        return False
    changed = overrides(model)
    return set(changed) == {"mirrors"} and changed["mirrors"].lower() == "false" and base_name(model) in KNOWN


def _without_mirrors(look: Look) -> Look:
    """The colour of the preset, told apart by an open symbol and a dash."""
    return replace(look, label=f"{look.label} without mirrors", symbol=f"{look.symbol}-open", dash="dashdot")
