"""What an unfinished conversion leaves behind, so that it can be continued: a plan and a journal.

Both lie in TARGET.partial. The plan says what is being made of what; the journal has one line for
each shard that is whole and on the disk. A line that a kill cut off counts as not there, and its
shard is written again.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from steptime.core.codec import decode, encode
from steptime.data.prepared.layout import Origin, PreparedColumn, Shard
from steptime.errors import DamagedRunError, DataError
from steptime.record.regular_file import read_regular

PLAN = "plan.json"
JOURNAL = "journal.jsonl"
_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    """What is made of what.

    Attributes:
        origin: the source.
        num_samples: of it.
        columns: of the target.
        rows_per_shard: the last shard may have fewer.
        treatment: what is done to pictures, in words.
        is_fast: pictures are decoded by the faster decoder, which was compared with Pillow.
    """

    origin: Origin
    num_samples: int
    columns: tuple[PreparedColumn, ...]
    rows_per_shard: int
    treatment: str
    is_fast: bool

    @property
    def num_shards(self) -> int:
        """How many shards there will be."""
        return -(-self.num_samples // self.rows_per_shard)

    def is_of_the_same(self, other: ConversionPlan) -> bool:
        """Whether both make the same of the same; columns and shards are those of the older."""
        return (self.origin, self.num_samples, self.treatment) == (
            other.origin,
            other.num_samples,
            other.treatment,
        )


class ConversionJournal:
    """The unfinished conversion in a folder, held by one process at a time.

    Args:
        folder: TARGET.partial; made where it is not there.
        plan: what is to be made; that of the folder takes its place where it is the same.

    Raises:
        DataError: the folder holds another conversion, or another process works on it.
    """

    def __init__(self, folder: Path, plan: ConversionPlan) -> None:
        folder.mkdir(exist_ok=True)
        if not (folder / JOURNAL).exists() and any(folder.iterdir()):
            raise DataError(f"{folder} is there, and holds no unfinished conversion.")
        self._folder = folder
        self._file = open(folder / JOURNAL, "a+b")  # noqa: SIM115 (it holds the lock)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise DataError(f"another conversion is writing {folder}.") from error
        try:
            self.plan = self._plan_of(folder, plan)
            self.shards = self._read()
        except (DataError, OSError):
            self._file.close()
            raise

    def _plan_of(self, folder: Path, plan: ConversionPlan) -> ConversionPlan:
        path = folder / PLAN
        hint = f"Remove it to begin again: rm -r {folder}"
        try:
            found = decode(ConversionPlan, read_regular(path), where=str(path))
        except FileNotFoundError:
            self._file.truncate(0)  # killed before there was a plan, so before there was a shard
            write_durably(path, encode(plan).encode("ascii"))
            return plan
        except (OSError, DamagedRunError) as error:
            raise DataError(f"{path} cannot be read: {error}", hint=hint) from error
        if not plan.is_of_the_same(found):
            what = "an unfinished conversion of other data, or with other options"
            raise DataError(f"{folder} holds {what}.", hint=hint)
        return found

    def _read(self) -> dict[int, Shard]:
        self._file.seek(0)
        found: dict[int, Shard] = {}
        whole = 0
        for line in self._file:
            try:
                shard = decode(Shard, line if line.endswith(b"\n") else b"")
            except DamagedRunError:
                break
            found[shard.first // self.plan.rows_per_shard] = shard
            whole += len(line)
        self._file.truncate(whole)  # so that the next line begins as one
        return found

    def add(self, number: int, shard: Shard) -> None:
        """Note that a shard is whole and on the disk."""
        self._file.write(encode(shard).encode("ascii") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.shards[number] = shard

    def forget(self, number: int) -> None:
        """Take a shard as not written; a later line for it counts."""
        del self.shards[number]

    def begin_again(self, plan: ConversionPlan) -> None:
        """Take another plan; nothing that was written counts."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())
        for path in self._folder.iterdir():
            if path.name not in (PLAN, JOURNAL):
                path.unlink()
        write_durably(self._folder / PLAN, encode(plan).encode("ascii"))
        self.plan, self.shards = plan, {}

    def close(self) -> None:
        """Let others work on the folder."""
        self._file.close()


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
    half = path.with_name(path.name + ".half")
    with open(half, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(half, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
