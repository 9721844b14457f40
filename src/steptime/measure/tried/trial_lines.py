"""Reads what a trial's guest wrote beside its updates: blocks of live states, levers, facts.

In: lines of rank-N.jsonl, as they come (docs/internals/study-folder.md). Out: frozen values. For a
running trial, make one `RankLines` per rank's file and `take` each new line, for example from
`record.lines`. When `experiment_end` says that the experiment is over, call `join_ranks` with the
ranks' `blocks`, and `log_ratios` with the result for each state except the reference. For a folder
at rest, `read_trial` makes the `RankLines`. `tune` interprets the ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from steptime.core.codec import from_json
from steptime.core.stats import median
from steptime.errors import DamagedRunError
from steptime.measure.values.measurement import SPANS
from steptime.record import files, kinds, rows
from steptime.record.lines import Line, kind_of, read_lines
from steptime.record.places import DISTURBED as DISTURBED_ROW
from steptime.record.rows import Layout, TagRow, UpdateRow

NS = 1e-9

COMPILED = "compiled"
DISTURBED = "disturbed"
FELL_BACK = "fell_back"
RANKS_DIFFER = "ranks_differ"
TIMES_MISSING = "times_missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedUpdate:
    """One update of a trial: the state in which it was made, and its time without spans [ns].

    `num_samples` is None where no size was seen; the times are None where their line was lost.
    Before one that `is_after_gap` an epoch ended, or an evaluation longer than a step was made, or
    one of more batches than two steps draw.
    What comes before an optimizer was seen `is_early`, and no update.
    """

    number: int
    experiment: int
    round: int
    state: int
    counts: bool
    num_samples: int | None
    wall_ns: int | None
    cpu_ns: int | None
    compile_ns: int = 0
    is_disturbed: bool = False
    end_ns: int | None = None
    is_after_gap: bool = False
    is_early: bool = False

    @property
    def place(self) -> tuple[int, int, int]:
        """Return experiment, round and state."""
        return self.experiment, self.round, self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime:
    """The counted updates of one state in one round from `first_number` on, of one rank or all.

    Over all ranks, `wall_s` is the longest and `cpu_s` the sum. `void` says why the block does not
    count, as a machine word: `compiled`, `disturbed` (by our probe), `fell_back` (torch.compile
    fell back to eager in this state), `ranks_differ`, `times_missing`.
    """

    experiment: int
    round: int
    state: int
    first_number: int
    num_updates: int
    num_samples: int | None
    wall_s: float
    cpu_s: float
    void: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverLine:
    """A lever was applied, or why not; `state` is None for a lever of the plan itself."""

    n: int
    name: str
    settings: Mapping[str, str | int | float | bool]
    state: int | None = None
    error: str | None = None
    experiment: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentEnd:
    """An experiment is over; graphs and fallbacks of torch.compile count from the start."""

    experiment: int
    n: int
    graphs: int = 0
    fallbacks: int = 0
    fallen_states: tuple[int, ...] = ()
    is_finite: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialHead:
    rank: int
    buckets: tuple[str, ...]
    counts: tuple[str, ...]
    pid: int | None = None


class _Time(NamedTuple):
    """An update's time without spans, its spans without compiling, and compiling alone [ns]."""

    thread: int
    wall_ns: int
    cpu_ns: int
    compile_ns: int
    is_disturbed: bool
    between_ns: int
    end_ns: int
    is_after_gap: bool
    num_batches: int
    is_early: bool


class RankLines:
    """The lines of one rank's file so far, one by one; it ignores lines that are not a trial's."""

    def __init__(self) -> None:
        self.rank = 0
        self.pid: int | None = None
        self.facts: Mapping[str, Any] = {}
        """Fields of levers.base.Facts that the guest saw, and `sample_unit`; empty until then."""
        self.counts: Mapping[str, int] = {}
        """What levers counted so far, as `lever:what`; the last line counts."""
        self._layout = Layout((), ())
        self._tags: dict[int, TagRow] = {}
        self._times: dict[int, _Time] = {}
        self._levers: list[LeverLine] = []
        self._ends: dict[int, ExperimentEnd] = {}

    def take(self, line: Line) -> None:
        """Take a line in.

        Raises:
            DamagedRunError: it has another shape than its `k` promises.
        """
        take = _TAKE.get(kind_of(line))
        if take is None:
            return
        try:
            take(self, line)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DamagedRunError(f"a line `{kind_of(line)}` of another shape: {error}") from error

    def _take_head(self, line: Line) -> None:
        head = from_json(_TrialHead, line)
        self.rank, self._layout = head.rank, Layout(head.buckets, head.counts)
        self.pid = head.pid

    def _take_tags(self, line: Line) -> None:
        self._tags.update((tag.number, tag) for tag in rows.tags(line))

    def _take_updates(self, line: Line) -> None:
        self._times.update((row.number, self._time(row)) for row in self._layout.updates(line))

    def _take_lever(self, line: Line) -> None:
        self._levers.append(from_json(LeverLine, line))

    def _take_experiment(self, line: Line) -> None:
        end = from_json(ExperimentEnd, line)
        self._ends[end.experiment] = end

    def _take_facts(self, line: Line) -> None:
        self.facts = dict(rows.field(line, "facts"))

    def _take_counts(self, line: Line) -> None:
        counts = rows.field(line, "counts")
        self.counts = {str(name): int(count) for name, count in counts.items()}

    def _time(self, row: UpdateRow) -> _Time:
        buckets = self._layout.buckets
        steps = [place for place, name in enumerate(buckets) if name not in SPANS]
        compile_ns = sum(row.wall_ns[i] for i, name in enumerate(buckets) if name == "compile")
        wall_ns = sum(row.wall_ns[place] for place in steps)
        between_ns = sum(row.wall_ns[: len(buckets)]) - wall_ns - compile_ns
        is_start = any(row.wall_ns[i] for i, name in enumerate(buckets) if name == "epoch_start")
        return _Time(
            thread=row.thread,
            wall_ns=wall_ns,
            cpu_ns=sum(row.cpu_ns[place] for place in steps),
            compile_ns=compile_ns,
            is_disturbed=row.detail == DISTURBED_ROW,
            between_ns=between_ns,
            end_ns=row.end_ns,
            is_after_gap=is_start or between_ns > wall_ns,
            num_batches=batches_of(self._layout, row),
            is_early=row.optimizer < 0,
        )

    @property
    def num_updates(self) -> int:
        """Return how many updates were reported."""
        return len(self._tags)

    @property
    def levers(self) -> tuple[LeverLine, ...]:
        """Return the levers that were applied, and those that failed."""
        return tuple(self._levers)

    def between_s(self, *, with_gaps: bool = True) -> float | None:
        """Return the mean time from update to update that is no step's: evaluations, checkpoints.

        The first update is left out, for it has no beginning, and so are those after a gap unless
        `with_gaps`; None where there is no other.
        """
        own = [time for n, time in sorted(self._times.items()) if time.thread == 0][1:]
        most = most_batches(time.num_batches for time in own)
        own = [it for it in own if with_gaps or not (it.is_after_gap or it.num_batches > most)]
        return sum(time.between_ns for time in own) * NS / len(own) if own else None

    def experiment_end(self, experiment: int) -> ExperimentEnd | None:
        """Return how an experiment ended; None while it has not."""
        return self._ends.get(experiment)

    def updates(self, experiment: int | None = None) -> tuple[TaggedUpdate, ...]:
        """Return the updates in order, of the first thread: all, or those of one experiment."""
        most = most_batches(time.num_batches for time in self._times.values())
        return tuple(
            _tagged(tag, self._times.get(number), most)
            for number, tag in sorted(self._tags.items())
            if (experiment is None or tag.experiment == experiment)
            and (number not in self._times or self._times[number].thread == 0)
        )

    def blocks(self, experiment: int) -> tuple[BlockTime, ...]:
        """Return the blocks of an experiment that are over."""
        end = self._ends.get(experiment)
        blocks = fold_blocks(self.updates(experiment), is_over=end is not None)
        fallen = end.fallen_states if end is not None else ()
        return tuple(
            replace(block, void=FELL_BACK) if block.state in fallen else block for block in blocks
        )


_TAKE: Mapping[str, Callable[[RankLines, Line], None]] = {
    kinds.HEAD: RankLines._take_head,
    kinds.TAGS: RankLines._take_tags,
    kinds.UPDATES: RankLines._take_updates,
    kinds.LEVER: RankLines._take_lever,
    kinds.EXPERIMENT: RankLines._take_experiment,
    kinds.FACTS: RankLines._take_facts,
    kinds.LEVER_COUNTS: RankLines._take_counts,
}


def batches_of(layout: Layout, row: UpdateRow) -> int:
    """Return how many batches were drawn before an update; 0 where that was not counted."""
    return row.counts[layout.counts.index("batches")] if "batches" in layout.counts else 0


def most_batches(nums: Iterable[int]) -> float:
    """Return how many batches an update draws at most: an evaluation before it draws more."""
    return 2 * median(list(nums) or [0]) + 1


def _tagged(tag: TagRow, time: _Time | None, most: float) -> TaggedUpdate:
    return TaggedUpdate(
        number=tag.number,
        experiment=tag.experiment,
        round=tag.round,
        state=tag.state,
        counts=tag.counts > 0,
        num_samples=None if tag.num_samples < 0 else tag.num_samples,
        wall_ns=None if time is None else time.wall_ns,
        cpu_ns=None if time is None else time.cpu_ns,
        compile_ns=0 if time is None else time.compile_ns,
        is_disturbed=time is not None and time.is_disturbed,
        end_ns=None if time is None else time.end_ns,
        is_after_gap=time is not None and (time.is_after_gap or time.num_batches > most),
        is_early=time is not None and time.is_early,
    )


def read_trial(folder: Path, pids: Container[int] | None = None) -> tuple[RankLines, ...]:
    """Return a trial's ranks in order; of a rank's processes, the one with the most updates.

    Args:
        folder: of the trial.
        pids: the only processes that count; None for all.
    """
    best: dict[int, RankLines] = {}
    for path in sorted(folder.glob(files.RANKS)):
        found = RankLines()
        for line in read_lines(path):
            try:
                found.take(line)
            except DamagedRunError:
                continue
        if pids is not None and found.pid not in pids:
            continue
        known = best.get(found.rank)
        if known is None or found.num_updates > known.num_updates:
            best[found.rank] = found
    return tuple(best[rank] for rank in sorted(best))


# -- blocks


def fold_blocks(updates: Sequence[TaggedUpdate], *, is_over: bool) -> tuple[BlockTime, ...]:
    """Return the blocks of one rank's updates of one experiment, in the order in which they ran.

    A block that began again (its step's optimizers changed their order) counts from there on. The
    last block is left out unless the experiment `is_over`: it may still grow.
    """
    runs = [list(run) for _, run in groupby(updates, key=lambda one: (one.place, one.counts))]
    blocks: dict[tuple[int, int, int], BlockTime] = {}
    for index, run in enumerate(runs):
        if not run[0].counts:
            blocks.pop(run[0].place, None)  # begun again
        elif is_over or index + 1 < len(runs):
            blocks[run[0].place] = _block(run)
    return tuple(blocks.values())


def _block(run: Sequence[TaggedUpdate]) -> BlockTime:
    void = None
    if any(one.wall_ns is None for one in run):
        void = TIMES_MISSING
    elif any(one.compile_ns for one in run):
        void = COMPILED
    elif any(one.is_disturbed for one in run):
        void = DISTURBED
    samples = [one.num_samples for one in run if one.num_samples is not None]
    return BlockTime(
        experiment=run[0].experiment,
        round=run[0].round,
        state=run[0].state,
        first_number=run[0].number,
        num_updates=len(run),
        num_samples=sum(samples) if samples else None,
        wall_s=sum(one.wall_ns or 0 for one in run) * NS,
        cpu_s=sum(one.cpu_ns or 0 for one in run) * NS,
        void=void,
    )


def join_ranks(ranks: Sequence[Sequence[BlockTime]]) -> tuple[BlockTime, ...]:
    """Return the blocks of all ranks together, in the order of the first rank.

    A block is void unless it ran in the same updates on all ranks. A block that some rank has not
    finished, or never began, is left out.
    """
    if not ranks:
        return ()
    by_place = [{(one.round, one.state): one for one in blocks} for blocks in ranks]
    return tuple(
        _join([blocks[place] for blocks in by_place])
        for place in by_place[0]
        if all(place in blocks for blocks in by_place)
    )


def _join(blocks: Sequence[BlockTime]) -> BlockTime:
    first = blocks[0]
    void = next((block.void for block in blocks if block.void is not None), None)
    spans = {(one.first_number, one.num_updates) for one in blocks}
    samples = [one.num_samples for one in blocks if one.num_samples is not None]
    return replace(
        first,
        num_samples=sum(samples) if len(samples) == len(blocks) else None,
        wall_s=max(one.wall_s for one in blocks),
        cpu_s=sum(one.cpu_s for one in blocks),
        void=RANKS_DIFFER if len(spans) > 1 else void,
    )


# -- ratios


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """One log(reference time per sample / the state's own) per round; `num_void` have none.

    The times are per update where `is_per_sample` is false: then some batch's size was not seen.
    `loop` is of wall time with what lies between the steps; it is empty where that is not known.
    """

    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    num_void: int
    is_per_sample: bool
    loop: tuple[float, ...] = ()


def log_ratios(
    blocks: Iterable[BlockTime], *, state: int, reference: int = 0, between_s: float | None = None
) -> Ratios:
    """Return a state's ratios to the reference, over rounds in which both blocks count.

    `between_s` is what a process spends between two updates, whatever state is on: an evaluation
    now and then falls into the block of any of them.
    """
    by_round: dict[int, dict[int, BlockTime]] = {}
    for block in blocks:
        if block.state in (state, reference):
            by_round.setdefault(block.round, {})[block.state] = block
    pairs = [(r[reference], r[state]) for r in by_round.values() if {reference, state} <= set(r)]
    good = [pair for pair in pairs if all(block.void is None for block in pair)]
    is_per_sample = all(block.num_samples for pair in good for block in pair)
    wall, cpu, loop = [], [], []
    for base, own in good:
        scale = _unit(own, is_per_sample=is_per_sample) / _unit(base, is_per_sample=is_per_sample)
        if min(base.wall_s, own.wall_s) > 0:
            wall.append(math.log(base.wall_s / own.wall_s * scale))
            if between_s is not None:
                whole = [one.wall_s + between_s * one.num_updates for one in (base, own)]
                loop.append(math.log(whole[0] / whole[1] * scale))
        if min(base.cpu_s, own.cpu_s) > 0:
            cpu.append(math.log(base.cpu_s / own.cpu_s * scale))
    return Ratios(
        wall=tuple(wall),
        cpu=tuple(cpu),
        num_void=len(by_round) - len(good),
        is_per_sample=is_per_sample,
        loop=tuple(loop),
    )


def _unit(block: BlockTime, *, is_per_sample: bool) -> float:
    return float(block.num_samples or 0) if is_per_sample else float(block.num_updates)
