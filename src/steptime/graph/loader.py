"""PyG's `NeighborLoader` and `LinkNeighborLoader` over the fused sampler: no pyg-lib is needed.

In: PyG's data and PyG's argument names. Out: PyG's `Data` or `HeteroData`, batch by batch, sampled
and filled by threads beside the training step. PyG itself fills the batches, so their fields are
PyG's. Sampling is `sample.py`'s.
"""

# torch_geometric has types that strict checks do not know.
# mypy: disable-error-code="misc"

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from queue import SimpleQueue
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from steptime.errors import GraphError, MissingExtraError
from steptime.graph.pyg_sampler import Key, PygSampler, SamplingOptions, sampler_of
from steptime.graph.sample import key_of

try:
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import LinkLoader, NodeLoader
except (ImportError, RuntimeError) as error:
    raise MissingExtraError(
        f"The loaders give batches of PyG, which cannot be imported: {error}",
        needs="torch_geometric",
    ) from error

Tensor = Any
USELESS = ("worker_init_fn", "multiprocessing_context", "persistent_workers")
"""Arguments about worker processes; here are threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchPlan:
    """How many threads make batches, and how many batches each has in hand."""

    num_threads: int = 0
    depth: int = 2
    timeout_s: float = 0.0
    is_pinned: bool = False


def split_options(given: Mapping[str, Any]) -> tuple[SamplingOptions, PrefetchPlan, dict[str, Any]]:
    """Return the options of the sampling, of the threads, and of torch's `DataLoader`."""
    rest = dict(given)
    if rest.pop("directed", True) is False:
        raise GraphError("directed=False is not supported; pass subgraph_type='bidirectional'.")
    mine = {f.name: rest.pop(f.name) for f in fields(SamplingOptions) if f.name in rest}
    if void := [name for name in USELESS if rest.pop(name, None)]:
        warnings.warn(
            f"{', '.join(void)} has no effect: batches are made by threads, not by processes.",
            stacklevel=3,
        )
    ahead = PrefetchPlan(
        num_threads=rest.pop("num_workers", 0),
        depth=rest.pop("prefetch_factor", None) or 2,
        timeout_s=rest.pop("timeout", 0),
        is_pinned=bool(rest.pop("pin_memory", False)) and torch.cuda.is_available(),
    )
    return SamplingOptions(**mine), ahead, rest


class _Epoch(IterableDataset):
    """The finished batches of one epoch, made ahead by threads."""

    def __init__(self, loader: Any, make: Callable[[PygSampler, Any, Key], Any]) -> None:
        self.loader, self.make = loader, make
        self.number, loader.epoch = loader.epoch, loader.epoch + 1
        if loader.has_own_order:
            loader.generator.manual_seed(key_of(loader.options.seed, self.number) >> 1)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        ahead: PrefetchPlan = self.loader.ahead
        chosen = enumerate(self.loader._index_sampler)
        if not ahead.num_threads:
            for number, index in chosen:
                yield self._place(self._make(self.loader.sampler_here, number, index))
            return
        yield from self._from_threads(ahead, chosen)

    def _from_threads(
        self, ahead: PrefetchPlan, chosen: Iterator[tuple[int, Any]]
    ) -> Iterator[Any]:
        samplers = self.loader.free_samplers
        pool = ThreadPoolExecutor(ahead.num_threads, thread_name_prefix="sampling")
        waiting: deque[tuple[int, Future[Any]]] = deque()

        def in_thread(number: int, index: Any) -> Any:
            sampler = samplers.get()
            try:
                return self._make(sampler, number, index)
            finally:
                samplers.put(sampler)

        def fill() -> None:
            while len(waiting) < ahead.num_threads * ahead.depth:
                if (following := next(chosen, None)) is None:
                    return
                waiting.append((following[0], pool.submit(in_thread, *following)))

        try:
            fill()
            while waiting:
                number, future = waiting.popleft()
                batch = self._result(number, future, ahead.timeout_s)
                fill()
                yield self._place(batch)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, sampler: PygSampler, number: int, index: Any) -> Any:
        batch = self.make(sampler, index, (self.number, number))
        return batch.pin_memory() if self.loader.ahead.is_pinned else batch

    def _place(self, batch: Any) -> Any:
        device = self.loader.options.device
        return batch if device is None else batch.to(device, non_blocking=True)

    def _result(self, number: int, future: Future[Any], timeout_s: float) -> Any:
        try:
            error = future.exception(timeout_s or None)
        except TimeoutError:
            error = TimeoutError(f"it took longer than {timeout_s:g} s")
        if error is not None:
            raise GraphError(
                f"Batch {number} of epoch {self.number} could not be made: "
                f"{type(error).__name__}: {error}. The epoch ends here."
            ) from error
        return future.result()


def _unchanged(batch: Any) -> Any:
    return batch


def epoch_of(loader: Any, make: Callable[[PygSampler, Any, Key], Any]) -> Iterator[Any]:
    """Return the batches of the next epoch, through torch's own loader, so that tools see it."""
    epoch = _Epoch(loader, make)
    return iter(DataLoader(epoch, batch_size=None, collate_fn=_unchanged))


def equip(
    loader: Any,
    sampler: PygSampler,
    options: SamplingOptions,
    ahead: PrefetchPlan,
    rest: dict[str, Any],
) -> None:
    """Give a loader its samplers, one for each thread, its first epoch, and the order's seed."""
    if ahead.num_threads < 0 or ahead.depth < 1:
        raise GraphError(
            f"num_workers={ahead.num_threads} and prefetch_factor={ahead.depth}: the first must "
            "be at least 0, the second at least 1."
        )
    loader.sampler_here, loader.options, loader.ahead, loader.epoch = sampler, options, ahead, 0
    loader.free_samplers = SimpleQueue()
    for _ in range(ahead.num_threads):
        loader.free_samplers.put(sampler.clone())
    loader.has_own_order = options.seed is not None and rest.get("generator") is None
    if loader.has_own_order:
        rest["generator"] = torch.Generator()


def with_edges(batch: Any, out: Any) -> Any:
    """Return a batch with its edges, also where the graph was not part of the data."""
    if isinstance(batch, Data) and "edge_index" not in batch:
        batch.edge_index = torch.stack([out.row, out.col])
    return batch


class NeighborLoader(NodeLoader):
    """Batches of nodes with their sampled neighbors, as PyG's loader of that name gives them.

    Takes PyG's arguments, those after `input_time` by name. `num_workers` are threads here, and
    whatever their number, a batch is the same: it depends on `seed`, on the epoch, and on the
    batch's number. `num_workers=0` makes each batch when it is asked for.

    Args:
        data: `Data` or `HeteroData`.
        num_neighbors: edges picked for each node, hop by hop; -1 takes all; or by edge type.
        input_nodes: the seeds: indices, a mask, or (type, either of them).
        input_time: the latest edge that each seed may see.
        options: fields of `SamplingOptions`, `transform`, `transform_sampler_output`, and
            arguments of torch's `DataLoader`.

    Raises:
        GraphError: an argument is not what it must be, or a batch could not be made.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        **options: Any,
    ) -> None:
        chosen, ahead, rest = split_options(options)
        if input_time is not None and not chosen.time_attr and chosen.graph is None:
            raise GraphError("input_time is given and time_attr is not: name the times, too.")
        sampler = sampler_of(data, num_neighbors, chosen)
        equip(self, sampler, chosen, ahead, rest)
        super().__init__(data, sampler, input_nodes, input_time, **rest)

    def _get_iterator(self) -> Iterator[Any]:
        return epoch_of(self, self._make)

    def _make(self, sampler: PygSampler, index: Any, key: Key) -> Data | HeteroData:
        out = sampler.sample_from_nodes(self.input_data[index], key=key)
        return with_edges(self.filter_fn(out), out)


class LinkNeighborLoader(LinkLoader):
    """Batches of edges with the sampled neighbors of their ends, and negatives, as PyG's.

    Takes PyG's arguments, those after `edge_label` by name; negatives depend on the key of their
    batch as the neighbors do.

    Args:
        data: `Data` or `HeteroData`.
        num_neighbors: as for `NeighborLoader`.
        edge_label_index: (2, num_edges) the edges to go through, or (type, them).
        edge_label: (num_edges,) their labels.
        options: as for `NeighborLoader`, and `edge_label_time`, `neg_sampling`,
            `neg_sampling_ratio`.

    Raises:
        GraphError: an argument is not what it must be, or a batch could not be made.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Tensor | None = None,
        **options: Any,
    ) -> None:
        chosen, ahead, rest = split_options(options)
        if (rest.get("edge_label_time") is None) != (chosen.time_attr is None):
            raise GraphError("edge_label_time and time_attr belong together: pass both or neither.")
        sampler = sampler_of(data, num_neighbors, chosen)
        equip(self, sampler, chosen, ahead, rest)
        super().__init__(data, sampler, edge_label_index, edge_label, **rest)

    def _get_iterator(self) -> Iterator[Any]:
        return epoch_of(self, self._make)

    def _make(self, sampler: PygSampler, index: Any, key: Key) -> Data | HeteroData:
        inputs = self.input_data[index]
        out = sampler.sample_from_edges(inputs, self.neg_sampling, key=key)
        return with_edges(self.filter_fn(out), out)
