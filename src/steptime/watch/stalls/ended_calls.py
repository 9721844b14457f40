"""What the records of collectives say once the command has ended, and their removal.

Ranks that lose each other may not stand still: where sizes differ, gloo ends one of them, and where
one leaves, the others fail because it is gone. Their records are still there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from steptime.desync.find_desync import (
    COLLECTIVE,
    RankPlace,
    find_desync,
    find_differing_calls,
)
from steptime.desync.recorded_calls import RankCalls, short_name
from steptime.measure.fold.jsonl import take_all
from steptime.measure.fold.run_records import ProcessExit
from steptime.measure.values.desync import PASSING, Desync
from steptime.measure.wall.stall_file import EndedDesync, StallFile, read_stalls
from steptime.record import files, kinds
from steptime.record.lines import Torn, read_lines
from steptime.watch.stalls.call_files import files_of, read_calls, remove_forgotten
from steptime.watch.stalls.process_stacks import read_kernel

_LOST = "onnection"
"""In the message of a backward call that failed because another rank is gone."""


def conclude_calls(folder: Path, *, cwd: str | None, has_failed: bool) -> None:
    """Write how the ranks of a run that failed had lost each other; remove their records.

    A stall may have said so already. The records of processes that go on are kept.

    Raises:
        OSError: it cannot be written.
    """
    try:
        if has_failed and folder.is_dir() and any(True for _ in files_of(folder)):
            _write(folder, cwd)
    finally:
        for path, pid in files_of(folder):
            if read_kernel(pid).state in (None, "Z"):
                path.unlink(missing_ok=True)
        remove_forgotten(time.time())


def _write(folder: Path, cwd: str | None) -> None:
    told = [stall.desync for stall in read_stalls(folder, Torn()) if stall.desync is not None]
    if told and told[-1].what not in PASSING:
        return
    calls = read_calls(folder, cwd=cwd)
    exits = take_all(ProcessExit, read_lines(folder / files.PROCESSES), (kinds.EXIT,), Torn())
    found = explain_end(calls, {one.pid: one for one in exits}, cwd=cwd)
    if found is not None and not (told and _is_same(found, told[-1])):
        pids = tuple(one.pid for one in calls)
        StallFile(folder).add_desync(EndedDesync(pids=pids, desync=found))


def _is_same(found: Desync, told: Desync) -> bool:
    """Return whether a rank is gone from where a stall found it: somebody ended the command."""
    is_there = (found.culprits, found.last) == (told.culprits, told.last)
    return found.what == "left" and is_there


def explain_end(
    calls: Sequence[RankCalls], exits: Mapping[int, ProcessExit], *, cwd: str | None
) -> Desync | None:
    """Return how ranks that have ended had lost each other.

    Args:
        calls: the records of all processes of the run.
        exits: what processes wrote when they ended in order, by their ids.
        cwd: the command's folder, for short names of files.
    """
    ranks = [one.rank for one in calls]
    if len(set(ranks)) < len(ranks):
        return None  # several trainings or starts in one command
    if any(call.is_open for one in calls for call in one.calls):
        found = find_differing_calls(calls)
        if found is not None:
            return found
    waited = [p for one in calls if (p := _waited(one, exits.get(one.pid), cwd)) is not None]
    left = [
        RankPlace(rank=one.rank, is_gone=True)
        for one in calls
        if one.open_call is None and ((end := exits.get(one.pid)) is None or end.error is None)
    ]
    return find_desync(calls, [*waited, *left]) if waited and left else None


def _waited(one: RankCalls, end: ProcessExit | None, cwd: str | None) -> RankPlace | None:
    """Return where a rank failed in a collective, because others were gone."""
    error = None if end is None else end.error
    if error is None or error.phase not in ("communication", "backward"):
        return None
    in_backward = error.phase == "backward"
    if in_backward and _LOST not in error.text:
        return None
    where = None if error.file is None else f"{short_name(error.file, cwd)}:{error.line}"
    return RankPlace(rank=one.rank, waits_in=COLLECTIVE, where=where, in_backward=in_backward)
