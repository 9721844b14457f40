"""MDS, the format of MosaicML Streaming: `index.json` and shards of samples with typed columns.

A pickled column stays bytes. Source: mosaicml/streaming, docs "Dataset format" and the layout that
its writer documents: sizes of the columns without a fixed size, then the columns by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column
from steptime.data.sources.json_index import read_index, shard_in
from steptime.data.sources.packed_chunks import CODECS, PackedChunk, PackedChunks, PackedReader
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace
from steptime.errors import DataError

INDEX = "index.json"
SCALARS = {
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16")},
    **{name: name for name in ("int32", "int64", "float16", "float32", "float64")},
    "int": "int64",
}
NUMBER_DTYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
"""How an array says its dtype."""


class MDSFile(msgspec.Struct):
    """One file of a shard."""

    basename: str
    bytes: int
    hashes: dict[str, str] = {}


class MDSShard(msgspec.Struct):
    """One shard of the index."""

    samples: int
    raw_data: MDSFile
    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]
    format: str = "mds"
    version: int = 2
    compression: str | None = None
    zip_data: MDSFile | None = None


class MDSIndex(msgspec.Struct):
    """`index.json`."""

    shards: list[MDSShard]
    version: int = 2


class MDSColumn(NamedTuple):
    """A column, the bytes of its values where they are fixed, and what decodes one."""

    column: Column
    size: int | None
    decode: Callable[[bytes], Any]


def divide(sample: memoryview, encoded: tuple[MDSColumn, ...]) -> list[Any]:
    """Return the values of a sample; the sizes of those that vary stand before them."""
    num_sizes = sum(part.size is None for part in encoded)
    sizes = iter(struct.unpack_from(f"<{num_sizes}I", sample))
    at, values = 4 * num_sizes, []
    for part in encoded:
        size = next(sizes) if part.size is None else part.size
        if at + size > len(sample):
            raise DamagedBytesError(f"column {part.column.name} is longer than its sample")
        values.append(part.decode(bytes(sample[at : at + size])))
        at += size
    return values


def open_mds(place: StoredPlace, index: None, *, verify: bool = False) -> PackedReader:
    """Open a folder with an index.

    Args:
        place: the folder.
        index: always None.
        verify: whether a shard's checksums in the index are compared when it is first read.
    """
    del index
    found = read_index(place.inside(INDEX), MDSIndex)
    where = place.inside(INDEX).where
    if not found.shards:
        raise DataError(f"{where} names no shards")
    first = found.shards[0]
    names, encodings = first.column_names, first.column_encodings
    if not len(names) == len(encodings) == len(first.column_sizes):
        raise DataError(f"{where} has other numbers of columns, encodings and sizes")
    encoded = tuple(
        _encoded(name, encoding, size, where)
        for name, encoding, size in zip(names, encodings, first.column_sizes, strict=True)
    )
    chunks = tuple(_chunk(place, shard, first, where) for shard in found.shards)
    columns = tuple(part.column for part in encoded)
    packed = PackedChunks(chunks, verify=verify)
    return PackedReader("MDS", packed, columns, lambda sample: divide(sample, encoded))


def _chunk(place: StoredPlace, shard: MDSShard, first: MDSShard, where: str) -> PackedChunk:
    same = ("column_names", "column_encodings", "column_sizes")
    if any(getattr(shard, name) != getattr(first, name) for name in same):
        raise DataError(f"{where}: the shard {shard.raw_data.basename} has other columns")
    if shard.format != "mds" or shard.version != 2 or shard.samples < 0 or shard.raw_data.bytes < 0:
        what = f"version {shard.version} of {shard.format} with {shard.samples} samples"
        raise DataError(f"{where}: the shard {shard.raw_data.basename} is {what}")
    raw, codec, named = shard.raw_data, None, shard.raw_data
    if shard.compression is not None and shard.zip_data is not None:
        unpacked = place.inside(raw.basename)  # who read it before may have left it unpacked
        if place.files.is_folder(unpacked.where) is None:
            named = shard.zip_data
            codec = CODECS.get(shard.compression.partition(":")[0])
            if codec is None:
                raise DataError(f"{where}: there is no reader for {shard.compression}")
    place_of_shard = shard_in(place, named.basename, INDEX)
    return PackedChunk(place_of_shard, shard.samples, raw.bytes, codec, raw.hashes)


def _encoded(name: str, encoding: str, size: int | None, where: str) -> MDSColumn:
    size = size or None
    kind, _, config = encoding.partition(":")
    if kind in SCALARS:
        dtype = np.dtype(SCALARS[kind])
        column = Column(name, "number", dtype.name, ())
        return MDSColumn(column, dtype.itemsize, lambda data: np.frombuffer(data, dtype)[0])
    if kind == "ndarray":
        return _encoded_array(name, config, size, where)
    if kind in ("str", "json", "str_decimal"):
        return MDSColumn(Column(name, "text"), size, lambda data: str(data, "utf-8"))
    if kind == "str_int":
        return MDSColumn(Column(name, "number", "int64", ()), size, lambda data: int(data[:32]))
    if kind == "str_float":
        return MDSColumn(Column(name, "number", "float64", ()), size, lambda data: float(data[:64]))
    if kind == "pil":
        return MDSColumn(Column(name, "array", "uint8"), size, decode_raw_picture)
    return MDSColumn(Column(name, "bytes"), size, bytes)  # jpeg, png, bytes, pkl, lists of pictures


def _encoded_array(name: str, config: str, size: int | None, where: str) -> MDSColumn:
    known, _, dims = config.partition(":")
    try:
        shape = tuple(int(n) for n in dims.split(",")) if dims else None
        dtype = np.dtype(known) if known else None
    except (ValueError, TypeError) as error:
        raise DataError(f"{where}: column {name} is ndarray:{config}") from error
    if (dtype is not None and dtype.kind not in "iuf") or (shape and min(shape) < 1):
        raise DataError(f"{where}: column {name} is ndarray:{config}")
    whole = shape if dtype is not None else None
    column = Column(name, "array", None if dtype is None else dtype.name, whole)
    return MDSColumn(column, size, lambda data: decode_array(data, dtype, shape))


def decode_array(
    data: bytes, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None
) -> NDArray[Any]:
    """Return an array that says its dtype, its shape, or both, unless they are given."""
    at = 0
    if dtype is None:
        dtype, at = np.dtype(NUMBER_DTYPES[data[0]]), 1
    if shape is None:
        num_dims, width = data[at] >> 2, 1 << (data[at] & 3)
        dims = data[at + 1 : at + 1 + num_dims * width]
        shape = tuple(np.frombuffer(dims, f"<u{width}").tolist())
        at += 1 + num_dims * width
    return np.frombuffer(data[at:], dtype).reshape(shape)


BANDS = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "HSV": 3, "LAB": 3, "LA": 2, "P": 1}
"""Values of a pixel, one byte each, in the modes of Pillow."""


def decode_raw_picture(data: bytes) -> NDArray[np.uint8]:
    """Return (height, width) or (height, width, bands) of a picture as Pillow holds it."""
    width, height, length = struct.unpack_from("<3I", data)
    mode = data[12 : 12 + length].decode("ascii", "replace")
    bands = BANDS.get(mode)
    if bands is None:
        raise DamagedBytesError(f"a picture has the mode {mode!r}")
    shape = (height, width) if bands == 1 else (height, width, bands)
    return np.frombuffer(data[12 + length :], np.uint8).reshape(shape)
