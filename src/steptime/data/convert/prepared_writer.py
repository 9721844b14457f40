"""Writes the prepared form: arrays in place, Arrow files, and the checksum of each sample."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from steptime.data.prepared.column_files import (
    ArrayFile,
    file_checksum,
    in_hexadecimal,
    write_arrow,
)
from steptime.data.prepared.layout import (
    CHECKSUMS,
    Origin,
    PreparedColumn,
    PreparedIndex,
    Shard,
)
from steptime.data.prepared.prepared_source import PreparedSource
from steptime.data.prepared.sample_checksums import fixed_rows, sample_checksums
from steptime.data.source import Values

Batch: TypeAlias = Mapping[str, Values]

Settle: TypeAlias = Callable[[], Shard]
"""Has a written shard on the disk on return; another thread may call it."""


class PreparedWriter:
    """Writes into a folder; see the module.

    Args:
        folder: where the files lie.
        columns: of the target.
        num_samples: of all shards.
    """

    def __init__(self, folder: Path, columns: tuple[PreparedColumn, ...], num_samples: int) -> None:
        self._folder, self._columns, self._num_samples = folder, columns, num_samples
        self._fixed = [column for column in columns if column.file is not None]
        self._varying = [column for column in columns if column.file is None]
        self._files = {
            str(column.file): ArrayFile(
                folder / str(column.file),
                str(column.dtype),
                (num_samples, *(column.shape or ())),
            )
            for column in self._fixed
        }
        self._files[CHECKSUMS] = ArrayFile(folder / CHECKSUMS, "uint32", (num_samples,))

    def write(self, number: int, first: int, batches: Iterable[Batch]) -> Settle:
        """Write a shard, and return what has it on the disk.

        Args:
            number: of the shard.
            first: its first sample.
            batches: its samples, in order.
        """
        crcs, at = dict.fromkeys(self._files, 0), first
        varying: dict[str, list[Any]] = {column.name: [] for column in self._varying}
        for batch in batches:
            parts = {str(c.file): fixed_rows(c, batch[c.name]) for c in self._fixed}
            parts[CHECKSUMS] = sample_checksums(self._columns, batch)
            for name, rows in parts.items():
                self._files[name].write(at, rows)
                crcs[name] = zlib.crc32(rows.reshape(-1).view(np.uint8).data, crcs[name])
            for name, values in varying.items():
                values.extend(batch[name])
            at += len(parts[CHECKSUMS])
        checksums = {name: in_hexadecimal(crc) for name, crc in crcs.items()}
        shard = Shard(first=first, rows=at - first, sizes={}, checksums=checksums)
        return partial(self._settle, number, shard, varying)

    def _settle(self, number: int, shard: Shard, varying: dict[str, list[Any]]) -> Shard:
        for file in self._files.values():
            file.to_disk(shard.first, shard.rows)
        sizes = {name: file.row_bytes * shard.rows for name, file in self._files.items()}
        checksums, arrow, buffers = dict(shard.checksums), None, {}
        if varying:
            arrow = f"part-{number:05}.arrow"
            buffers = write_arrow(self._folder / arrow, self._varying, varying)
            checksums[arrow], sizes[arrow] = file_checksum(self._folder / arrow)
        return Shard(first=shard.first, rows=shard.rows, checksums=checksums, sizes=sizes,
                     arrow=arrow, buffers=buffers)  # fmt: skip

    def damaged(self, number: int, shard: Shard) -> str | None:
        """Read a shard back from the disk; return what is not as written, None if all is.

        It compares the checksum of each file, and that of each sample as the source gave it.
        """
        for name, expected in shard.checksums.items():
            if name in self._files:
                found = self._files[name].checksum(shard.first, shard.rows)
            else:
                found = file_checksum(self._folder / name)
            if found != (expected, shard.sizes[name]):
                return f"{self._folder / name}, shard {number}: its checksum is {found[0]}"
        if not self._varying:
            return None  # each byte is at the place of its row, and is what was written there
        damage = next(self._reader(shard).damage(shard), None)
        if damage is None:
            return None
        return f"{self._folder}, shard {number}, row {damage.number - shard.first}"

    def _reader(self, shard: Shard) -> PreparedSource:
        """Return a reader of the whole arrays that knows this shard alone."""
        index = PreparedIndex(
            num_samples=self._num_samples,
            columns=self._columns,
            shards=(shard,),
            origin=Origin(name="", place="", num_bytes=None),
        )
        return PreparedSource(self._folder, index)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
