"""What a form of data is to the converter: it writes shards, and reads them back to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np

from steptime.data.prepared.layout import Shard
from steptime.data.source import Values

Batch: TypeAlias = Mapping[str, Values]
Checksums: TypeAlias = "np.ndarray[Any, np.dtype[np.uint32]]"


Settle: TypeAlias = Callable[[], Shard]
"""Has a written shard on the disk on return; another thread may call it."""


class ShardWriter(Protocol):
    """One form, in one folder."""

    def write(self, number: int, first: int, batches: Iterable[Batch]) -> Settle:
        """Write a shard, and return what has it on the disk.

        Args:
            number: of the shard.
            first: its first sample.
            batches: its samples, in order.
        """
        ...

    def damaged(self, number: int, shard: Shard) -> str | None:
        """Read a shard back from the disk; return what is not as written, None if all is.

        It compares the checksum of each file, and that of each sample as the source gave it.
        """
        ...

    def close(self) -> None:
        """Close all files."""
        ...
