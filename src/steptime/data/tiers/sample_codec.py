"""One sample as bytes, and back: no pickle, so that a file of somebody else runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Values

_ARRAY = 1
_HEADER = msgspec.msgpack.Encoder()


def encode_sample(values: Sequence[Any]) -> bytes:
    """Return the values of a sample, column by column, as bytes.

    Raises:
        TypeError: a value is none of bytes, text, numbers and arrays of them.
    """
    return msgspec.msgpack.encode([_plain(value) for value in values])


def decode_sample(data: bytes) -> list[Any]:
    """Return the values that were encoded; arrays share the memory of `data`.

    Raises:
        ValueError: the bytes are no sample.
    """
    try:
        values = msgspec.msgpack.decode(data, type=list[Any], ext_hook=_read_array)
    except (msgspec.DecodeError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _write_array(np.asarray(value))
    return value


def _write_array(array: NDArray[Any]) -> msgspec.msgpack.Ext:
    if array.dtype.kind not in "biufcSUmM":
        raise TypeError(f"an array of {array.dtype} cannot be kept")
    header = _HEADER.encode([array.dtype.str, list(array.shape)])
    return msgspec.msgpack.Ext(_ARRAY, len(header).to_bytes(4, "little") + header + array.tobytes())


def _read_array(code: int, data: memoryview) -> NDArray[Any]:
    if code != _ARRAY:
        raise ValueError(f"no value of a sample has the type {code}")
    size = 4 + int.from_bytes(data[:4], "little")
    dtype, shape = msgspec.msgpack.decode(data[4:size], type=tuple[str, list[int]])
    return np.frombuffer(data[size:], dtype=np.dtype(dtype)).reshape(shape)


def by_column(names: Sequence[str], samples: Sequence[Sequence[Any]]) -> Mapping[str, Values]:
    """Return samples by column: one array where all are arrays of one shape, else a list."""
    return {
        name: _column([sample[place] for sample in samples]) for place, name in enumerate(names)
    }


def _column(values: list[Any]) -> Values:
    arrays = [np.asarray(v) for v in values if isinstance(v, (np.ndarray, np.generic))]
    if arrays and len(arrays) == len(values):
        if len({(array.dtype, array.shape) for array in arrays}) == 1:
            stacked: NDArray[Any] = np.stack(arrays)
            return stacked
        return arrays
    return values
