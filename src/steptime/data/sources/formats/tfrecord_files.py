"""TFRecord: records with checksums, and the `tf.train.Example` in each, without TensorFlow.

Where the records are no examples, they are one column of bytes. Source: the TFRecord format
(tensorflow.org, "TFRecord and tf.train.Example"): length, its CRC, data, their CRC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptime.data.crc32c import masked_crc
from steptime.data.source import Column, Values
from steptime.data.sources.example_wire import Features, parse_example
from steptime.data.sources.file_object import WalkedFile
from steptime.data.sources.record_shards import (
    RecordIndex,
    join_index,
    read_records,
    stack,
)
from steptime.data.sources.shards import OpenShards, find_shards
from steptime.data.stored_bytes import DamagedBytesError, StoredBytes, StoredPlace
from steptime.errors import DataError

HEAD_BYTES, TAIL_BYTES = 12, 4
FIRST_RECORDS = 64
"""Examples that tell what the columns are: names, kinds, and whether lengths vary."""


class TFRecordIndex(NamedTuple):
    """Where the records lie, with the checksum behind each, and the columns."""

    records: RecordIndex
    columns: tuple[Column, ...]
    are_examples: bool


class TFRecordReader:
    """See the module."""

    name = "TFRecord"

    def __init__(self, index: TFRecordIndex, *, verify: bool) -> None:
        self._index = index
        self._verify = verify
        self._shards = OpenShards(index.records.shards)
        self.columns = index.columns
        self.num_bytes = int(index.records.sizes.sum()) - TAIL_BYTES * len(index.records.sizes)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._index.records.offsets)

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read records, check them, and take them apart."""
        records = read_records(self._shards, self._index.records, indices)
        if self._verify:
            check_records(records)
        data = [record[:-TAIL_BYTES] for record in records]
        if not self._index.are_examples:
            return {"data": [bytes(record) for record in data]}
        examples = [parse_example(record) for record in data]
        return {column.name: stack(_values(column, examples), column) for column in self.columns}

    def place_of(self, index: int) -> str:
        """Return file and record."""
        return self._index.records.place_of(index)

    def index(self) -> TFRecordIndex:
        """Return where the records lie, which takes a walk through all files to know."""
        return self._index

    def close(self) -> None:
        """Close the files."""
        self._shards.close()


def open_tfrecord(
    place: StoredPlace,
    index: TFRecordIndex | None,
    *,
    split: str | None = None,
    ragged: tuple[str, ...] = (),
    verify: bool = True,
) -> TFRecordReader:
    """Open a file or a folder of shards.

    Args:
        place: the file or folder.
        index: where the records lie, if that is known.
        split: the split to take, where names of shards tell several.
        ragged: features whose number of values varies, though not in the first 64 examples.
        verify: whether each record's checksum is compared.
    """
    if index is None:
        shards = find_shards(place, split, (".tfrecord", ".tfrecords", ".tfrec"))
        records = join_index(shards, [_walk(shard) for shard in shards])
        index = _with_columns(records, ragged)
    return TFRecordReader(index, verify=verify)


def _walk(place: StoredPlace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the records of one file; the checksums of their lengths are compared."""
    stored = place.stored()
    begins, sizes = list[int](), list[int]()
    file, at = WalkedFile(stored), 0
    while at < stored.size:
        file.seek(at)
        head = file.read(HEAD_BYTES)
        if len(head) == HEAD_BYTES and masked_crc(head[:8]) != head[8:]:
            raise DataError(f"{place.where}, row {len(sizes)}: the checksum of its length is wrong")
        size = int.from_bytes(head[:8], "little") + TAIL_BYTES
        begin, at = at + HEAD_BYTES, at + HEAD_BYTES + size
        if at > stored.size:
            raise DataError(f"{place.where}, row {len(sizes)}: it is cut off")
        begins.append(begin)
        sizes.append(size)
    stored.close()
    return np.array(begins, np.int64), np.array(sizes, np.int64)


def is_tfrecord(stored: StoredBytes) -> bool:
    """Whether a file begins with a length and the checksum of it."""
    head = stored.read_at(0, HEAD_BYTES)
    return len(head) == HEAD_BYTES and masked_crc(head[:8]) == head[8:]


def check_records(records: Sequence[memoryview]) -> None:
    """Compare the checksum behind each record.

    Raises:
        DamagedBytesError: one is wrong.
    """
    if any(masked_crc(record[:-TAIL_BYTES]) != record[-TAIL_BYTES:] for record in records):
        raise DamagedBytesError("its checksum is wrong: a byte of it was changed")


def _with_columns(records: RecordIndex, ragged: tuple[str, ...]) -> TFRecordIndex:
    raw = TFRecordIndex(records, (Column("data", "bytes"),), False)
    first = np.arange(min(FIRST_RECORDS, len(records.offsets)))
    if not len(first):
        return raw
    found = []
    for record in read_records(OpenShards(records.shards), records, first):
        try:
            found.append(parse_example(record[:-TAIL_BYTES]))
        except ValueError:
            return raw
    names = sorted({name for features in found for name in features})
    if not names:
        return raw
    columns = tuple(_column(name, found, name in ragged) for name in names)
    return TFRecordIndex(records, columns, True)


def _column(name: str, found: list[Features], is_ragged: bool) -> Column:  # noqa: FBT001
    values = [features[name] for features in found if name in features]
    lengths = {len(value) for value in values}
    is_single = lengths == {1} and not is_ragged
    if all(isinstance(value, list) for value in values):
        return Column(name, "bytes") if is_single else Column(name, "array", "object")
    dtypes = {str(value.dtype) for value in values if not isinstance(value, list)}
    if len(dtypes) > 1 or any(isinstance(value, list) for value in values):
        raise DataError(f"feature {name} has values of several types: {', '.join(sorted(dtypes))}")
    if is_single:
        return Column(name, "number", dtypes.pop(), ())
    is_fixed = len(lengths) == 1 and len(values) > 1 and not is_ragged
    return Column(name, "array", dtypes.pop(), (lengths.pop(),) if is_fixed else None)


def _values(column: Column, examples: list[Features]) -> list[object]:
    values = [features.get(column.name) for features in examples]
    is_list = column.kind == "bytes" or column.dtype == "object"
    for value in values:
        if value is not None and isinstance(value, list) != is_list:
            raise ValueError(f"feature {column.name} has another type than in the first samples")
    if column.kind not in ("bytes", "number"):
        return list(values)
    for value in values:
        if value is not None and len(value) != 1:
            what = f"{len(value)} values, and the first samples have one each"
            raise ValueError(f"feature {column.name} has {what}: name it in ragged=(…)")
    return [None if value is None else value[0] for value in values]
