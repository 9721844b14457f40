"""Divides the whole time of a run: which of it trained, and what went on beside the steps.

In: a folded rank, the records of its processes, and what its numbers were worth. Out: a `WallTime`,
whose parts sum to the whole. What the record does not tell apart stays with the part after it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from steptime.measure.values.measurement import INNER_PHASES, SPANS
from steptime.measure.values.model.health import Health
from steptime.measure.values.wall_time import USEFUL, WALL_PARTS, WallPart, WallTime
from steptime.measure.wall.checkpoint_parts import sum_checkpoints
from steptime.record.places import NS

if TYPE_CHECKING:
    from steptime.measure.fold.code_places import CodePlaces
    from steptime.measure.fold.rank_fold import FoldedRank
    from steptime.measure.fold.run_records import RunRecords
    from steptime.measure.steps.step_fold import RankSteps
    from steptime.measure.values.stall import Stall
    from steptime.measure.values.training_values import CommandTraining
    from steptime.record.rows import StartUpRow

_SOON_S = 1.0
"""Two clocks of one machine, read in two processes, agree to this."""

_NOTHING_S = 1e-6
"""What rounding leaves between two clocks is no part."""

IMPORTS = "imports"

Moment = tuple[str, float | None]
"""What ends at a moment, and when [s since 1970]; None where the record does not say."""


def find_wall_time(
    folded: FoldedRank,
    records: RunRecords,
    *,
    duration_s: float | None,
    health: Health | None,
    places: CodePlaces,
) -> WallTime | None:
    """Return the whole time of a rank's run by parts; None where its steps have no times.

    Args:
        folded: the rank with the most updates.
        records: what the run's folder holds.
        duration_s: wall time of the command, or None while it is not known.
        health: what the losses say; updates while they were not finite trained nothing.
        places: names lines of the script.
    """
    rank = folded.steps
    if not rank.num_steps:
        return None
    moments = _moments(rank, records, duration_s)
    times_s = dict(_between(moments))
    _name_start(times_s, rank)
    loop_s = times_s.pop(_LOOP, 0.0)
    for name, value_s in chain(_in_loop(folded, loop_s, records.stalls, health), _tail(rank)):
        times_s[name] = times_s.get(name, 0.0) + value_s
    tail_s = math.fsum(value_s for _, value_s in _tail(rank))
    left = "after_steps" if "after_steps" in times_s else "exit"
    times_s[left] = max(0.0, times_s.get(left, 0.0) - tail_s)
    facts = _facts(rank, health, places)
    parts = tuple(
        WallPart(name=name, total_s=times_s[name], num=facts[name][0], where=facts[name][1])
        for name in WALL_PARTS
        if times_s.get(name, 0.0) > _NOTHING_S or name == USEFUL
    )
    ended = [when for name, when in moments if name in ("after_steps", "exit")]
    return WallTime(
        total_s=math.fsum(part.total_s for part in parts),
        parts=parts,
        is_open=all(when is None for when in ended),
        checkpoints=sum_checkpoints(folded),
        energy_j=records.host.energy_j if _is_alone(records) else None,
    )


# -- the stretches around the steps

_BEGIN, _LOOP = "begin", "loop"


def _moments(rank: RankSteps, records: RunRecords, duration_s: float | None) -> list[Moment]:
    """Return what ends when, in order; of one of several trainings, its process alone."""
    zero_s, pid = rank.head.t_unix_s, rank.head.pid
    first_s, last_s = (zero_s + value_s for value_s in _loop_of(rank))
    python_s = _latest((s.t for s in records.starts if s.pid == pid), zero_s + _SOON_S)
    torch_s = _latest((t.t for t in records.torches if t.pid == pid), first_s + _SOON_S)
    exits = (e.t for e in records.exits if e.pid == pid)
    left_s = _latest((t for t in exits if t is not None and t >= last_s - _SOON_S), math.inf)
    if left_s is None and rank.end is not None and rank.end.t is not None:
        left_s = zero_s + rank.end.t * NS
    is_alone = _is_alone(records)
    began_s, ended_s = python_s, None
    if is_alone:
        began_s = records.command.started_unix_s
        ended_s = None if duration_s is None else began_s + duration_s
    return [
        (_BEGIN, began_s),
        *(_until_python(records.training, python_s) if is_alone else ()),
        ("imports", torch_s),
        ("setup", first_s),
        (_LOOP, last_s),
        ("after_steps", left_s),
        ("exit", ended_s),
    ]


def _until_python(training: CommandTraining | None, python_s: float | None) -> list[Moment]:
    """Return when the first process began, and when the measured one did, if it came later."""
    if training is None or not training.num_restarts or python_s is None:
        return [("interpreter", python_s)]
    return [("interpreter", training.started_unix_s), ("earlier_starts", python_s)]


def _is_alone(records: RunRecords) -> bool:
    return records.training is None or records.training.is_alone


def _loop_of(rank: RankSteps) -> tuple[float, float]:
    """Return when the first step began and the last one ended, on the clock of the head [s]."""
    begins = [block.start_s for block in rank.blocks]
    ends = [block.end_s for block in rank.blocks]
    if rank.steps:
        begins.append(rank.steps.begin_s(0))
        ends.append(rank.steps.end_s[-1])
    return min(begins), max(ends)


def _latest(times: Iterable[float | None], until: float) -> float | None:
    """Return the last of these times that is not later; a process id may be used twice."""
    return max((t for t in times if t is not None and t <= until), default=None)


def _between(moments: Sequence[Moment]) -> Iterable[tuple[str, float]]:
    """Return the stretch before each moment that is known."""
    before: float | None = None
    for name, when in moments:
        if when is None:
            continue
        if before is not None:
            yield name, max(0.0, when - before)
        before = when if before is None else max(before, when)


def _name_start(times_s: dict[str, float], rank: RankSteps) -> None:
    """Divide what came before the first step by what the script did, as far as the guest saw it."""
    if not rank.signals.start_up:
        return
    left_s = times_s.pop(IMPORTS, 0.0) + times_s.pop("setup", 0.0)
    for name, value_s in _stretches(rank, -math.inf, min(_loop_of(rank))):
        times_s[name] = min(left_s, value_s)
        left_s -= times_s[name]
    times_s["setup"] = left_s


def _stretches(rank: RankSteps, since_s: float, until_s: float) -> list[tuple[str, float]]:
    """Return how long the script did what in a stretch [s]; an import inside is an import."""
    rows = rank.signals.start_up
    imports = [row for row in rows if row.what == IMPORTS]
    found = []
    for name in (IMPORTS, "loading", "model", "data_set"):
        own = [row for row in rows if row.what == name]
        value_s = sum(_length_s(since_s, until_s, row) for row in own)
        if name != IMPORTS:
            value_s -= sum(_length_s(since_s, until_s, a, b) for a in own for b in imports)
        found.append((name, max(0.0, value_s)))
    return found


def _length_s(since_s: float, until_s: float, *rows: StartUpRow) -> float:
    """Return how long these rows lie over each other within a stretch [s]."""
    begin_s = max(since_s, *(row.begin_ns * NS for row in rows))
    return max(0.0, min(until_s, *(row.end_ns * NS for row in rows)) - begin_s)


# -- the stretch of the steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """The times of all steps, without spans [s], and the time of a usual one.

    `beside_neighbor` are steps that other programs made longer: they trained all the same.
    """

    times_s: Sequence[float]
    usual_s: float | None
    first: int
    beside_neighbor: Collection[int]

    @property
    def total_s(self) -> float:
        """Return the time of all steps [s]."""
        return math.fsum(self.times_s)


def _in_loop(
    folded: FoldedRank, loop_s: float, stalls: Sequence[Stall], health: Health | None
) -> list[tuple[str, float]]:
    """Return the parts between the first step's beginning and the last one's end."""
    rank, steady = folded.steps, folded.window.steady
    blocks = chain.from_iterable(block.times_s for block in rank.blocks)
    loop = _Loop(
        times_s=[*rank.steps.times_s, *blocks],
        usual_s=steady.mean_s if steady.num_steps else None,
        first=steady.first_step,
        beside_neighbor=folded.series.beside_neighbor,
    )
    waited_s, started_s = _first_batch(rank)
    late = _late_start(rank, waited_s)
    found = [("first_batch", waited_s + started_s), *late]
    waited_s += math.fsum(value_s for _, value_s in late)
    found += [(name, _span_s(rank, name)) for name in SPANS]
    found += [("epoch_start", -started_s)]
    lost = [
        ("warmup", _warmup_s(loop, waited_s)),
        ("stalled", _stalled_s(loop, rank, stalls)),
    ]
    rest_s = max(0.0, loop.total_s - waited_s - math.fsum(value_s for _, value_s in lost))
    logged_s = min(rest_s, sum(row.total_ns for row in rank.signals.logging) * NS)
    lost += [("logging", logged_s), *_worthless(rank, health, rest_s - logged_s)]
    spans_s = math.fsum(_span_s(rank, name) for name in SPANS)
    trained_s = loop.total_s - waited_s - math.fsum(value_s for _, value_s in lost)
    unseen_s = loop_s - loop.total_s - spans_s
    return [*found, *lost, (USEFUL, max(0.0, trained_s)), ("unseen", max(0.0, unseen_s))]


def _span_s(rank: RankSteps, name: str) -> float:
    """Return the time of a span up to the last update [s]."""
    return math.fsum((*rank.steps.span(name), *(block.spans_s[name] for block in rank.blocks)))


def _first_batch(rank: RankSteps) -> tuple[float, float]:
    """Return how long the first step waited for its batches, and for its workers [s]."""
    if not rank.steps:
        return 0.0, 0.0
    names = [name for name in ("input_wait", *INNER_PHASES) if name in rank.steps.wall_s]
    waited_s = math.fsum(rank.steps.wall_s[name][0] for name in names)
    return waited_s, rank.steps.span("epoch_start")[0]


def _late_start(rank: RankSteps, waited_s: float) -> list[tuple[str, float]]:
    """Return what the first step did that belongs to the start [s].

    It may import dynamo with its optimizer; and where a script evaluates before it loads a
    checkpoint, its first step begins with that. Where it compiled, imports are in that time.
    """
    if not rank.steps or not rank.signals.start_up:
        return []
    left_s = max(0.0, rank.steps.times_s[0] - waited_s)
    compiled = rank.steps.span("compile")[0] > 0
    found = []
    for name, value_s in _stretches(rank, rank.steps.begin_s(0), rank.steps.end_s[0]):
        taken_s = 0.0 if compiled and name == IMPORTS else min(left_s, value_s)
        left_s -= taken_s
        found.append((name, taken_s))
    return found


def _warmup_s(loop: _Loop, waited_s: float) -> float:
    """Return what the steps before the steady window took beyond as many usual ones [s]."""
    if loop.usual_s is None:
        return 0.0
    early = [
        time_s
        for place, time_s in enumerate(loop.times_s[: loop.first])
        if place not in loop.beside_neighbor
    ]
    return max(0.0, math.fsum(early) - waited_s - len(early) * loop.usual_s)


def _stalled_s(loop: _Loop, rank: RankSteps, stalls: Sequence[Stall]) -> float:
    """Return what the steps in which the run stood still took beyond usual ones [s]."""
    if loop.usual_s is None:
        return 0.0
    middles = [s.began_unix_s + s.duration_s / 2 for s in stalls if s.duration_s is not None]
    offsets_s = [middle - rank.head.t_unix_s for middle in middles]
    steps, found = rank.steps, 0.0
    for place in range(loop.first, len(steps) if offsets_s else 0):
        if any(steps.begin_s(place) < offset_s < steps.end_s[place] for offset_s in offsets_s):
            found += max(0.0, steps.times_s[place] - loop.usual_s)
    return found


def _worthless(rank: RankSteps, health: Health | None, steps_s: float) -> list[tuple[str, float]]:
    """Return the time of updates that trained nothing, by their share of all updates [s]."""
    wasted, skipped = _num_worthless(rank, health)
    num = max(1, rank.num_updates or rank.num_steps)
    return [
        ("wasted_updates", steps_s * min(1.0, wasted / num)),
        ("skipped_updates", steps_s * min(1.0 - min(1.0, wasted / num), skipped / num)),
    ]


def _num_worthless(rank: RankSteps, health: Health | None) -> tuple[int, int]:
    """Return the updates while numbers were not finite, and those that were skipped beside them."""
    found = None if health is None else health.non_finite
    if found is None:
        return 0, rank.num_skipped
    skipped = rank.num_skipped - found.num_wasted if found.is_skipped else rank.num_skipped
    return found.num_wasted, max(0, skipped)


def _tail(rank: RankSteps) -> list[tuple[str, float]]:
    """Return the spans after the last update [s]."""
    return [(name, rank.tail_s[name]) for name in SPANS]


# -- how often, and where


def _facts(
    rank: RankSteps, health: Health | None, places: CodePlaces
) -> dict[str, tuple[int | None, str | None]]:
    """Return how often each part happened, and the line that took most of it."""
    wasted, skipped = _num_worthless(rank, health)
    found: dict[str, tuple[int | None, str | None]] = dict.fromkeys(WALL_PARTS, (None, None))
    found[USEFUL] = (rank.num_steps, None)
    if rank.steps:
        found["first_batch"] = (rank.steps.count("batches")[0], None)
    found["wasted_updates"] = (wasted, None)
    found["skipped_updates"] = (skipped, None)
    found["logging"] = (sum(row.calls for row in rank.signals.logging), None)
    for name in SPANS:
        found[name] = (_times_of(rank, name), _line_of(rank, name, places))
    for name in (IMPORTS, "data_set", "model", "loading"):
        found[name] = (None, _line_of_start(rank, name, places))
    return found


def _line_of_start(rank: RankSteps, name: str, places: CodePlaces) -> str | None:
    rows = [row for row in rank.signals.start_up if row.what == name and row.file is not None]
    longest = max(rows, key=lambda row: row.end_ns - row.begin_ns, default=None)
    return None if longest is None else places.where(longest.file, longest.line)


def _times_of(rank: RankSteps, name: str) -> int:
    """Return in how many steps a span fell; that of a checkpoint is how many were written."""
    singles = sum(value_s > 0 for value_s in rank.steps.span(name))
    touched = singles + sum(block.spans_s[name] > 0 for block in rank.blocks)
    touched += rank.tail_s[name] > 0
    if name == "epoch_start" and rank.steps:
        touched -= rank.steps.span(name)[0] > 0  # that belongs to the first batch
    if name != "checkpoint":
        return touched
    return max(touched, sum(row.calls for row in rank.signals.spans if row.what == name))


def _line_of(rank: RankSteps, name: str, places: CodePlaces) -> str | None:
    rows = [row for row in rank.signals.spans if row.what == name]
    longest = max(rows, key=lambda row: row.total_ns or 0, default=None)
    return None if longest is None else places.where(longest.file, longest.line)
