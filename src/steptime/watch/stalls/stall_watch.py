"""Watches a running command for stalls: no step for ten times the usual time.

In: the ranks' files as they grow, and probes of their processes. Out: lines of `stalls.jsonl`, one
for each stall, with where each rank is. Nothing is stopped, killed or printed, and no process is
probed while steps come. `watch.stack_summary` knows what a stack means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.desync.recorded_calls import RankCalls
from steptime.measure.values.desync import Desync
from steptime.measure.values.stall import Stall, StalledRank
from steptime.measure.wall.group_kin import group_kin
from steptime.measure.wall.rank_progress import RankProgress, open_rank
from steptime.measure.wall.stall_file import StallFile
from steptime.record.files import RANKS
from steptime.record.live.process_identity import descendants
from steptime.watch.stalls.call_files import explain_ranks, read_calls
from steptime.watch.stalls.process_stacks import ProcessProbe, probe_process
from steptime.watch.stalls.stack_summary import StackSummary, find_culprits, summarize_stack

TIMES = 10
"""A pause is a stall at this many times the usual step, or the longest span of its kind so far."""

FLOOR_S = 10.0
"""A shorter pause ends before anybody reads about it; it shows as an outlier among the steps."""

UNKNOWN_S = 300.0
"""For ranks that are still working, and for a first span: half of NCCL's ten-minute timeout."""

INTERVAL_S = 1.0
MAX_COST_FRACTION = 0.003
"""Of one core, to read what the ranks write: with many ranks it is read less often."""

PROBE_AGAIN_S = 2.0
"""Between the first two probes of the processes, which show whether they move."""

MAX_PROBE_AGAIN_S = 60.0
MAX_WORKERS = 4
"""Below a rank that waits for input, the stacks of this many processes are taken too."""


def _read_calls(folder: Path, cwd: str | None) -> Sequence[RankCalls]:
    return read_calls(folder, cwd=cwd)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReaders:
    """Where the numbers come from; tests pass their own.

    Attributes:
        clock_s: monotonic time [s].
        cost_s: CPU time of this process [s].
        unix_s: time of day [s].
        probe: takes the stacks of one process.
        children: returns the processes below one.
        calls: returns what the processes of a run called, from its folder and the command's.
    """

    clock_s: Callable[[], float] = time.monotonic
    cost_s: Callable[[], float] = time.process_time
    unix_s: Callable[[], float] = time.time
    probe: Callable[[int], ProcessProbe] = probe_process
    children: Callable[[int], Sequence[int]] = descendants
    calls: Callable[[Path, str | None], Sequence[RankCalls]] = _read_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A stall that is written and not over: its number, and how many updates each rank had."""

    number: int | None
    began_unix_s: float
    num_updates: Mapping[Path, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probes:
    """The processes at one moment, by their ids."""

    clock_s: float
    by_pid: Mapping[int, ProcessProbe]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenRank:
    """A rank, and what its process does."""

    rank: RankProgress
    summary: StackSummary


@dataclass(slots=True)
class _State:
    """What is known of the stalls of one training."""

    told: _Told | None = None
    last_probes: _Probes | None = None
    due_s: float = 0.0


class StallWatch:
    """Checks a run's folder each time `take` is called; each training stalls by itself."""

    def __init__(
        self, folder: Path, *, cwd: str | None, readers: WatchReaders | None = None
    ) -> None:
        self._folder = folder
        self._cwd = cwd
        self._readers = readers if readers is not None else WatchReaders()
        self._file = StallFile(folder)
        self.newest_desync: Desync | None = None
        self._ranks: dict[Path, RankProgress] = {}
        self._last_s: float | None = None
        self._interval_s = INTERVAL_S
        self._states: dict[Path, _State] = {}  # by the first process of the training
        self._groups: list[list[Path]] = []
        self._num_grouped = 0

    def take(self) -> float:
        """Check once; return the time until the next check [s].

        Raises:
            OSError: `stalls.jsonl` cannot be written.
        """
        now_s, before_s = self._readers.clock_s(), self._readers.cost_s()
        self._forgive(now_s)
        news = self._follow(now_s)
        spent_s = self._readers.cost_s() - before_s
        self._interval_s = max(INTERVAL_S, spent_s / MAX_COST_FRACTION)
        for paths in self._group():
            self._check(now_s, paths, has_news=not news.isdisjoint(paths))
        return self._interval_s

    def _check(self, now_s: float, paths: list[Path], *, has_news: bool) -> None:
        """Check one training."""
        key = next((path for path in paths if path in self._states), paths[0])
        state = self._states.setdefault(key, _State())
        if state.told is not None:
            self._close(state, state.told)
        if has_news:
            state.last_probes = None
        ranks = _latest(self._ranks[path] for path in paths)
        stuck = [r for r in ranks if not r.has_ended and now_s - r.seen_s > limit_s(r)]
        if not stuck:
            state.last_probes = None
        elif state.told is None and (state.last_probes is None or now_s >= state.due_s):
            self._examine(now_s, state, paths, stuck)
            self._last_s = self._readers.clock_s()  # many ranks take a while to probe

    def _forgive(self, now_s: float) -> None:
        """Subtract time in which we did not run either (Ctrl-Z, a suspended machine)."""
        late_s = 0.0 if self._last_s is None else now_s - self._last_s - self._interval_s
        if late_s > FLOOR_S / 2:
            for rank in self._ranks.values():
                rank.seen_s += late_s
        self._last_s = now_s

    def _follow(self, now_s: float) -> set[Path]:
        """Read what is new in every rank's file; return the files that had updates."""
        for path in self._folder.glob(RANKS):
            if path not in self._ranks and (rank := open_rank(path, now_s=now_s)) is not None:
                self._ranks[path] = rank
        return {path for path, rank in self._ranks.items() if rank.read(now_s)}

    def changed(self) -> list[str]:
        """Return the names of files that no longer hold what was read: the guest only appends."""
        return [path.name for path, rank in self._ranks.items() if rank.was_changed()]

    def newest(self) -> list[list[RankProgress]]:
        """Return each training, in the order of start: the latest process of each of its ranks."""
        return [_latest(self._ranks[path] for path in paths) for paths in self._group()]

    def _group(self) -> list[list[Path]]:
        """Return the files of each training that stepped, in the order of start."""
        stepped = [path for path, rank in self._ranks.items() if rank.num_updates]
        if len(stepped) != self._num_grouped:
            groups = group_kin([self._ranks[path].kin for path in stepped])
            self._groups = [[stepped[place] for place in group.all] for group in groups]
            self._num_grouped = len(stepped)
        return self._groups

    def _close(self, state: _State, told: _Told) -> None:
        """Close the stall once one of its ranks has stepped again."""
        for path, num_updates in told.num_updates.items():
            rank = self._ranks[path]
            # A rank that ends writes the last steps before the stall, which were not on disk.
            is_later = rank.last_unix_s - told.began_unix_s > FLOOR_S / 2
            if rank.num_updates > num_updates and is_later:
                state.told = state.last_probes = None
                if told.number is not None:
                    duration_s = max(0.0, rank.last_unix_s - told.began_unix_s)
                    self._file.close(told.number, duration_s=duration_s)
                return

    # -- probing the processes

    def _examine(
        self, now_s: float, state: _State, paths: list[Path], stuck: list[RankProgress]
    ) -> None:
        """Probe each process of a training; write the stall, or set when to probe again."""
        ranks = _latest(self._ranks[path] for path in paths)
        by_pid = {rank.pid: self._readers.probe(rank.pid) for rank in ranks}
        probes, before = _Probes(clock_s=now_s, by_pid=by_pid), state.last_probes
        state.last_probes = probes
        pause_s = max(now_s - rank.seen_s for rank in stuck)
        if before is None:
            state.due_s = now_s + PROBE_AGAIN_S
            return
        state.due_s = now_s + min(MAX_PROBE_AGAIN_S, max(PROBE_AGAIN_S, pause_s / 2))
        seen = [
            _SeenRank(rank=rank, summary=self._summarize(rank, probes, before)) for rank in ranks
        ]
        if any(one.summary.probe.kernel.state in ("T", "t") for one in seen):
            return  # somebody stopped it and knows about it
        # A process that is gone stalls nobody unless others stand still.
        alive = [one for one in seen if one.rank in stuck and not one.summary.probe.is_gone]
        deciders = [one for one in alive if one.summary.waits_in != "collective"] or alive
        if deciders and pause_s > max(map(_patience_s, deciders)):
            self._tell(state, paths, seen, stuck)

    def _summarize(self, rank: RankProgress, probes: _Probes, before: _Probes) -> StackSummary:
        return summarize_stack(
            probes.by_pid[rank.pid],
            before.by_pid.get(rank.pid),
            dt_s=probes.clock_s - before.clock_s,
            cwd=self._cwd,
            world_size=rank.world_size,
            evaluations=rank.evaluations,
        )

    def _tell(
        self,
        state: _State,
        paths: list[Path],
        seen: list[_SeenRank],
        stuck: list[RankProgress],
    ) -> None:
        usual_s = min(rank.usual_s or 0.0 for rank in stuck)
        ranks = tuple(self._describe(one.rank, one.summary) for one in seen)
        calls = self._readers.calls(self._folder, self._cwd)
        gone = [one.rank.rank for one in seen if one.summary.probe.is_gone or one.rank.has_ended]
        began_unix_s = min(rank.last_unix_s for rank in stuck)
        desync = explain_ranks(calls, ranks, gone=gone)
        stall = Stall(
            began_unix_s=round(began_unix_s, 3),
            seen_unix_s=round(self._readers.unix_s(), 3),
            usual_step_s=usual_s,
            limit_s=max(limit_s(rank) for rank in stuck),
            ranks=ranks,
            culprits=find_culprits(ranks, gone=gone, usual_s=usual_s)
            if desync is None
            else desync.culprits,
            desync=desync,
        )
        self.newest_desync = desync or self.newest_desync
        counts = {path: self._ranks[path].num_updates for path in paths}
        # Set before it is written, so that a full disk is reported once and not each second.
        state.told = _Told(number=None, began_unix_s=began_unix_s, num_updates=counts)
        state.told = replace(state.told, number=self._file.add(stall))

    def _describe(self, rank: RankProgress, summary: StackSummary) -> StalledRank:
        """Return a rank with its stacks, and with its loader workers' if it waits for input."""
        stacks = list(summary.probe.threads)
        if summary.waits_in == "input":
            for pid in self._readers.children(rank.pid)[:MAX_WORKERS]:
                stacks += [t for t in self._readers.probe(pid).threads if t.frames and t.is_main]
        return StalledRank(
            rank=rank.rank,
            pid=rank.pid,
            num_steps=rank.num_updates,
            waits_in=summary.waits_in,
            where=summary.where,
            stacks=tuple(stacks),
        )


def _latest(ranks: Iterable[RankProgress]) -> list[RankProgress]:
    """Return the latest process of each rank: a launcher may have restarted it."""
    found: dict[int, RankProgress] = {}
    for rank in sorted(ranks, key=lambda one: one.began_unix_s):
        found[rank.rank] = rank
    return [found[number] for number in sorted(found)]


def limit_s(rank: RankProgress) -> float:
    """Return the pause after which a rank's process is probed [s]."""
    return max(FLOOR_S, TIMES * (rank.usual_s or 0.0))


def _patience_s(one: _SeenRank) -> float:
    """Return the pause after which a rank in this state has stalled [s]."""
    limit, summary = limit_s(one.rank), one.summary
    if summary.span is not None:
        longest_s = one.rank.longest_s.get(summary.span)
        return max(limit, UNKNOWN_S if longest_s is None else TIMES * longest_s)
    return limit if summary.is_still else max(limit, UNKNOWN_S)
