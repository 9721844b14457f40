"""Chunks of MDS and LitData: a count, the offsets of all samples, and the samples behind them.

Both formats lay samples out in this way (all numbers uint32, little-endian); they differ in their
index, in what stands between offsets and samples, and in how a sample is divided. A compressed
chunk is unpacked as a whole, and kept while the budget lasts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.decoded_groups import CACHE_BYTES, MAX_GROUP_BYTES, DecodedGroups
from steptime.data.sources.record_shards import stack
from steptime.data.sources.shards import OpenShards
from steptime.data.stored_bytes import (
    BytesInMemory,
    DamagedBytesError,
    StoredBytes,
    StoredPlace,
    by_shard,
    read_exactly,
    read_ranges,
)

CODECS = {"zstd": "zstd", "gz": "gzip", "br": "brotli", "bz2": "bz2"}
"""Names of compressions in indexes, and Arrow's names of them."""


HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
"""What the standard library computes, of the checksums that an index may have."""


class PackedChunk(NamedTuple):
    """One file, as the index describes it."""

    place: StoredPlace
    num_samples: int
    num_bytes: int
    """Unpacked."""
    codec: str | None
    hashes: Mapping[str, str]
    """Of the unpacked bytes, by algorithm."""


class PackedChunks:
    """Samples as bytes, by number, from many chunks."""

    def __init__(self, chunks: tuple[PackedChunk, ...], *, verify: bool) -> None:
        self.chunks = chunks
        self.starts = np.cumsum([0, *(chunk.num_samples for chunk in chunks)], dtype=np.int64)
        self._verify = verify
        self._shards = OpenShards([chunk.place for chunk in chunks])
        self._offsets: dict[int, NDArray[np.int64]] = {}
        self._unpacked: DecodedGroups[StoredBytes] = DecodedGroups(CACHE_BYTES)
        self._lock = Lock()

    def read(self, indices: NDArray[np.int64]) -> list[memoryview]:
        """Return samples in the order asked for; neighbours come in one read."""
        samples: list[memoryview] = [memoryview(b"")] * len(indices)
        for shard, positions, rows in by_shard(indices, self.starts):
            stored = self.chunk(shard)
            offsets = self.offsets(shard, stored)
            begins, ends = offsets[rows], offsets[rows + 1]
            parts = read_ranges(stored, begins.tolist(), (ends - begins).tolist())
            for position, part in zip(positions.tolist(), parts, strict=True):
                samples[position] = part
        return samples

    def chunk(self, shard: int) -> StoredBytes:
        """Return a chunk's bytes, unpacked where they are packed."""
        chunk = self.chunks[shard]
        if chunk.codec is None and not (self._verify and chunk.hashes):
            stored = self._shards[shard]
            if stored.size != chunk.num_bytes:
                expected = f"instead of the {chunk.num_bytes:,} that the index says"
                raise DamagedBytesError(f"the file has {stored.size:,} bytes {expected}")
            return stored
        return self._unpacked.get((shard, 0), lambda: self._unpack(shard))

    def _unpack(self, shard: int) -> tuple[StoredBytes, int]:
        chunk, stored = self.chunks[shard], self._shards[shard]
        if not 0 <= chunk.num_bytes <= MAX_GROUP_BYTES:
            raise DamagedBytesError(f"it should unpack to {chunk.num_bytes:,} bytes")
        data = read_exactly(stored, 0, stored.size)
        if chunk.codec is not None:
            with pa.CompressedInputStream(pa.BufferReader(data), chunk.codec) as stream:
                data = stream.read(chunk.num_bytes + 1)  # grows as it is filled
        if len(data) != chunk.num_bytes:
            has = f"{len(data):,}" if len(data) < chunk.num_bytes else "more"
            raise DamagedBytesError(f"it unpacks to {has} instead of {chunk.num_bytes:,} bytes")
        for algorithm, expected in chunk.hashes.items():
            if algorithm not in HASHES:
                continue
            if hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() != expected:
                raise DamagedBytesError(f"its {algorithm} is not what the index says")
        return BytesInMemory(data), len(data)

    def offsets(self, shard: int, stored: StoredBytes) -> NDArray[np.int64]:
        """Return where the samples of a chunk begin, and where the last one ends: checked."""
        with self._lock:
            if shard in self._offsets:
                return self._offsets[shard]
        chunk = self.chunks[shard]
        count = int.from_bytes(read_exactly(stored, 0, 4), "little")
        if count != chunk.num_samples:
            what = f"{count:,} samples instead of the {chunk.num_samples:,} that the index says"
            raise DamagedBytesError(f"the file has {what}")
        raw = read_exactly(stored, 4, 4 * (count + 1))
        offsets = np.frombuffer(raw, "<u4").astype(np.int64)
        is_rising = bool((np.diff(offsets) >= 0).all())
        if not is_rising or offsets[0] < 4 * (count + 2) or offsets[-1] > stored.size:
            raise DamagedBytesError("the offsets of its samples are damaged")
        with self._lock:
            self._offsets[shard] = offsets
        return offsets

    def place_of(self, index: int) -> str:
        """Return the shard and the row in it."""
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        return f"{self.chunks[shard].place.where}, row {index - int(self.starts[shard])}"

    def close(self) -> None:
        """Let go of all files."""
        self._unpacked.clear()
        self._shards.close()


class PackedReader:
    """Samples of chunks as columns; a format says how a sample is divided into values."""

    def __init__(
        self,
        name: str,
        chunks: PackedChunks,
        columns: tuple[Column, ...],
        divide: Callable[[memoryview], list[Any]],
    ) -> None:
        self.name = name
        self._chunks = chunks
        self._divide = divide
        self.columns = columns
        self.num_bytes = sum(chunk.num_bytes for chunk in chunks.chunks)

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._chunks.starts[-1])

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Read samples and divide them into columns."""
        divided = [self._divide(sample) for sample in self._chunks.read(indices)]
        columns = zip(self.columns, zip(*divided, strict=True), strict=True)
        return {column.name: stack(list(values), column) for column, values in columns}

    def place_of(self, index: int) -> str:
        """Return chunk and row."""
        return self._chunks.place_of(index)

    def index(self) -> None:
        """The index lies beside the chunks."""

    def close(self) -> None:
        """Close the chunks."""
        self._chunks.close()
