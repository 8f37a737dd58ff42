"""Checkpoints: one safetensors file with weights, configuration and geometry. Written whole or not at all, never pickled."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import nn

from anygatr.files.limits import ITEMS, Allowance, check_plain
from anygatr.files.reading import shortened
from anygatr.files.whole import replacing
from anygatr.interface.model import Model
from anygatr.networks.axial import AxialGATr
from anygatr.networks.conditional import ConditionalGATr
from anygatr.networks.gatr import MOST, GATr
from anygatr.networks.pooled import PooledGATr
from anygatr.spaces.declaration import describe, fingerprint, restore
from anygatr.spaces.geometry import Geometry

FORMAT = 1
KEY = "anygatr"  # of the description in the file's metadata
KINDS = GATr, ConditionalGATr, AxialGATr, PooledGATr, Model
NETWORKS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in KINDS}
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
MAX_OBJECTS = 4096  # in the declaration of a model's fields
MAX_DESCRIPTION = 2**20  # characters; a network of 4096 fields has a fifth of it
MAX_PROBLEMS = 20  # of a file's tensors, named in one message
OVERHEAD = 4, 2**20  # numbers made while a network is built: twice those of its weights, and its tables


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a `GATr`, `ConditionalGATr`, `AxialGATr`, `PooledGATr` or `model(...)` to one safetensors file.

    Whoever reads `path` meanwhile finds the old file or the new one, never a part.
    """
    description = json.dumps(describe_model(model))
    tensors = {name: tensor.detach().contiguous() for name, tensor in _plain(model).state_dict().items()}
    with replacing(path) as temporary:
        temporary.write_bytes(serialised(tensors, metadata={"format": "pt", KEY: description}))


def load(path: str | os.PathLike[str], geometry: Geometry | None = None) -> nn.Module:
    """The model saved at `path`, on the CPU, in its dtype and in evaluation mode.

    `geometry` is needed for models whose geometry is not a preset; it must be the one they were saved with. A file that is
    truncated, foreign, of a newer format or at odds with itself raises a ValueError before its weights are read.
    """
    return load_as(None, path, geometry)


def load_as(kind: type[nn.Module] | None, path: str | os.PathLike[str], geometry: Geometry | None = None) -> nn.Module:
    """The model saved at `path` as an instance of `kind`, a subclass of what was saved; None for just that."""
    with _readable(path) as file:
        described = _description(file.metadata())
        saved = NETWORKS[described["network"]]
        if kind is not None and not issubclass(kind, saved):
            raise ValueError(f"it holds a {saved.__name__}, not a {kind.__name__}")
        geo = _geometry(described["geometry"], geometry)
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  not a dictionary
        shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        model = _built(kind or saved, geo, described["config"], shapes)
        _check_tensors(model, shapes, {name: part.get_dtype() for name, part in slices.items()})
        for name, module in model.named_modules():
            own = [f"{name}.{key}".lstrip(".") for key, _ in module.named_parameters(recurse=False)]
            if own:
                module.to(DTYPES[slices[own[0]].get_dtype()])
        model.load_state_dict({name: file.get_tensor(name) for name in slices})
    return model.eval()


def describe_model(model: nn.Module) -> dict[str, Any]:
    """What `save` writes beside the weights: format, kind of network, its arguments and its geometry."""
    model = _plain(model)
    network = next((name for name, kind in NETWORKS.items() if isinstance(model, kind)), None)
    if network is None:
        raise ValueError(f"model is a {type(model).__name__}; save takes {', '.join(NETWORKS)} or a subclass")
    return {"version": FORMAT, "network": network, "config": model.config, "geometry": describe(geometry_of(model))}


def geometry_of(model: nn.Module) -> Geometry:
    """The geometry a network or model lives in."""
    geo: Any = model.geo if isinstance(model, Model) else model.geometry
    return geo


def _plain(model: nn.Module) -> nn.Module:
    return getattr(model, "_orig_mod", model)  # what torch.compile wrapped


def _description(metadata: dict[str, str] | None) -> dict[str, Any]:
    """The description in a file's metadata, its outermost structure checked."""
    if not metadata or KEY not in metadata:
        raise ValueError(
            "it is a safetensors file, but not one of ours: its metadata does not describe a network. For weights of "
            "GATr and L-GATr see anygatr.convert; for a state dict, build the network and call load_state_dict"
        )
    if len(metadata[KEY]) > MAX_DESCRIPTION:
        raise ValueError(f"its description has {len(metadata[KEY]):,} characters; files may have up to {MAX_DESCRIPTION:,}")
    try:
        described = json.loads(metadata[KEY])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its description is not JSON: {error}") from error
    if not isinstance(described, dict) or type(described.get("version")) is not int or described["version"] < 1:
        raise ValueError("its description has no format version")
    if described["version"] > FORMAT:
        raise ValueError(f"it has format {described['version']}, newer than {FORMAT}; upgrade anygatr to read it")
    if not isinstance(described.get("network"), str) or described["network"] not in NETWORKS:
        raise ValueError(f"network={described.get('network')!r} is not one of {', '.join(NETWORKS)}")
    for key in ("config", "geometry"):
        if not isinstance(described.get(key), dict):
            raise ValueError(f"{key}={described.get(key)!r} must be a dictionary")
    return described


def _geometry(description: dict[str, Any], given: Geometry | None) -> Geometry:
    check_plain("geometry", description, ITEMS)
    geo = restore(description) if given is None else given
    if fingerprint(geo) == description.get("fingerprint"):
        return geo
    if given is None:
        raise ValueError(
            f"the geometry {geo.name!r} it was saved with is not the one of this version; weights would mean something else"
        )
    raise ValueError(
        f"geometry={given!r} is not the {description.get('name')!r} it was saved with: the algebra, the group, the "
        "products, the features or the norm differ"
    )


def _built(kind: type[nn.Module], geo: Geometry, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> nn.Module:
    """The network of a configuration, if it fits the tensors of its file: they are counted before anything is allocated."""
    numbers = sum(map(prod, shapes.values()))
    try:
        counts = {
            name: config[name] for name in ("anchors", "neighbours", "pooled") if name in config
        }  # of tokens, not of weights
        check_plain("config", counts, MOST)
        check_plain("config", {name: value for name, value in config.items() if name not in counts}, max(numbers, ITEMS))
        _check_fields(config)
        if config.get("blocks", 0) > len(shapes):
            raise ValueError(f"blocks={config['blocks']} needs at least as many tensors, but the file has {len(shapes)}")
        with Allowance(OVERHEAD[0] * numbers + OVERHEAD[1]):
            return kind(geo, **config)
    except Exception as error:  # a made-up configuration can fail anywhere in the constructors
        raise ValueError(f"its configuration does not build a {kind.__name__}: {error}") from error


def _check_fields(config: dict[str, Any]) -> None:
    """Refuse fields of more objects than a file may declare, before each of them gets a channel."""
    sides = [config[side] for side in ("inputs", "targets", "pairs") if isinstance(config.get(side), dict)]
    texts = [str(text) for side in sides for text in side.values()]
    objects = sum(int(text.partition("*")[2] or 1) for text in texts)
    if objects > MAX_OBJECTS:
        raise ValueError(f"inputs, targets and pairs have {objects} objects; files may declare up to {MAX_OBJECTS}")


def _check_tensors(model: nn.Module, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, str]) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    problems = [f"missing: {name} {shape}" for name, shape in expected.items() if name not in shapes]
    problems += [f"unknown: {name} {shape}" for name, shape in shapes.items() if name not in expected]
    problems += [
        f"misshaped: {name} {shapes[name]}, expected {shape}"
        for name, shape in expected.items()
        if shapes.get(name, shape) != shape
    ]
    problems += [f"not a floating point type: {name} {dtype}" for name, dtype in dtypes.items() if dtype not in DTYPES]
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS:,} more"] if len(problems) > MAX_PROBLEMS else []
        listed = "\n  ".join(shortened(problem, 200) for problem in problems[:MAX_PROBLEMS] + more)
        raise ValueError(f"its tensors are not those of the network it describes\n  {listed}")


@contextmanager
def _readable(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The open file; what is wrong with it becomes a ValueError that names it."""
    if Path(path).is_dir():
        raise ValueError(f"{os.fspath(path)} is a directory; pass the file in it, such as model.safetensors")
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{os.fspath(path)} is not a whole safetensors file ({error}): truncated, or of another kind; pickles "
            "are never opened. Write it with anygatr.checkpoint.save"
        ) from error
    except OSError:
        raise
    except Exception as error:  # a made-up description can fail anywhere in geometries and constructors
        raise ValueError(f"{os.fspath(path)} cannot be loaded: {shortened(error)}") from error
