"""The data sets that the laboratory knows. A new one is a file with its `DatasetKind` and a line here. Imports no torch."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from anygatr.lab.config.commands import DataOptions
from anygatr.lab.data.arteries.kind import Arteries
from anygatr.lab.data.files.kind import UserFiles
from anygatr.lab.data.nbody.kind import NBody
from anygatr.lab.data.peers.kind import BENCHMARKS
from anygatr.lab.data.spec import DatasetKind, DataSpec
from anygatr.lab.system.memory import limited

FILES = UserFiles()
DATASETS: tuple[DatasetKind, ...] = (
    Arteries(),
    *BENCHMARKS,
    NBody(),
    FILES,
)
"""In the order in which they are asked whether they recognise a path."""


def spec_of(options: DataOptions, normalise: bool | None = None, unit: float | None = None) -> DataSpec:
    """The data that a command line asks for."""
    from anygatr.lab.data.kinds import parse_fields  # imports torch

    if unit is not None and not 0 < unit < math.inf:
        raise ValueError(f"unit={unit} must be a positive length, in the unit of the data; leave it out to have one chosen")
    inputs, targets = parse_fields(options.inputs, "inputs"), parse_fields(options.target, "target")
    if bool(inputs) != bool(targets):
        missing = "target" if inputs else "inputs"
        raise ValueError(f"{missing} is empty; declare both, for example --inputs position:point --target energy:scalar")
    path = next((kind.home for kind in DATASETS if kind.home and kind.name == options.data), options.data)
    with limited(options.memory):
        kind = FILES if inputs else _recognised(path)
        settings = kind.settings(path, options)
    asked = kind.normalise if normalise is None else normalise
    return DataSpec(kind, path, inputs, targets, options.dim, options.per, asked, settings, unit, options.memory)


def stored_spec(record: Mapping[str, Any]) -> DataSpec:
    """The inverse of `DataSpec.to_json`."""
    known = {field.name for field in fields(DataSpec)} - {"kind", "settings", "memory"}
    settings = {name: value for name, value in record.items() if name not in known | {"kind"}}
    values = {name: value for name, value in record.items() if name in known}
    return DataSpec(kind=_stored_kind(record), settings=settings, **values)


def _recognised(path: str) -> DatasetKind:
    kind = next((kind for kind in DATASETS if kind.recognises(path)), None)
    if kind is None:
        from anygatr.lab.data.files.arrays import array_names

        held = ", ".join(sorted(array_names(path))) or "nothing"
        *others, last = [kind.name for kind in DATASETS if kind is not FILES]
        raise ValueError(
            f"data={path!r} holds {held}, which is not the layout of {', '.join(others)} and {last} data; "
            "declare its fields with --inputs and "
            f"--target: `anygatr inspect {path}` proposes them"
        )
    return kind


def _stored_kind(record: Mapping[str, Any]) -> DatasetKind:
    if "kind" not in record:
        return next(kind for kind in DATASETS if kind.is_implied_by(record))
    kinds = {kind.name: kind for kind in DATASETS}
    if record["kind"] not in kinds:
        from anygatr.lab.data.kinds import nearest  # imports torch

        raise ValueError(f"kind={record['kind']!r} is no data set of this version; {nearest(record['kind'], kinds)}")
    return kinds[record["kind"]]
