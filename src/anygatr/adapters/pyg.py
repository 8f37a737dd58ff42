"""Graphs of PyTorch Geometric, recognised by their attributes: `Data`, `Batch`, or a list of `Data`."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from anygatr.lab.data.files.packing import Fields, packed

LAYOUT = ("ptr", "batch", "num_nodes")
EDGES = "edge_"


def from_pyg(data: Any, rename: Mapping[str, str] | None = None, pairs: bool = False) -> dict[str, Any]:
    """The node and graph attributes of a graph as named arrays; of a batch, or of a list of graphs, with `offsets`.

    With `pairs`, `edge_index` becomes `edges`, numbered through all graphs, and other attributes of edges become `pairs`, as
    models take them; without it edges are left out with a warning. `rename` gives attributes other names: {"pos":
    "position"}. `run.predict(**from_pyg(batch))` predicts, `np.savez(path, **from_pyg(graphs))` is a file.
    """
    rename = rename or {}
    data = data if hasattr(data, "pos") or isinstance(data, Mapping | str) or not isinstance(data, Iterable) else list(data)
    graphs = data if isinstance(data, list) else [data]
    if not pairs and (left := sorted({name for graph in graphs for name in _names(graph) if name.startswith(EDGES)})):
        warnings.warn(f"{', '.join(left)} are left out; pairs=True keeps them", stacklevel=2)
    found: dict[str, Any]
    if isinstance(data, list):
        nodes = [_attributes(graph) for graph in data]
        found = packed(nodes, _counting(nodes[0])) if nodes else packed([], "pos")
    else:
        found = _attributes(data)
        if getattr(data, "ptr", None) is not None:
            found["offsets"] = _array(data.ptr)
        elif getattr(data, "batch", None) is not None:
            found["offsets"] = np.concatenate([[0], np.cumsum(np.bincount(_array(data.batch)))])
    found = {rename.get(name, name): array for name, array in found.items()}
    return found | _edges(graphs, found.get("offsets"), rename) if pairs else found


def _edges(graphs: list[Any], offsets: Any, rename: Mapping[str, str]) -> dict[str, Any]:
    """The edges of all graphs, and their attributes by name."""
    names = [name for name in _names(graphs[0]) if name.startswith(EDGES) and name != "edge_index"]
    starts = offsets[:-1] if len(graphs) > 1 else [0]  # a batch has its edges numbered already
    edges = [_array(graph["edge_index"]) + start for graph, start in zip(graphs, starts, strict=True)]
    told = {rename.get(name, name): np.concatenate([_array(graph[name]) for graph in graphs]) for name in names}
    return {"edges": np.concatenate(edges, 1).astype(np.int64), "pairs": told}


def _names(data: Any) -> list[str]:
    names = data.keys() if callable(getattr(data, "keys", None)) else getattr(data, "keys", None)
    if names is None:
        raise ValueError(f"data is a {type(data).__name__}; pass a Data or Batch of PyTorch Geometric, or a list of Data")
    return list(names)


def _attributes(data: Any) -> Fields:
    kept = [name for name in _names(data) if name not in LAYOUT and not name.startswith(EDGES)]
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
