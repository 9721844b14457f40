"""A graph in compressed sparse columns: for each node, the edges that come into it.

In: arrays, tensors on the CPU, or a folder of files that are mapped into memory. Out: a `Csc`,
checked once, from which `sample.py` picks neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steptime.errors import GraphError

Array = Any
"""An array of numpy; the docstrings say of what."""

PARTS = ("indptr", "indices", "edge_ids", "weights", "times")
"""The arrays of a graph, and the names of their files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Csc:
    """Edges sorted by their target; `indptr[v]` to `indptr[v + 1]` are those into node v.

    Attributes:
        indptr: (num_targets + 1,) int32 or int64, from 0 up to the number of edges.
        indices: (num_edges,) int32 or int64, the source of each edge.
        num_sources: how many nodes the sources are numbered by; without it, the targets' number.
        edge_ids: (num_edges,) the number each edge had before the sorting; None if its place is it.
        weights: (num_edges,) chances of being picked, at least 0; None makes them equal.
        times: (num_edges,) when each edge came to be, rising in each column; None if never asked.
        is_trusted: skips the pass through all edges that checks them, as for a mapped file that
            was checked when it was written.

    Raises:
        GraphError: an array is not what it must be; the message names it.
    """

    indptr: Array
    indices: Array
    num_sources: int = -1
    edge_ids: Array | None = None
    weights: Array | None = None
    times: Array | None = None
    is_trusted: bool = False

    def __post_init__(self) -> None:
        for name in PARTS:
            object.__setattr__(self, name, as_array(getattr(self, name), name))
        if self.num_sources < 0:
            object.__setattr__(self, "num_sources", self.num_targets)
        check_ids(self.indptr, "indptr")
        check_ids(self.indices, "indices")
        if self.indptr.size < 2 or self.num_sources < 1 or not self.indices.size:
            raise GraphError(
                f"The graph is empty: it has {max(self.indptr.size - 1, 0)} nodes and "
                f"{self.indices.size} edges; sampling needs at least one of each."
            )
        for name in PARTS[2:]:
            part = getattr(self, name)
            if part is not None and part.shape != self.indices.shape:
                raise GraphError(
                    f"`{name}` has shape {part.shape}, and there are {self.indices.size} edges: "
                    "give one value for each edge."
                )
        if self.indptr[0] != 0 or self.indptr[-1] != self.indices.size:
            raise GraphError(
                f"`indptr` must go from 0 to the {self.indices.size} edges, and goes from "
                f"{self.indptr[0]} to {self.indptr[-1]}."
            )
        if not self.is_trusted:
            check_edges(self)

    @property
    def num_targets(self) -> int:
        """Nodes that have a column."""
        return int(self.indptr.size - 1)

    @property
    def num_edges(self) -> int:
        """Edges of the graph."""
        return int(self.indices.size)

    @property
    def num_bytes(self) -> int:
        """What its arrays take [B], mapped or not."""
        return sum(part.nbytes for name in PARTS if (part := getattr(self, name)) is not None)

    def save(self, folder: str | Path) -> None:
        """Write each array as a file of numpy, for `open_csc`; the folder is made."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in PARTS:
            if (part := getattr(self, name)) is not None:
                np.save(place / f"{name}.npy", part)
        np.save(place / "num_sources.npy", np.int64(self.num_sources))


def open_csc(folder: str | Path) -> Csc:
    """Return a graph that `Csc.save` wrote, mapped: only the pages that are read take memory.

    Raises:
        GraphError: the folder has no graph, or a damaged one.
    """
    place = Path(folder)
    try:
        parts = {
            name: np.load(place / f"{name}.npy", mmap_mode="r")
            for name in PARTS
            if name in PARTS[:2] or (place / f"{name}.npy").exists()
        }
        num_sources = int(np.load(place / "num_sources.npy"))
    except (OSError, ValueError) as error:
        raise GraphError(
            f"{place} cannot be opened as a graph: {error}. Write one there with `Csc.save`."
        ) from error
    return Csc(**parts, num_sources=num_sources, is_trusted=True)


def csc_of_edges(
    sources: Any,
    targets: Any,
    *,
    num_nodes: int | tuple[int, int],
    weights: Any = None,
    times: Any = None,
    node_times: Any = None,
) -> Csc:
    """Return the graph of a list of edges, sorted by target, then by time if there is one.

    Args:
        sources: (num_edges,) node that each edge comes from.
        targets: (num_edges,) node that it goes to.
        num_nodes: of the graph, or of the sources and of the targets.
        weights: (num_edges,) chances of being picked.
        times: (num_edges,) time of each edge.
        node_times: (num_sources,) time of each source, in place of `times`.

    Raises:
        GraphError: an id is out of range, or an array is not what it must be.
    """
    from steptime.graph.sampling_kernels import by_target

    num_sources, num_targets = (num_nodes, num_nodes) if isinstance(num_nodes, int) else num_nodes
    start, end = as_array(sources, "sources"), as_array(targets, "targets")
    weigh, when = as_array(weights, "weights"), as_array(times, "times")
    check_ids(start, "sources")
    check_ids(end, "targets")
    check_range(start, num_sources, "sources")
    check_range(end, num_targets, "targets")
    if start.shape != end.shape:
        raise GraphError(f"There are {start.size} sources and {end.size} targets: give as many.")
    if node_times is not None:
        when = as_array(node_times, "node_times")[start]
    if when is None:
        indptr, order = np.zeros(num_targets + 1, np.int64), np.empty(start.size, np.int64)
        by_target(end, indptr, order)
    else:
        order = np.lexsort((when, end))
        indptr = np.zeros(num_targets + 1, np.int64)
        np.cumsum(np.bincount(end, minlength=num_targets), out=indptr[1:])
    small = max(num_sources, num_targets) < 2**31
    return Csc(
        indptr=indptr,
        indices=start[order].astype(np.int32 if small else np.int64, copy=False),
        num_sources=num_sources,
        edge_ids=order.astype(np.int32) if start.size < 2**31 else order,
        weights=None if weigh is None else weigh[order],
        times=None if when is None else when[order],
    )


def as_array(values: Any, name: str) -> Any:
    """Return values as an array, sharing memory where it can; a tensor must lie on the CPU.

    Floats of 16 bits become 32-bit ones, which compiled loops know; gradients are left behind.

    Raises:
        GraphError: it lies on another device.
    """
    device = getattr(values, "device", None)
    if getattr(device, "type", device or "cpu") != "cpu":
        raise GraphError(
            f"`{name}` lies on {device}, and neighbors are sampled on the CPU: pass `.cpu()` of it."
        )
    if hasattr(values, "detach"):
        values = values.detach()
        values = values.float() if values.is_floating_point() and values.itemsize < 4 else values
    if values is None:
        return None
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def check_ids(ids: Array, name: str) -> None:
    """Raise if an array cannot number nodes or edges."""
    if ids.ndim != 1 or ids.dtype not in (np.int32, np.int64):
        raise GraphError(
            f"`{name}` is of {ids.ndim} dimensions and type {ids.dtype}; it must be one row of "
            "int32 or int64."
        )


def check_range(ids: Array, num: int, name: str) -> None:
    """Raise if an id is below 0, or as large as there are nodes."""
    if ids.size and (ids.min() < 0 or ids.max() >= num):
        raise GraphError(
            f"`{name}` has ids from {ids.min()} to {ids.max()}, and must lie in 0 to {num - 1}, "
            f"as there are {num} nodes."
        )


def check_edges(graph: Csc) -> None:
    """Raise if the columns overlap, or an edge's source, weight or time cannot be."""
    if (graph.indptr[1:] < graph.indptr[:-1]).any():
        place = int((graph.indptr[1:] < graph.indptr[:-1]).argmax())
        raise GraphError(
            f"`indptr` falls from {graph.indptr[place]} to {graph.indptr[place + 1]} behind node "
            f"{place}; it must never fall."
        )
    check_range(graph.indices, graph.num_sources, "indices")
    if graph.weights is not None and not (graph.weights >= 0).all():
        place = int((~(graph.weights >= 0)).argmax())
        raise GraphError(
            f"`weights` has {graph.weights[place]} at edge {place}; each weight must be a number "
            "from 0 on, and never NaN."
        )
    if graph.weights is not None and not np.isfinite(graph.weights).all():
        raise GraphError("`weights` has an infinite value; each must be finite.")
    if graph.times is not None:
        falls = graph.times[1:] < graph.times[:-1]
        begins = graph.indptr[1:-1]
        falls[begins[(begins > 0) & (begins < graph.num_edges)] - 1] = False
        if falls.any():
            raise GraphError(
                f"`times` falls behind edge {int(falls.argmax())} inside a column; sort each "
                "column by time, or make the graph by `csc_of_edges`."
            )
