"""Where the ranks of a running command are right now.

In: a run's folder. Out: a `StalledRank` for each, from two probes half a second apart. Processes
that imported torch but have not stepped yet have no rank. A run that has ended has no ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.core.codec import from_json
from steptime.core.store import read_document
from steptime.desync.recorded_calls import RankCalls
from steptime.errors import DamagedRunError
from steptime.measure.values.desync import PASSING, Desync
from steptime.measure.values.stall import StalledRank
from steptime.measure.wall.rank_progress import RankProgress, open_rank
from steptime.measure.wall.trainings import FoundTraining, trainings_in
from steptime.record import files, kinds
from steptime.record.lines import Line, kind_of, read_lines
from steptime.watch.stalls.call_files import explain_ranks, read_calls
from steptime.watch.stalls.process_stacks import ProcessProbe, probe_process
from steptime.watch.stalls.stack_summary import find_culprits, summarize_stack

BETWEEN_S = 0.5
"""Long enough to distinguish a process that computes from one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedRanks:
    """The ranks as they are, those that the others wait for, and how they lost each other."""

    ranks: tuple[StalledRank, ...] = ()
    culprits: tuple[int, ...] = ()
    desync: Desync | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToldProcess:
    pid: int


def probe_ranks(
    folder: Path,
    *,
    probe: Callable[[int], ProcessProbe] = probe_process,
    sleep: Callable[[float], None] = time.sleep,
    is_ours: Callable[[int, Path], bool] | None = None,
    training: int | None = None,
) -> ProbedRanks:
    """Return the ranks as they are now.

    Args:
        folder: of the run.
        probe: takes the stacks of one process.
        sleep: waits between the two probes.
        is_ours: whether a process belongs to the run, because process ids are reused.
        training: the number of the only training whose ranks are probed; None for all. Which rank
            the others wait for is not known where there are several trainings.
    """
    belongs = is_ours or belongs_to
    found_trainings = trainings_in(folder)
    ranks = [rank for rank in _read_ranks(folder) if belongs(rank.pid, folder)]
    if training is not None:
        members = {
            pid for one in found_trainings if one.training.number == training for pid in one.pids
        }
        ranks = [rank for rank in ranks if rank.pid in members]
        if not ranks:
            return ProbedRanks()
    stepped = {rank.pid for rank in ranks}
    others = [p for p in _torch_pids(folder) if p not in stepped and belongs(p, folder)]
    pids = [*(rank.pid for rank in ranks), *(others if not ranks else [])]
    before = {pid: probe(pid) for pid in pids}
    if not before:
        return ProbedRanks()
    cwd = _read_cwd(folder)
    calls_before = read_calls(folder, cwd=cwd)
    sleep(BETWEEN_S)
    found = []
    for pid in pids:
        progress = next((rank for rank in ranks if rank.pid == pid), None)
        found.append(_describe(pid, progress, before[pid], probe(pid), cwd))
    calls = read_calls(folder, cwd=cwd)
    found = [_place_in(found_trainings, _numbered(one, calls)) for one in found]
    if len({one.training for one in found}) > 1:
        return ProbedRanks(ranks=tuple(found))
    usual_s = min((rank.usual_s or 0.0 for rank in ranks), default=0.0)
    desync = explain_ranks(calls, found, gone=()) if calls == calls_before else None
    if desync is not None and desync.what in PASSING:
        desync = None  # a rank may be there, and the others wait for it, while all is well
    culprits = find_culprits(found, gone=(), usual_s=usual_s)
    return ProbedRanks(
        ranks=tuple(found),
        culprits=culprits if desync is None else desync.culprits,
        desync=desync,
    )


def _numbered(one: StalledRank, calls: Sequence[RankCalls]) -> StalledRank:
    """Return a process with the rank that its calls have, if it has not stepped yet."""
    if one.rank is not None:
        return one
    return replace(one, rank=next((c.rank for c in calls if c.pid == one.pid), None))


def _place_in(trainings: Sequence[FoundTraining], one: StalledRank) -> StalledRank:
    """Return a rank with the number of its training, if there are several."""
    own = next((found for found in trainings if one.pid in found.pids), None)
    if own is None or one.rank is None:
        return one
    number = None if own.training.is_alone else own.training.number
    return replace(one, rank=own.rank_of.get(one.pid, one.rank), training=number)


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
    found = read_document(folder / "command.json").get("cwd")
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
    ended = set(_pids_of(lines, kinds.EXIT))
    return [pid for pid in _pids_of(lines, kinds.TORCH) if pid not in ended]


def _pids_of(lines: Sequence[Line], kind: str) -> Iterator[int]:
    for line in lines:
        if kind_of(line) == kind:
            with suppress(DamagedRunError):
                yield from_json(_ToldProcess, line).pid


def belongs_to(pid: int, folder: Path) -> bool:
    """Return whether the process was started with this run's folder in its environment."""
    return run_folder_of(pid) == folder


def run_folder_of(pid: int) -> Path | None:
    """Return the folder of the run that started a process; None where no run did."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [word for word in words if word.startswith(b"STEPTIME_RUN=")]
    return Path(os.fsdecode(found[-1].partition(b"=")[2])) if found else None


def probe_alone(pid: int) -> StalledRank:
    """Return where a process is that belongs to no run."""
    before = probe_process(pid)
    time.sleep(BETWEEN_S)
    return _describe(pid, None, before, probe_process(pid), None)
