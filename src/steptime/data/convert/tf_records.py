"""TFRecord files without TensorFlow: frames with their CRC-32C, around `tf.train.Example`.

Bytes, text and arrays of uint8 become a `bytes_list`, whole numbers an `int64_list`, others a
`float_list`, which has 32 bits. An array has its shape beside it, as `NAME/shape`. A value that is
missing is left out.

Source: https://www.tensorflow.org/tutorials/load_data/tfrecord,
https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steptime.data.convert.record_files import RecordFormat
from steptime.data.convert.shard_writer import Batch
from steptime.data.crc32c import masked_crc
from steptime.data.prepared.layout import PreparedColumn
from steptime.data.prepared.sample_checksums import to_bytes

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3
"""The numbers of the lists in `tf.train.Feature`."""


def encode_examples(columns: Sequence[PreparedColumn], first: int, batch: Batch) -> list[bytes]:
    """Return the samples of a batch as serialized `tf.train.Example`."""
    parts = [_entries(column, batch[column.name]) for column in columns]
    return [_field(1, b"".join(row)) for row in zip(*parts, strict=True)]


def frame_examples(records: list[bytes]) -> bytes:
    """Return records as they stand in a file: length, its CRC, bytes, their CRC."""
    parts = []
    for record in records:
        length = len(record).to_bytes(8, "little")
        parts += [length, masked_crc(length), record, masked_crc(record)]
    return b"".join(parts)


def _entries(column: PreparedColumn, values: Any) -> list[bytes]:
    """Return the entry of a column in the map of features, for each sample."""
    key = _field(1, column.name.encode("utf-8", "surrogateescape"))
    shape_key = _field(1, f"{column.name}/shape".encode("utf-8", "surrogateescape"))
    found = []
    for value in values:
        entry = b"" if value is None else _field(1, key + _field(2, _feature(column, value)))
        if value is not None and column.kind == "array":
            shape = _field(_INTEGERS, _integers(np.shape(value)))
            entry += _field(1, shape_key + _field(2, shape))
        found.append(entry)
    return found


def _feature(column: PreparedColumn, value: Any) -> bytes:
    if column.dtype is None:
        return _field(_BYTES, _field(1, to_bytes(value)))
    array = np.asarray(value)
    if array.dtype == np.uint8 and column.kind == "array":
        return _field(_BYTES, _field(1, array.tobytes()))
    if array.dtype.kind in "bui":
        return _field(_INTEGERS, _integers(array.reshape(-1).tolist()))
    return _field(_FLOATS, _field(1, array.astype("<f4").tobytes()))


def _integers(values: Sequence[int]) -> bytes:
    return _field(1, b"".join(_varint(int(value) & 0xFFFFFFFFFFFFFFFF) for value in values))


def _field(number: int, data: bytes) -> bytes:
    """Return a field of protobuf that has a length."""
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


TF_RECORDS = RecordFormat(
    suffix="tfrecord",
    encode=encode_examples,
    frame=frame_examples,
    end=b"",
)
