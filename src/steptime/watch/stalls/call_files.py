"""Reads the records of collectives that the processes of a run keep in shared memory.

In: the folder of a run. Out: `RankCalls`, and what `desync` makes of them. The processes are not
asked: they may hang, or be gone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from steptime.desync.find_desync import COLLECTIVE, RankPlace, find_desync
from steptime.desync.recorded_calls import RankCalls, decode_calls
from steptime.measure.values.desync import Desync
from steptime.measure.values.stall import StalledRank
from steptime.record.live import call_ring
from steptime.record.regular_file import read_regular
from steptime.watch.stalls.process_stacks import read_kernel
from steptime.watch.stalls.stack_summary import is_in_backward

FORGOTTEN_S = 86_400.0
"""A process in another container has an id that means nothing here; its run may last hours."""

_NAME = re.compile(r"steptime-[0-9a-f]{16}-([0-9]{1,10})")


def read_calls(folder: Path, *, cwd: str | None) -> tuple[RankCalls, ...]:
    """Return the calls of each process of a run that has called a collective.

    Args:
        folder: of the run.
        cwd: the command's folder, for short names of files.
    """
    found = []
    for path, pid in files_of(folder):
        data = _read(path)
        calls = None if data is None else decode_calls(data, pid=pid, cwd=cwd)
        if calls is not None:
            found.append(calls)
    return tuple(sorted(found, key=lambda one: (one.rank, one.pid)))


def explain_ranks(
    calls: Sequence[RankCalls], ranks: Sequence[StalledRank], *, gone: Collection[int]
) -> Desync | None:
    """Return how the ranks of one training that stand still lost each other.

    Args:
        calls: the records of all processes of the run.
        ranks: the ranks with their stacks.
        gone: ranks whose process has ended.
    """
    if len(ranks) < 2:
        return None
    rank_of = {one.pid: one.rank for one in ranks if one.rank is not None}
    own = [one for one in calls if rank_of.get(one.pid) == one.rank]
    places = [
        _place(one, one.rank, is_gone=one.rank in gone) for one in ranks if one.rank is not None
    ]
    return find_desync(own, places)


def _place(one: StalledRank, rank: int, *, is_gone: bool) -> RankPlace:
    main = next((stack for stack in one.stacks if stack.is_main and stack.frames), None)
    return RankPlace(
        rank=rank,
        waits_in=one.waits_in,
        where=one.where,
        is_gone=is_gone,
        in_backward=one.waits_in == COLLECTIVE and is_in_backward(main),
        is_seen=main is not None,
    )


def files_of(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of a run's processes with their ids; only files of this user count."""
    start = call_ring.calls_file_start(os.fspath(folder))
    with suppress(OSError):
        for name in sorted(os.listdir(call_ring.FOLDER)):
            number = name.removeprefix(start)
            if name.startswith(start) and number.isascii() and number.isdigit():
                yield Path(call_ring.FOLDER, name), int(number)


def remove_forgotten(now_unix_s: float) -> None:
    """Remove old files of processes that are gone, whose Steptime was killed before it did so."""
    with suppress(OSError):
        for name in os.listdir(call_ring.FOLDER):
            path = Path(call_ring.FOLDER, name)
            found = _NAME.fullmatch(name)
            if found is None or read_kernel(int(found[1])).state is not None:
                continue
            with suppress(OSError):
                seen = path.lstat()
                if seen.st_uid == os.getuid() and now_unix_s - seen.st_mtime > FORGOTTEN_S:
                    path.unlink()


def _read(path: Path) -> bytes | None:
    """Return the file's bytes; None for one of another kind or owner."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid in (os.getuid(), 0):
            return read_regular(path, max_bytes=call_ring.SIZE)
    return None
