"""Graphs of PyTorch Geometric, recognised by their attributes: `Data`, `Batch`, or a list of `Data`."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from anygatr.lab.data.files.packing import Fields, packed

LAYOUT = ("ptr", "batch", "num_nodes")
EDGES = "edge_"


def from_pyg(data: Any, rename: Mapping[str, str] | None = None) -> Fields:
    """The node and graph attributes of a graph as named arrays; of a batch, or of a list of graphs, with `offsets`.

    Edges are left out with a warning: networks here attend from every node to every other. `rename` gives attributes other
    names: {"pos": "position"}. `run.predict(**from_pyg(batch))` predicts, `np.savez(path, **from_pyg(graphs))` is a file.
    """
    rename = rename or {}
    if isinstance(data, Iterable) and not hasattr(data, "pos") and not isinstance(data, Mapping | str):
        graphs = [_attributes(graph) for graph in data]
        found = packed(graphs, _counting(graphs[0])) if graphs else packed([], "pos")
    else:
        found = _attributes(data)
        if getattr(data, "ptr", None) is not None:
            found["offsets"] = _array(data.ptr)
        elif getattr(data, "batch", None) is not None:
            found["offsets"] = np.concatenate([[0], np.cumsum(np.bincount(_array(data.batch)))])
    return {rename.get(name, name): array for name, array in found.items()}


def _attributes(data: Any) -> Fields:
    names = data.keys() if callable(getattr(data, "keys", None)) else getattr(data, "keys", None)
    if names is None:
        raise ValueError(f"data is a {type(data).__name__}; pass a Data or Batch of PyTorch Geometric, or a list of Data")
    kept = [name for name in names if name not in LAYOUT and not name.startswith(EDGES)]
    if left := [name for name in names if name.startswith(EDGES)]:
        warnings.warn(f"{', '.join(sorted(left))} are left out: networks here know no edges", stacklevel=3)
    found = {name: _array(data[name]) for name in kept}
    return {name: array for name, array in found.items() if array is not None}


def _array(x: Any) -> Any:
    """Numbers of a tensor or array as numpy; None for what is neither."""
    if hasattr(x, "detach"):
        return x.detach().cpu().numpy()
    return x if isinstance(x, np.ndarray) else np.asarray(x) if isinstance(x, int | float | bool) else None


def _counting(graph: Mapping[str, Any]) -> str:
    """The attribute that counts nodes: the positions, or else the features."""
    name = next((name for name in ("pos", "x", "z") if name in graph), None)
    if name is None:
        raise ValueError(f"a graph has {', '.join(graph) or 'no attributes'}; pos, x or z has to tell how many nodes it has")
    return name
