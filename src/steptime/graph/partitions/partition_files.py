"""Partitions and their features on disk: plain arrays that are mapped, and one line of sizes.

A folder holds `partition.json`, `owner.npy`, and for each rank `features-<rank>.npy` and
`labels-<rank>.npy`, row i of which is the i-th of the rank's nodes in ascending order. A rank on
another machine needs the first two and its own. Nothing is pickled, and all is checked on load.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steptime.core.store import read_document, write_text
from steptime.errors import DataError
from steptime.graph.partitions.partition import Partition, sum_of_bytes

Array = np.ndarray[Any, Any]

SCHEMA = 1
_DESCRIPTION = "partition.json"
_COLUMNS = ("features", "labels")
_ROWS_AT_ONCE = 1 << 16
"""Copied or summed at a time, so that a column larger than memory passes through."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankData:
    """What one rank owns, mapped from its files.

    Attributes:
        rank: whose it is.
        nodes: (num_own,) its nodes, ascending.
        features: (num_own, width) their features.
        labels: (num_own, …) their labels; None where none were saved.
    """

    rank: int
    nodes: Array
    features: Array
    labels: Array | None


def save_partition(
    folder: str | os.PathLike[str],
    partition: Partition,
    *,
    features: Array | None = None,
    labels: Array | None = None,
) -> None:
    """Write a partition, and the columns that are given, split by owner; both may be mapped files.

    The description is written last: a folder without it was not finished, and does not load.

    Raises:
        ValueError: a column does not have a row for each node.
        DataError: the folder cannot be written.
    """
    place = Path(folder)
    given = {"features": features, "labels": labels}
    columns = {name: column for name, column in given.items() if column is not None}
    for name, column in columns.items():
        if len(column) != partition.num_nodes:
            raise ValueError(
                f"`{name}` must have a row for each of {partition.num_nodes:,} nodes, "
                f"got {len(column):,}"
            )
        if column.dtype.hasobject:
            raise ValueError(f"`{name}` holds Python objects; it must hold numbers")
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / _DESCRIPTION).unlink(missing_ok=True)
        np.save(place / "owner.npy", partition.owner)
        sums = {"owner.npy": sum_of_bytes(partition.owner)}
        for name, column in columns.items():
            for rank in range(partition.num_parts):
                file = _file_of(name, rank)
                sums[file] = _write_rows(place / file, column, partition.nodes_of(rank))
        write_text(place / _DESCRIPTION, json.dumps(_describe(partition, columns, sums)) + "\n")
    except OSError as error:
        raise DataError(
            f"the partition cannot be written to {place}: {error.strerror or error}",
            hint="name a folder with room, on a disk that can be written",
        ) from error


def load_partition(folder: str | os.PathLike[str]) -> Partition:
    """Return a saved partition; its owners are mapped, read once and compared with their sum.

    Raises:
        DataError: it is missing, unfinished, damaged or of another schema.
    """
    described = _read_description(Path(folder))
    owner = _map(Path(folder), "owner.npy", described)
    if sum_of_bytes(owner) != described["sums"].get("owner.npy"):
        raise _damaged(Path(folder) / "owner.npy", "its bytes are not those that were written")
    sizes = np.bincount(owner, minlength=described["num_parts"])
    if sizes.tolist() != described["sizes"]:
        raise _damaged(Path(folder) / "owner.npy", "its owners are not those of the description")
    return Partition(
        owner=owner,
        num_parts=described["num_parts"],
        method=described["method"],
        edge_cut=described["edge_cut"],
        num_edges=described["num_edges"],
    )


def load_rank(
    folder: str | os.PathLike[str], partition: Partition, rank: int, *, checks_bytes: bool = False
) -> RankData:
    """Return what a rank owns, memory-mapped: the disk is read when rows are.

    Args:
        folder: where `save_partition` wrote.
        partition: from `load_partition`.
        rank: whose rows.
        checks_bytes: read all of it once, and compare it with the sums that were written. Without
            it names, types and sizes are checked.

    Raises:
        ValueError: there is no such rank.
        DataError: a file is missing, damaged, or not of this partition.
    """
    if not 0 <= rank < partition.num_parts:
        raise ValueError(f"`rank` must lie between 0 and {partition.num_parts - 1}, got {rank}")
    place = Path(folder)
    described = _read_description(place)
    nodes = partition.nodes_of(rank)
    found: dict[str, Array] = {}
    for name in (name for name in _COLUMNS if name in described["columns"]):
        file = _file_of(name, rank)
        column = _map(place, file, described)
        if len(column) != len(nodes):
            raise _damaged(place / file, f"{len(column):,} rows, and its rank owns {len(nodes):,}")
        if checks_bytes and _sum_of(column) != described["sums"].get(file):
            raise _damaged(place / file, "its bytes are not those that were written")
        found[name] = column
    if "features" not in found:
        raise DataError(
            f"{place} holds a partition without features",
            hint="write it with save_partition(folder, partition, features=...)",
        )
    return RankData(rank=rank, nodes=nodes, features=found["features"], labels=found.get("labels"))


def _describe(
    partition: Partition, columns: dict[str, Array], sums: dict[str, int]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "graph_partition",
        "num_nodes": partition.num_nodes,
        "num_edges": partition.num_edges,
        "num_parts": partition.num_parts,
        "method": partition.method,
        "edge_cut": partition.edge_cut,
        "sizes": partition.sizes.tolist(),
        "columns": {
            name: {"dtype": column.dtype.str, "shape": list(column.shape[1:])}
            for name, column in columns.items()
        },
        "sums": sums,
    }


_TYPES = {"num_nodes": int, "num_edges": int, "num_parts": int, "method": str, "edge_cut": int,
          "sizes": list, "columns": dict, "sums": dict}  # fmt: skip


def _read_description(place: Path) -> dict[str, Any]:
    described = dict(read_document(place / _DESCRIPTION))
    if described.get("kind") != "graph_partition" or any(
        not isinstance(described.get(name), kind) for name, kind in _TYPES.items()
    ):
        raise DataError(
            f"{place / _DESCRIPTION} is missing, unfinished, damaged or of another schema",
            hint="write the partition again with save_partition",
        )
    return described


def _map(place: Path, file: str, described: dict[str, Any]) -> Array:
    """Map a file read-only; its type and the shape of its rows are those of the description."""
    try:
        array: Array = np.load(place / file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(
            f"{place / file} is missing", hint="copy it, or write the partition again"
        ) from error
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(place / file, str(error)) from error
    name = file.partition("-")[0].removesuffix(".npy")
    if name == "owner":
        if array.shape != (described["num_nodes"],) or array.dtype.kind != "u":
            raise _damaged(
                place / file, f"{array.dtype} of {array.shape}, not a rank for each node"
            )
        if len(array) and array.max() >= described["num_parts"]:
            raise _damaged(place / file, f"rank {array.max()} of {described['num_parts']}")
        return array
    wanted = described["columns"][name]
    if array.dtype.str != wanted["dtype"] or list(array.shape[1:]) != wanted["shape"]:
        raise _damaged(
            place / file,
            f"rows of {array.dtype.str} {list(array.shape[1:])}, "
            f"and the description says {wanted['dtype']} {wanted['shape']}",
        )
    return array


def _write_rows(path: Path, column: Array, nodes: Array) -> int:
    """Write the rows of some nodes; return the sum of their bytes."""
    shape = (len(nodes), *column.shape[1:])
    if not len(nodes) or not np.prod(shape):
        np.save(path, np.empty(shape, dtype=column.dtype))
        return 0
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=column.dtype, shape=shape)
    total = 0
    for begin in range(0, len(nodes), _ROWS_AT_ONCE):
        rows = np.ascontiguousarray(column[nodes[begin : begin + _ROWS_AT_ONCE]])
        mapped[begin : begin + len(rows)] = rows
        total = sum_of_bytes(rows, total)
    mapped.flush()
    return total


def _sum_of(column: Array) -> int:
    total = 0
    for begin in range(0, len(column), _ROWS_AT_ONCE):
        total = sum_of_bytes(column[begin : begin + _ROWS_AT_ONCE], total)
    return total


def _file_of(name: str, rank: int) -> str:
    return f"{name}-{rank}.npy"


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"{path} is damaged or not of this partition: {what}",
        hint="write the partition again with save_partition",
    )
