"""Writes formats that are one file of records a shard: TFRecord and WebDataset, to share data.

In: samples, and how a format makes and frames records. Out: files, each written under another name
and renamed when it is whole. When a file is read back, its checksum is compared with that of all
that was written into it, from the records of the source's samples.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from steptime.data.convert.shard_writer import Batch, Settle
from steptime.data.prepared.column_files import file_checksum, flush_to_disk, in_hexadecimal
from steptime.data.prepared.layout import PreparedColumn, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    """How a format makes records of samples.

    Attributes:
        suffix: of its files.
        encode: returns the records of a batch, given the columns and its first sample's number.
        frame: returns the bytes that stand in the file for some records.
        end: the bytes at the end of a file.
    """

    suffix: str
    encode: Callable[[Sequence[PreparedColumn], int, Batch], list[bytes]]
    frame: Callable[[list[bytes]], bytes]
    end: bytes


class RecordFiles:
    """The files of one format in a folder; a `ShardWriter`."""

    def __init__(
        self,
        record_format: RecordFormat,
        folder: Path,
        columns: tuple[PreparedColumn, ...],
        num_shards: int,
    ) -> None:
        self._format, self._folder = record_format, folder
        self._columns, self._num_shards = columns, num_shards

    def write(self, number: int, first: int, batches: Iterable[Batch]) -> Settle:
        """Write a shard, and return what has it on the disk."""
        path, at, crcs = self._path(number), first, list[int]()
        crc = size = 0
        half = path.with_name(path.name + ".half")
        with open(half, "wb") as file:
            for batch in batches:
                records = self._format.encode(self._columns, at, batch)
                framed = self._format.frame(records)
                crc, size = zlib.crc32(framed, crc), size + file.write(framed)
                crcs.extend(map(zlib.crc32, records))
                at += len(records)
            crc, size = zlib.crc32(self._format.end, crc), size + file.write(self._format.end)
        return partial(settle_file, half, path, first, crcs, (in_hexadecimal(crc), size))

    def damaged(self, number: int, shard: Shard) -> str | None:
        """Read a shard back from the disk; return what is not as written, None if all is."""
        path = self._path(number)
        if file_checksum(path) != (shard.checksums[path.name], shard.sizes[path.name]):
            return f"{path}: its checksum is another one"
        return None

    def close(self) -> None:
        """Close nothing: no file stays open."""

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:05}-of-{self._num_shards:05}.{self._format.suffix}"


def settle_file(
    half: Path, path: Path, first: int, crcs: Sequence[int], written: tuple[str, int] | None = None
) -> Shard:
    """Have the file of a shard on the disk, under its own name.

    Args:
        half: as it is named until it is whole.
        path: the file.
        first: its first sample.
        crcs: the CRC-32s of its samples, as the source gave them.
        written: checksum and bytes of what was written; None where only the file tells.
    """
    with open(half, "ab") as file:
        flush_to_disk(file)
    os.replace(half, path)
    checksum, size = written or file_checksum(path)
    return Shard(
        first=first,
        rows=len(crcs),
        checksums={path.name: checksum},
        sizes={path.name: size},
        samples=checksum_of(crcs),
    )


def checksum_of(crcs: Sequence[int]) -> str:
    """Return one checksum of the checksums of samples, in their order."""
    return in_hexadecimal(zlib.crc32(np.array(crcs, "<u4").tobytes()))
