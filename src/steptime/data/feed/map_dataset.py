"""A source as a map-style dataset of torch, which asks for whole batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from steptime.data.feed.columns import Columns, as_arrays, as_tensors, num_rows, one_of, own
from steptime.data.feed.named_errors import with_place
from steptime.data.source import SampleSource


class MapDataset:
    """A dataset for torch's `DataLoader`, with any number of workers and any sampler.

    `DataLoader(MapDataset(source), batch_size=64, shuffle=True, num_workers=2)` asks for
    each batch at once (`__getitems__`). The default `collate_fn` hands on what was read as one
    tensor a column; one of your own gets a sequence of samples, as from any dataset.
    """

    def __init__(
        self,
        source: SampleSource,
        *,
        columns: Sequence[str] | None = None,
        as_tuple: bool = False,
        decode: Callable[[Columns], Columns] | None = None,
    ) -> None:
        """Read this source.

        Args:
            source: samples.
            columns: what a sample has; None is all.
            as_tuple: samples and batches are tuples, in the order of `columns`.
            decode: turns the columns of some samples into others.
        """
        self.source = source
        self.columns = None if columns is None else tuple(columns)
        self.as_tuple = as_tuple
        self.decode = decode

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        """Return one sample, `{column: value}` or a tuple.

        Raises:
            IndexError: there is no such sample.
            DataError: it cannot be read; the message names shard and row.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self._sample(one_of(self._read([index % len(self)]), 0))

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the samples of a batch; they are read at once."""
        _let_torch_collate()
        return SampleRows(self._read(list(indices)), self.as_tuple)

    def _read(self, indices: Sequence[int]) -> Columns:
        return own(with_place(self.source, indices, self._read_some))

    def _read_some(self, indices: Sequence[int]) -> Columns:
        columns = self.source.read(indices)
        if self.columns is not None:
            columns = {name: columns[name] for name in self.columns}
        return columns if self.decode is None else self.decode(columns)

    def _sample(self, sample: dict[str, Any]) -> Any:
        return tuple(sample.values()) if self.as_tuple else sample


class _DictRow(dict[str, Any]):
    """A sample that was read with its batch."""


class _TupleRow(tuple[Any, ...]):
    """The same, as a tuple."""

    __slots__ = ()


class SampleRows(Sequence[Any]):
    """The samples of a batch, by column beneath: each sample is made when it is asked for."""

    def __init__(self, columns: Columns, as_tuple: bool) -> None:  # noqa: FBT001
        self.columns = columns
        self.as_tuple = as_tuple

    def __len__(self) -> int:
        return num_rows(self.columns)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        row = one_of(self.columns, place)
        return _TupleRow(row.values()) if self.as_tuple else _DictRow(row)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def collated(self) -> Any:
        """Return the batch: one tensor, array or list a column."""
        values = as_tensors(as_arrays(self.columns))
        return list(values.values()) if self.as_tuple else values


def _collate(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Collate rows: those of one reading are joined already."""
    if isinstance(batch, SampleRows):
        return batch.collated()
    collate = sys.modules["torch.utils.data._utils.collate"].collate
    plain = [dict(row) if isinstance(row, Mapping) else tuple(row) for row in batch]
    return collate(plain, collate_fn_map=collate_fn_map)


def _let_torch_collate() -> None:
    """Tell torch how to collate rows, in the way that its documentation gives for types."""
    module = sys.modules.get("torch.utils.data._utils.collate")
    if module is not None and _DictRow not in module.default_collate_fn_map:
        module.default_collate_fn_map.update({_DictRow: _collate, _TupleRow: _collate})
