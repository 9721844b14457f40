"""Features of nodes that other ranks own, fetched for a batch in two rounds: ids, then rows.

In: a partition, the rows of this rank's own nodes, and for each batch the ids that its sampler
found. Out: their rows, in the order of the ids, from this rank's own, from a static cache, or from
their owners by one all-to-all of ids and one of rows. What was moved is counted. That somebody has
gone is `rank_watch`'s to find out; nobody waits for longer than the limit.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.graph.partitions.partition import Partition, sum_of_bytes
from steptime.graph.partitions.partition_kernels import copy_rows, in_words
from steptime.graph.partitions.rank_watch import RankWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

Array = np.ndarray[Any, Any]

_FIRST_CAPACITY = 256
"""Ids a pair of ranks may send in one block before the first batch has shown how many there are."""
_GROWTH = 1.25
"""Room over the largest block so far, so that the next batch's ids need no third round; it costs
at most a quarter of the ids' bytes, which are a hundredth of the rows'."""
_HEADER = 3  # how many ids, the sender's largest number of ids, whether it has finished
_FILLED_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeCounts:
    """What was moved, in this rank's view.

    Attributes:
        batches: calls of `fetch`.
        answered: exchanges in which the rank only answered others, in `finish`.
        rounds: all-to-all calls, two for a batch; a third where ids exceeded their block.
        id_bytes, row_bytes: sent to other ranks [B], ids with headers and what fills the blocks.
        own_rows, cached_rows, remote_rows: where the rows of the batches came from.
    """

    batches: int = 0
    answered: int = 0
    rounds: int = 0
    id_bytes: int = 0
    row_bytes: int = 0
    own_rows: int = 0
    cached_rows: int = 0
    remote_rows: int = 0

    @property
    def cache_hit_fraction(self) -> float | None:
        """Cached rows over all rows of other ranks; None where no such row was wanted."""
        foreign = self.cached_rows + self.remote_rows
        return self.cached_rows / foreign if foreign else None

    @property
    def remote_fraction(self) -> float | None:
        """Rows that were fetched over all rows; None before the first."""
        rows = self.own_rows + self.cached_rows + self.remote_rows
        return self.remote_rows / rows if rows else None


def most_sampled_nodes(indices: Array, partition: Partition, rank: int, num_nodes: int) -> Array:
    """Return the nodes of other ranks that are neighbors most often, at most `num_nodes` of them.

    A sampler reaches a node by its edges, so a static cache of these saves the most for its size
    where degrees differ much.

    Args:
        indices: (num_edges,) the neighbors of the graph in compressed sparse columns.
        partition: of the graph.
        rank: whose cache it is to be; its own nodes are left out.
        num_nodes: the size of the cache.
    """
    degrees = np.bincount(indices, minlength=partition.num_nodes)
    degrees[partition.owner == rank] = 0
    num_kept = min(max(num_nodes, 0), int(np.count_nonzero(degrees)))
    if num_kept == 0:
        return np.empty(0, dtype=np.int64)
    return np.sort(np.argpartition(degrees, -num_kept)[-num_kept:])


class PartitionedFeatures:
    """The features of all nodes, of which each rank holds those that it owns.

    Every rank of the group makes one at the same time, and calls `fetch` once a batch; one that has
    no more batches calls `finish`, in which it answers the others until all have finished. It uses
    a group of its own (gloo: rows lie in the host's memory), so collectives of the training do not
    meet its own. It is for one thread at a time.

    Args:
        partition: who owns which node; the same on each rank.
        features: (num_own, …) rows of the rank's own nodes in ascending order, a tensor on the CPU
            or an array, which may be memory-mapped.
        labels: (num_own, …) their labels, for `labels_of`.
        cached_nodes: nodes of other ranks whose rows are fetched now and kept, for instance
            `most_sampled_nodes(...)`.
        group: whose ranks take part; None takes all. Not needed for one part.
        timeout_s: how long an exchange may take [s].

    Raises:
        ValueError: shapes do not go together, or ranks were given different partitions.
        RankLostError: a rank has gone, or did not come within the limit.
    """

    def __init__(
        self,
        partition: Partition,
        features: Any,
        *,
        labels: Any = None,
        cached_nodes: Array | None = None,
        group: Any = None,
        timeout_s: float = 300.0,
    ) -> None:
        self._watch = RankWatch(group, num_ranks=partition.num_parts, timeout_s=timeout_s)
        self.partition = partition
        self.rank = self._watch.rank
        self._rows, self._type, self._shape = _as_bytes(features)
        self._labels = None if labels is None else _tensor_of(labels)
        self._lock = threading.Lock()
        self._capacity = _FIRST_CAPACITY
        self._counts = ExchangeCounts()
        own = partition.nodes_of(self.rank)
        self._check_own(len(own))
        self._watch.agree({"num_nodes": partition.num_nodes, "num_parts": partition.num_parts,
                           "owners": sum_of_bytes(partition.owner),
                           "row": (str(self._type), self._shape)})  # fmt: skip
        self._places = _places(partition, own, self.rank)
        self._id_type = self._places.dtype
        self._cache = np.empty((0, self._rows.shape[1]), dtype=np.uint8)
        if cached_nodes is not None or partition.num_parts > 1:
            self._fill_cache(np.empty(0, np.int64) if cached_nodes is None else cached_nodes)
        self.setup_counts = self._counts
        self._counts = ExchangeCounts()

    @property
    def counts(self) -> ExchangeCounts:
        """What was moved since it was made; filling the cache is `setup_counts`."""
        return self._counts

    @property
    def num_cached(self) -> int:
        """How many rows of other ranks are kept."""
        return len(self._cache)

    def fetch(self, ids: Any) -> torch.Tensor:
        """Return the rows of some nodes, (num_ids, …), in their order.

        Every rank of the group takes part, with `fetch` or `finish`.

        Args:
            ids: (num_ids,) nodes, integers; each once, as samplers give them (a node that stands
                twice is fetched twice).

        Raises:
            ValueError: an id is no node.
            RuntimeError: another thread is in a call already.
            RankLostError: a rank has gone, or did not come within the limit.
        """
        nodes = _array_of(ids)
        if nodes.ndim != 1 or nodes.dtype.kind not in "iu":
            raise ValueError(
                f"ids must be integers in one dimension, got {nodes.dtype}, {nodes.shape}"
            )
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= self.partition.num_nodes):
            raise ValueError(
                f"ids must lie between 0 and {self.partition.num_nodes - 1}, "
                f"got {nodes.min()} to {nodes.max()}"
            )
        with self._alone():
            self._count(batches=1)
            return self._gather(nodes)

    def finish(self) -> None:
        """Answer the others until every rank has finished its epoch."""
        with self._alone():
            self._answer_until_all_finished()

    def labels_of(self, ids: Any) -> torch.Tensor:
        """Return the labels of nodes that this rank owns, (num_ids, …): no message is sent.

        Raises:
            ValueError: there are no labels, or a node is another rank's.
        """
        import torch

        if self._labels is None:
            raise ValueError("there are no labels: give them as `labels=`")
        nodes = _array_of(ids)
        foreign = nodes[self.partition.owner[nodes] != self.rank]
        if len(foreign):
            raise ValueError(
                f"labels lie with their owners, and node {foreign[0]} belongs to rank "
                f"{self.partition.owner[foreign[0]]}; take seeds from "
                f"partition.nodes_of({self.rank})"
            )
        return self._labels[torch.from_numpy(self._places[nodes].astype(np.int64))]

    def close(self) -> None:
        """Let go of the group that was made for the exchange."""
        self._watch.close()

    # -- one exchange

    def _gather(self, nodes: Array) -> torch.Tensor:
        import torch

        places = self._places[nodes]
        out = torch.empty((len(nodes), self._rows.shape[1]), dtype=torch.uint8)
        rows = out.numpy()
        num_own = len(self._rows)
        is_own = (places >= 0) & (places < num_own)
        _copy(self._rows, places[is_own], rows, np.flatnonzero(is_own))
        at = np.flatnonzero(places >= num_own)
        num_cached = len(at)
        _copy(self._cache, places[at] - num_own, rows, at)
        at = np.flatnonzero(places < 0)
        num_remote = len(at)
        num_own_rows = len(nodes) - num_cached - num_remote
        self._count(own_rows=num_own_rows, cached_rows=num_cached, remote_rows=num_remote)
        if self.partition.num_parts > 1:
            owners = self.partition.owner[nodes[at]]
            order = at[np.argsort(owners, kind="stable")]
            wanted = -places[order] - 1  # row numbers at their owners
            counts = np.bincount(owners, minlength=self.partition.num_parts)
            found, _ = self._exchange(wanted, counts)
            _copy(found, np.arange(len(order)), rows, order)
        return out.view(self._type).reshape(len(nodes), *self._shape)

    def _exchange(
        self, wanted: Array, counts: Array, *, has_finished: bool = False
    ) -> tuple[Array, bool]:
        """Return the wanted rows, those of rank 0 first, and whether all ranks have finished.

        Args:
            wanted: (sum of counts,) row numbers, those of rank 0 first.
            counts: (num_ranks,) how many of them are whose.
            has_finished: this rank only answers.
        """
        num_ranks, width = self.partition.num_parts, self._rows.shape[1]
        room = self._capacity
        blocks = np.zeros((num_ranks, _HEADER + room), dtype=self._id_type)
        blocks[:, 0], blocks[:, 1], blocks[:, 2] = counts, counts.max(), has_finished
        parts = np.split(wanted, np.cumsum(counts)[:-1])
        for block, part in zip(blocks, parts, strict=True):
            block[_HEADER : _HEADER + min(room, len(part))] = part[:room]
        even = np.full(num_ranks, _HEADER + room)
        got = self._round("ids", blocks.ravel(), even, even).reshape(num_ranks, -1)
        asked, largest = got[:, 0].astype(np.int64), int(got[:, 1].max())
        if got[:, 2].all():
            return np.empty((0, width), dtype=np.uint8), True
        asked_rows = [
            block[_HEADER : _HEADER + min(room, n)] for block, n in zip(got, asked, strict=True)
        ]
        if largest > room:  # every rank has seen every rank's largest: all go this way, or none
            rest = np.concatenate([part[room:] for part in parts])
            out, back = np.maximum(counts - room, 0), np.maximum(asked - room, 0)
            late = np.split(self._round("more ids", rest, out, back), np.cumsum(back)[:-1])
            asked_rows = [np.concatenate(pair) for pair in zip(asked_rows, late, strict=True)]
        self._capacity = max(room, int(largest * _GROWTH))
        picks = np.concatenate(asked_rows)
        given = np.empty((len(picks), width), dtype=np.uint8)
        _copy(self._rows, picks, given, np.arange(len(picks)))
        back = self._round("rows", given.ravel(), asked * width, counts * width)
        return back.reshape(-1, width), False

    def _round(self, what: str, sent: Array, out: Array, back: Array) -> Array:
        """One all-to-all: `out` and `back` say how many entries go to, and come from, each rank."""
        received = self._watch.all_to_all(what, sent, out, back)
        moved = int(out.sum() - out[self.rank]) * sent.itemsize
        kind = "row_bytes" if what == "rows" else "id_bytes"
        self._count(rounds=1, **{kind: moved})
        return received

    def _answer_until_all_finished(self) -> None:
        nothing = np.zeros(self.partition.num_parts, dtype=np.int64)
        all_finished = self.partition.num_parts == 1
        while not all_finished:
            _, all_finished = self._exchange(np.empty(0, self._id_type), nothing, has_finished=True)
            self._count(answered=1)

    # -- at the start

    def _check_own(self, num_own: int) -> None:
        if len(self._rows) != num_own:
            raise ValueError(
                f"`features` must have a row for each of the {num_own:,} nodes that rank "
                f"{self.rank} owns, got {len(self._rows):,}"
            )
        if self._labels is not None and len(self._labels) != num_own:
            raise ValueError(
                f"`labels` must have a row for each of the {num_own:,} nodes that rank "
                f"{self.rank} owns, got {len(self._labels):,}"
            )

    def _fill_cache(self, cached_nodes: Array) -> None:
        """Fetch what is kept, a part at a time; ranks may keep different numbers."""
        nodes = np.unique(_array_of(cached_nodes)).astype(np.int64)
        if len(nodes) and not 0 <= nodes[0] <= nodes[-1] < self.partition.num_nodes:
            raise ValueError(f"`cached_nodes` must be nodes, got {nodes[0]} to {nodes[-1]}")
        nodes = nodes[self.partition.owner[nodes] != self.rank]
        cache = np.empty((len(nodes), self._rows.shape[1]), dtype=np.uint8)
        for begin in range(0, len(nodes), _FILLED_AT_ONCE):
            part = nodes[begin : begin + _FILLED_AT_ONCE]
            found = self._gather(part)
            cache[begin : begin + len(part)] = _as_bytes(found)[0]
        self._answer_until_all_finished()
        self._capacity = _FIRST_CAPACITY  # blocks of batches are smaller than those of the filling
        self._cache = cache
        self._places[nodes] = len(self._rows) + np.arange(len(nodes))

    # -- keeping count

    def _count(self, **more: int) -> None:
        now = {f.name: getattr(self._counts, f.name) for f in fields(self._counts)}
        self._counts = ExchangeCounts(**{k: v + more.get(k, 0) for k, v in now.items()})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "another thread is in a call of these features; give each thread its own, in the "
                "same order on every rank"
            )
        try:
            yield
        finally:
            self._lock.release()


def _places(partition: Partition, own: Array, rank: int) -> Array:
    """Where each node's row lies: own ones from 0 on; -1 - r for row r of its owner."""
    largest = partition.num_nodes + int(partition.sizes.max())
    places = np.empty(partition.num_nodes, dtype=np.int32 if largest < 1 << 31 else np.int64)
    for other in range(partition.num_parts):
        nodes = own if other == rank else partition.nodes_of(other)
        numbers = np.arange(len(nodes), dtype=places.dtype)
        places[nodes] = numbers if other == rank else -1 - numbers
    return places


def _copy(source: Array, picks: Array, target: Array, places: Array) -> None:
    wide, wider = in_words(source), in_words(target)
    if wide.dtype != wider.dtype:
        wide, wider = source, target
    copy_rows(wide, picks, wider, places)


def _as_bytes(rows: Any) -> tuple[Array, torch.dtype, tuple[int, ...]]:
    """Rows as bytes (num_rows, bytes of a row) of the same memory, their type, their shape."""
    import torch

    tensor = rows if isinstance(rows, torch.Tensor) else None
    if tensor is not None and tensor.device.type != "cpu":
        raise ValueError(
            f"`features` must lie in the host's memory, got a tensor on {tensor.device}"
        )
    if rows.ndim < 2:
        raise ValueError(
            f"`features` must have a row for each node, (num_own, …), got {rows.shape}"
        )
    shape = tuple(int(size) for size in rows.shape[1:])
    if tensor is not None:
        kind, item = tensor.dtype, tensor.element_size()
        array = tensor.detach().contiguous().view(torch.uint8).numpy()
    else:
        kind, item = torch.from_numpy(np.empty(0, dtype=rows.dtype)).dtype, rows.dtype.itemsize
        array = np.ascontiguousarray(rows).view(np.uint8)
    return array.reshape(len(rows), int(np.prod(shape)) * item), kind, shape


def _tensor_of(labels: Any) -> torch.Tensor:
    import torch

    return labels if isinstance(labels, torch.Tensor) else torch.from_numpy(np.array(labels))


def _array_of(ids: Any) -> Array:
    return ids.numpy() if hasattr(ids, "numpy") else np.asarray(ids)
