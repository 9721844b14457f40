"""LitData: `index.json` and chunks of samples, each a tree of values with a serializer.

Pickled leaves stay bytes, and encrypted chunks are refused. Source: Lightning-AI/litData, the
layout that its writer documents: a size for each leaf, then the leaves in the tree's order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.arrow_files import ArrowBatches, ArrowReader, find_batches
from steptime.data.sources.decoded_groups import CACHE_BYTES
from steptime.data.sources.json_index import decode_json, read_index, shard_in
from steptime.data.sources.litdata_rows import ArrowTail, has_rows
from steptime.data.sources.mds_files import decode_raw_picture
from steptime.data.sources.packed_chunks import CODECS, PackedChunk, PackedChunks, PackedReader
from steptime.data.stored_bytes import DamagedBytesError, StoredPlace, by_shard, read_ranges
from steptime.errors import DataError

INDEX = "index.json"
TORCH_DTYPES = (
    *("float32", "float32", "float64", "float64", "complex64", "complex64", "complex128"),
    *("complex128", "float16", "float16", None, "uint8", "int8", "int16", "int16", "int32"),
    *("int32", "int64", "int64", "bool", "uint16"),
)
"""How a tensor says its dtype; numpy has no bfloat16."""
NUMPY_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"),
    *("float32", "float64", "complex64", "complex128", "bool"),
)
"""How an array says its dtype; what comes behind them (objects, texts) is refused."""
MAX_DEPTH = 32


class LitDataChunk(msgspec.Struct):
    """One chunk of the index."""

    filename: str
    chunk_size: int
    chunk_bytes: int
    dim: int | None = None


class LitDataConfig(msgspec.Struct):
    """What all chunks have in common."""

    data_format: list[str]
    data_spec: str | None = None
    compression: str | None = None
    encryption: Any = None
    item_loader: str | None = None


class LitDataIndex(msgspec.Struct):
    """`index.json`."""

    chunks: list[LitDataChunk]
    config: LitDataConfig


class LitDataLeaf(NamedTuple):
    """One value of a sample."""

    column: Column
    decode: Callable[[bytes], Any]


def divide(sample: memoryview, leaves: tuple[LitDataLeaf, ...]) -> list[Any]:
    """Return the values of a sample; the sizes of all stand before them."""
    sizes = struct.unpack_from(f"<{len(leaves)}I", sample)
    if sum(sizes) + 4 * len(sizes) != len(sample):
        raise DamagedBytesError("the sizes of its values do not make up the sample")
    at, values = 4 * len(sizes), []
    for leaf, size in zip(leaves, sizes, strict=True):
        values.append(leaf.decode(bytes(sample[at : at + size])))
        at += size
    return values


class TokensReader:
    """Blocks of tokens, as LitData's TokensLoader cuts them: whole ones of each chunk."""

    name = "LitData tokens"

    def __init__(
        self, chunks: PackedChunks, blocks: list[int], dtype: np.dtype[Any], block_size: int
    ) -> None:
        self._chunks = chunks
        self._starts = np.cumsum([0, *blocks], dtype=np.int64)
        self._dtype = dtype
        self._size = block_size
        self.columns = (Column("data", "array", dtype.name, (block_size,)),)
        self.num_bytes = int(self._starts[-1]) * block_size * dtype.itemsize

    def __len__(self) -> int:
        """Return the number of blocks."""
        return int(self._starts[-1])

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read blocks of tokens."""
        values = np.empty((len(indices), self._size), self._dtype)
        size = self._size * self._dtype.itemsize
        for shard, positions, rows in by_shard(indices, self._starts):
            stored = self._chunks.chunk(shard)
            first = int(self._chunks.offsets(shard, stored)[0])
            begins = [first + row * size for row in rows.tolist()]
            parts = read_ranges(stored, begins, [size] * len(begins))
            values[positions] = np.frombuffer(b"".join(parts), self._dtype).reshape(-1, self._size)
        return {"data": values}

    def place_of(self, index: int) -> str:
        """Return chunk and block."""
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        where = self._chunks.chunks[shard].place.where
        return f"{where}, row {index - int(self._starts[shard])}"

    def index(self) -> None:
        """The index lies beside the chunks."""

    def close(self) -> None:
        """Close the chunks."""
        self._chunks.close()


def open_litdata(
    place: StoredPlace, index: ArrowBatches | None, *, block_size: int | None = None
) -> PackedReader | TokensReader | ArrowReader:
    """Open a folder with an index.

    Args:
        place: the folder.
        index: the batches of chunks of rows, where they are known.
        block_size: tokens of a sample, of data that was written for LitData's TokensLoader.
    """
    if index is not None:
        return ArrowReader("LitData", index, None, CACHE_BYTES)
    found = read_index(place.inside(INDEX), LitDataIndex)
    where = place.inside(INDEX).where
    if found.config.encryption is not None:
        raise DataError(f"{where} says that the chunks are encrypted, which is not supported")
    if not found.chunks:
        raise DataError(f"{where} names no chunks")
    chunks = tuple(_chunk(place, chunk, found.config.compression, where) for chunk in found.chunks)
    if any(chunk.codec is None and has_rows(chunk.place) for chunk in chunks):
        return _rows(chunks, where)
    packed = PackedChunks(chunks, verify=False)
    if found.config.item_loader == "TokensLoader":
        return _tokens(packed, found, where, block_size)
    names = _names(found.config.data_spec, len(found.config.data_format), where)
    leaves = tuple(map(_leaf, names, found.config.data_format))
    columns = tuple(leaf.column for leaf in leaves)
    return PackedReader("LitData", packed, columns, lambda sample: divide(sample, leaves))


def _chunk(
    place: StoredPlace, chunk: LitDataChunk, compression: str | None, where: str
) -> PackedChunk:
    codec = None
    if compression is not None:
        codec = CODECS.get(compression.partition(":")[0])
        if codec is None:
            raise DataError(f"{where}: there is no reader for {compression}")
    if chunk.chunk_size < 0 or chunk.chunk_bytes < 0:
        raise DataError(f"{where}: the chunk {chunk.filename} has numbers below zero")
    found = shard_in(place, chunk.filename, INDEX)
    return PackedChunk(found, chunk.chunk_size, chunk.chunk_bytes, codec, {})


def _rows(chunks: tuple[PackedChunk, ...], where: str) -> ArrowReader:
    """Open chunks that end with an Arrow file of their samples."""
    tails: list[StoredPlace] = [ArrowTail(*chunk.place) for chunk in chunks]
    reader = ArrowReader("LitData", find_batches(tails), None, CACHE_BYTES)
    expected = sum(chunk.num_samples for chunk in chunks)
    if len(reader) != expected:
        raise DataError(f"the chunks of {where} have {len(reader):,} of {expected:,} samples")
    return reader


def _tokens(
    packed: PackedChunks, found: LitDataIndex, where: str, block_size: int | None
) -> TokensReader:
    if block_size is None or block_size < 1:
        hint = "Give the context length: block_size=2048, for instance."
        raise DataError(f"{where} is of tokens without samples", hint=hint)
    kind, _, number = found.config.data_format[0].partition(":")
    dtype = _dtype(kind, number)
    if dtype is None or not kind.startswith("no_header"):
        raise DataError(f"{where} says that tokens are {found.config.data_format[0]}")
    blocks = []
    for chunk in found.chunks:
        count = chunk.dim or 0
        if not 0 <= count * dtype.itemsize <= chunk.chunk_bytes:
            raise DataError(f"{where}: the chunk {chunk.filename} has {count:,} tokens")
        blocks.append(count // block_size)
    return TokensReader(packed, blocks, dtype, block_size)


def _names(spec: str | None, count: int, where: str) -> list[str]:
    """The names of the leaves: keys and places in the tree, joined by dots."""
    names: list[str] = []
    try:
        tree = decode_json(spec) if spec is not None else None
        if tree is not None:
            _walk(tree[1], "", names, 0)
    except (ValueError, TypeError, LookupError) as error:
        raise DataError(f"{where}: its data_spec is damaged ({error})") from error
    if tree is None:
        names = [str(i) for i in range(count)]
    if len(names) != count or len(set(names)) < count:
        raise DataError(f"{where}: its data_spec has {len(names)} values, and data_format {count}")
    return names


def _walk(node: Any, prefix: str, names: list[str], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deep")
    children = node["children_spec"]
    if node["type"] is None:
        names.append(prefix or "data")
        return
    keys: Any = range(len(children))
    if str(node["type"]).endswith("dict") and isinstance(node["context"], str):
        keys = decode_json(node["context"])
    for key, child in zip(keys, children, strict=True):
        _walk(child, f"{prefix}.{key}" if prefix else str(key), names, depth + 1)


def _leaf(name: str, data_format: str) -> LitDataLeaf:
    def leaf(decode: Callable[[bytes], Any], *details: Any) -> LitDataLeaf:
        return LitDataLeaf(Column(name, *details), decode)

    kind, _, detail = data_format.partition(":")
    if kind in ("str", "text"):
        return leaf(lambda data: str(data, "utf-8"), "text")
    if kind == "int":
        return leaf(lambda data: struct.unpack("<q", data)[0], "number", "int64", ())
    if kind == "float":
        return leaf(lambda data: struct.unpack("<d", data)[0], "number", "float64", ())
    if kind == "bool":
        return leaf(lambda data: data[0] != 0, "number", "bool", ())
    if kind == "pil":
        return leaf(decode_raw_picture, "array", "uint8")
    if kind == "tensor":
        return leaf(lambda data: _with_header(data, ">", TORCH_DTYPES), "array")
    if kind == "numpy":
        return leaf(lambda data: _with_header(data, "<", NUMPY_DTYPES), "array")
    dtype = _dtype(kind, detail) if kind.startswith("no_header") else None
    if dtype is not None:
        return leaf(lambda data: np.frombuffer(data, dtype), "array", dtype.name)
    return leaf(bytes, "bytes")  # jpeg, bytes, files, and pickle


def _dtype(kind: str, number: str) -> np.dtype[Any] | None:
    table = TORCH_DTYPES if kind.endswith("tensor") else NUMPY_DTYPES
    known = number.isascii() and number.isdigit() and int(number) < len(table)
    name = table[int(number)] if known else None
    return None if name is None else np.dtype(name)


def _with_header(data: bytes, order: str, dtypes: tuple[str | None, ...]) -> NDArray[Any]:
    """An array behind its dtype, its number of axes and their lengths."""
    number, num_dims = struct.unpack_from(f"{order}2I", data)
    if num_dims > 64 or number >= len(dtypes) or (name := dtypes[number]) is None:
        raise DamagedBytesError(f"an array has the dtype {number} and {num_dims} axes")
    shape = struct.unpack_from(f"{order}{num_dims}I", data, 8)
    return np.frombuffer(data[8 + 4 * num_dims :], name).reshape(shape)
