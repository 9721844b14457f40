"""What a rank of a partitioned training holds, from sizes alone, before anything is loaded.

In: the sizes of a graph and of its features. Out: bytes by part, and a refusal where the topology,
which every rank must reach whole, is larger than the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import psutil

from steptime.core.devices.control_groups import read_memory_room
from steptime.core.units import format_bytes
from steptime.errors import CapacityError

_SMALL_IDS = 1 << 31
"""Below it an id needs 4 bytes (signed, as torch and PyG have them), else 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSizes:
    """How large a graph is.

    Attributes:
        num_nodes, num_edges: of the stored graph, each direction counted that is stored.
        row_bytes: the features of one node [B]: width times bytes of an entry.
        label_bytes: the label of one node [B].
        id_bytes: of a neighbor's id; None takes 4 where the ids fit, else 8.
    """

    num_nodes: int
    num_edges: int
    row_bytes: int
    label_bytes: int = 8
    id_bytes: int | None = None

    @property
    def topology_bytes(self) -> int:
        """The graph in compressed sparse columns [B]: `indices`, and `indptr` of 4 or 8 bytes."""
        pointer = 4 if self.num_edges < _SMALL_IDS else 8
        return self.num_edges * self.bytes_of_id + (self.num_nodes + 1) * pointer

    @property
    def bytes_of_id(self) -> int:
        """Bytes of one id."""
        return self.id_bytes or (4 if self.num_nodes < _SMALL_IDS else 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What one rank holds, by part [B]; a field is a part.

    Attributes:
        topology_bytes: the whole graph, on every rank.
        features_bytes: the rows of the nodes that the rank owns, the largest part.
        labels_bytes: their labels.
        places_bytes: where each node's row lies: an id for each node of the graph.
        cache_bytes: rows of other ranks that are kept.
        sampler_bytes: maps of the sampler, one id a node for each batch that is sampled at once.
        exchange_bytes: ids and rows on their way for one batch, those asked for and those given.
    """

    topology_bytes: int
    features_bytes: int
    labels_bytes: int
    places_bytes: int
    cache_bytes: int
    sampler_bytes: int
    exchange_bytes: int

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        return sum(getattr(self, field.name) for field in fields(self))


def plan_memory(
    sizes: GraphSizes,
    num_ranks: int,
    *,
    cached_nodes: int = 0,
    batches_at_once: int = 1,
    remote_rows: int = 0,
    imbalance: float = 1.0,
) -> MemoryPlan:
    """Return what one rank holds.

    Args:
        sizes: of the graph.
        num_ranks: among which features and labels are divided.
        cached_nodes: rows of other ranks that each rank keeps.
        batches_at_once: how many batches a rank samples at the same time.
        remote_rows: rows that a batch asks of other ranks; it gives as many in the mean.
        imbalance: the largest part over the mean part.

    Raises:
        ValueError: a number is below what makes sense.
    """
    if num_ranks < 1 or imbalance < 1 or min(cached_nodes, batches_at_once, remote_rows) < 0:
        raise ValueError(
            "`num_ranks >= 1`, `imbalance >= 1` and no negative number must hold, got "
            f"{num_ranks=}, {imbalance=}, {cached_nodes=}, {batches_at_once=}, {remote_rows=}"
        )
    own = min(sizes.num_nodes, round(-(-sizes.num_nodes // num_ranks) * imbalance))
    ids = sizes.bytes_of_id
    return MemoryPlan(
        topology_bytes=sizes.topology_bytes,
        features_bytes=own * sizes.row_bytes,
        labels_bytes=own * sizes.label_bytes,
        places_bytes=sizes.num_nodes * ids,
        cache_bytes=cached_nodes * sizes.row_bytes,
        sampler_bytes=batches_at_once * sizes.num_nodes * ids,
        exchange_bytes=2 * remote_rows * (sizes.row_bytes + ids),
    )


def available_bytes() -> int:
    """What this process may take without swapping [B]: the machine's, or its group's if less."""
    room = read_memory_room()
    free = int(psutil.virtual_memory().available)
    return free if room is None else min(free, room)


def check_fits(
    sizes: GraphSizes, plan: MemoryPlan, *, limit_bytes: int, is_mapped: bool = False
) -> None:
    """Refuse a plan that does not fit, before anything of it is loaded.

    Args:
        sizes: of the graph.
        plan: what one rank would hold.
        limit_bytes: what the rank may hold; `available_bytes()` for this process.
        is_mapped: topology and own features are memory-mapped files, which the page cache holds as
            far as there is room, once for all ranks of a machine; they do not count then.

    Raises:
        CapacityError: the topology alone does not fit, or all of the plan; the message has sizes.
    """
    mapped = plan.topology_bytes + plan.features_bytes if is_mapped else 0
    if plan.topology_bytes > limit_bytes and not is_mapped:
        raise CapacityError(
            f"the topology does not fit: {sizes.num_nodes:,} nodes and {sizes.num_edges:,} edges "
            f"take {format_bytes(plan.topology_bytes)}, and a rank may hold "
            f"{format_bytes(limit_bytes)}. Every rank holds all of the topology, so more ranks do "
            "not help",
            hint="memory-map it (np.load(..., mmap_mode='r'), shared by the ranks of a machine), "
            "take ids of 32 bits, or divide the topology too, with a library that does",
        )
    needed = plan.total_bytes - mapped
    if needed > limit_bytes:
        parts = ", ".join(
            f"{field.name.removesuffix('_bytes')} {format_bytes(getattr(plan, field.name))}"
            for field in fields(plan)
        )
        raise CapacityError(
            f"a rank would hold {format_bytes(needed)} and may hold {format_bytes(limit_bytes)} "
            f"({parts}{'; topology and features are mapped' if is_mapped else ''})",
            hint="features shrink with more ranks, the cache with fewer `cached_nodes`",
        )
