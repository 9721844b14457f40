"""Training on graphs: neighbor sampling, partitioned features and MaxK layers.

Needs `steptime[graph]`, and torch where tensors are given back.
"""

from __future__ import annotations

import typing
from typing import Any

if typing.TYPE_CHECKING:
    from steptime.errors import DataError, MissingExtraError, RankLostError
    from steptime.graph.partitions.feature_exchange import (
        ExchangeCounts,
        PartitionedFeatures,
        most_sampled_nodes,
    )
    from steptime.graph.partitions.partition import Partition, make_partition, partition_graph
    from steptime.graph.partitions.partition_files import (
        RankData,
        load_partition,
        load_rank,
        save_partition,
    )

__all__ = [
    "DataError",
    "ExchangeCounts",
    "MissingExtraError",
    "Partition",
    "PartitionedFeatures",
    "RankData",
    "RankLostError",
    "load_partition",
    "load_rank",
    "make_partition",
    "most_sampled_nodes",
    "partition_graph",
    "save_partition",
]

# Each is imported when somebody asks for it, with the packages that it needs.
_NAMES = {
    "errors": ("DataError", "MissingExtraError", "RankLostError"),
    "graph.partitions.feature_exchange": (
        "ExchangeCounts",
        "PartitionedFeatures",
        "most_sampled_nodes",
    ),
    "graph.partitions.partition": ("Partition", "make_partition", "partition_graph"),
    "graph.partitions.partition_files": (
        "RankData",
        "load_partition",
        "load_rank",
        "save_partition",
    ),
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from steptime.errors import MissingExtraError

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"steptime.{_PLACES[name]}")
    except ImportError as error:
        raise MissingExtraError(
            f"steptime.graph.{name} needs a package that cannot be imported: {error}",
            needs="torch" if error.name == "torch" else "steptime[graph]",
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
