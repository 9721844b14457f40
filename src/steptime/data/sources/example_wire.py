"""The wire form of `tf.train.Example`: names of features, and bytes, floats or integers of each.

Source: the encoding of protocol buffers (protobuf.dev, "Encoding"), and example.proto and
feature.proto of TensorFlow: Example {1: Features}, Features {1: map of Feature},
Feature {1: BytesList, 2: FloatList, 3: Int64List}, each {1: repeated value}.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steptime.data.stored_bytes import DamagedBytesError

Features: TypeAlias = dict[str, "list[bytes] | NDArray[Any]"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def parse_example(data: memoryview) -> Features:
    """Return the features of one example.

    Raises:
        DamagedBytesError: it is none, or damaged.
    """
    features: Features = {}
    for number, value in _fields(data):
        if number != 1 or not isinstance(value, memoryview):
            raise DamagedBytesError("it is no tf.train.Example")
        for inner, entry in _fields(value):
            if inner != 1 or not isinstance(entry, memoryview):
                raise DamagedBytesError("it is no tf.train.Example")
            name, feature = _entry(entry)
            if feature is not None:
                features[name] = feature
    return features


def _entry(data: memoryview) -> tuple[str, list[bytes] | NDArray[Any] | None]:
    name, feature = "", None
    for number, value in _fields(data):
        if not isinstance(value, memoryview) or number not in (1, 2):
            raise DamagedBytesError("it is no tf.train.Example")
        if number == 1:
            name = str(value, "utf-8")
        else:
            feature = _feature(value)
    return name, feature


def _feature(data: memoryview) -> list[bytes] | NDArray[Any] | None:
    found: list[bytes] | NDArray[Any] | None = None
    for number, value in _fields(data):
        if not isinstance(value, memoryview) or number not in (1, 2, 3):
            raise DamagedBytesError("a feature is neither bytes nor floats nor integers")
        if number == 1:
            found = [bytes(v) for _, v in _fields(value) if isinstance(v, memoryview)]
        elif number == 2:
            found = _floats(value)
        else:
            found = _integers(value)
    return found


def _floats(data: memoryview) -> NDArray[np.float32]:
    parts = [v for _, v in _fields(data) if isinstance(v, memoryview)]  # packed, or one by one
    return np.frombuffer(b"".join(parts), "<f4").astype(np.float32)


def _integers(data: memoryview) -> NDArray[np.int64]:
    parts = []
    for _, value in _fields(data):
        if isinstance(value, memoryview):
            parts.append(varints(value))
        else:
            parts.append(np.array([value], np.uint64).view(np.int64))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def varints(data: memoryview) -> NDArray[np.int64]:
    """Return all integers of a packed run: seven bits a byte, the lowest first."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if not len(raw):
        return np.empty(0, np.int64)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise DamagedBytesError("a number is cut off")
    begins = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - begins + 1
    if lengths.max() > 10:
        raise DamagedBytesError("a number has more than 64 bits")
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > place)
        bits = (raw[begins[longer] + place] & 127).astype(np.uint64)
        values[longer] |= bits << np.uint64(7 * place)
    return values.view(np.int64)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield (number, value) of each field of a message: bytes, or an unsigned integer."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise DamagedBytesError("a field has a type that there is not")
        if size > end - at:
            raise DamagedBytesError("a field is longer than what it lies in")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise DamagedBytesError("a number is cut off")
