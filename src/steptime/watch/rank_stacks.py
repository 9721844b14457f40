"""Where the ranks of a running command are right now.

In: a run's folder. Out: a `StalledRank` for each, from two probes half a second apart. Processes
that imported torch but have not stepped yet have no rank. A run that has ended has no ranks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from steptime.measure.values.stall import StalledRank
from steptime.record import files, kinds
from steptime.record.lines import kind_of, read_lines
from steptime.watch.process_stacks import ProcessProbe, probe_process
from steptime.watch.rank_progress import RankProgress, open_rank
from steptime.watch.stack_summary import find_culprits, summarize_stack

BETWEEN_S = 0.5
"""Long enough to distinguish a process that computes from one that waits."""


def probe_ranks(
    folder: Path,
    *,
    probe: Callable[[int], ProcessProbe] = probe_process,
    sleep: Callable[[float], None] = time.sleep,
    is_ours: Callable[[int, Path], bool] | None = None,
) -> tuple[tuple[StalledRank, ...], tuple[int, ...]]:
    """Return the ranks as they are now, and those that the others wait for.

    Args:
        folder: of the run.
        probe: takes the stacks of one process.
        sleep: waits between the two probes.
        is_ours: whether a process belongs to the run, because process ids are reused.
    """
    belongs = is_ours or belongs_to
    ranks = [rank for rank in _read_ranks(folder) if belongs(rank.pid, folder)]
    stepped = {rank.pid for rank in ranks}
    others = [p for p in _torch_pids(folder) if p not in stepped and belongs(p, folder)]
    pids = [*(rank.pid for rank in ranks), *(others if not ranks else [])]
    before = {pid: probe(pid) for pid in pids}
    if not before:
        return (), ()
    sleep(BETWEEN_S)
    cwd = _read_cwd(folder)
    found = []
    for pid in pids:
        progress = next((rank for rank in ranks if rank.pid == pid), None)
        found.append(_describe(pid, progress, before[pid], probe(pid), cwd))
    usual_s = min((rank.usual_s or 0.0 for rank in ranks), default=0.0)
    return tuple(found), find_culprits(found, gone=(), usual_s=usual_s)


def _describe(
    pid: int,
    progress: RankProgress | None,
    before: ProcessProbe,
    now: ProcessProbe,
    cwd: str | None,
) -> StalledRank:
    world_size = 1 if progress is None else progress.world_size
    summary = summarize_stack(now, before, dt_s=BETWEEN_S, cwd=cwd, world_size=world_size)
    return StalledRank(
        rank=None if progress is None else progress.rank,
        pid=pid,
        num_steps=0 if progress is None else progress.num_updates,
        waits_in=summary.waits_in,
        where=summary.where,
        stacks=now.threads,
    )


def _read_cwd(folder: Path) -> str | None:
    """Return the folder of the command, for short file names."""
    try:
        found = json.loads((folder / "command.json").read_bytes())["cwd"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _read_ranks(folder: Path) -> list[RankProgress]:
    found = []
    for path in sorted(folder.glob(files.RANKS)):
        with suppress(OSError):
            rank = open_rank(path, now_s=0.0)
            if rank is not None:
                rank.read(0.0)
                found.append(rank)
    return sorted((r for r in found if not r.has_ended), key=lambda r: (r.rank, r.pid))


def _torch_pids(folder: Path) -> list[int]:
    """Return the processes that imported torch and have not said that they end."""
    lines = list(read_lines(folder / files.PROCESSES))
    ended = {line.get("pid") for line in lines if kind_of(line) == kinds.EXIT}
    pids = [line.get("pid") for line in lines if kind_of(line) == kinds.TORCH]
    return [pid for pid in pids if isinstance(pid, int) and pid not in ended]


def belongs_to(pid: int, folder: Path) -> bool:
    """Return whether the process was started with this run's folder in its environment."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"STEPTIME_RUN=" + os.fsencode(folder) in words
