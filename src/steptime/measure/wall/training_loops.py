"""Measures each of several loops of one process: its steps, its phases and its lines.

In: the steps of the busiest rank. Out: a `TrainingLoop` each, in the order of first steps; none
where there is one loop. `measure.steps.loops_apart` says which steps are of which loop.
"""

from __future__ import annotations

from steptime.core.stats import median_interval
from steptime.measure.fold.code_places import CodePlaces
from steptime.measure.steps.loops_apart import LoopSteps, loops_apart
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.measurement import PHASES
from steptime.measure.values.training_loop import TrainingLoop


def find_loops(rank: RankSteps, places: CodePlaces) -> tuple[TrainingLoop, ...]:
    """Return the loops of a rank."""
    loops = loops_apart(rank)
    ordered = sorted(loops, key=lambda one: one.steps[0])
    return tuple(
        _measure(rank, one, places, number=number, is_shown=one is loops[0])
        for number, one in enumerate(ordered, start=1)
    )


def _measure(
    rank: RankSteps, loop: LoopSteps, places: CodePlaces, *, number: int, is_shown: bool
) -> TrainingLoop:
    chosen = set(loop.steps[1:])  # what came before the loop is in its first step
    flags = zip(rank.steps.index, rank.steps.is_disturbed, strict=True)
    own = rank.steps.take([index in chosen and not disturbed for index, disturbed in flags])
    sums = {name: sum(own.wall_s[name]) for name in PHASES if name in own.wall_s}
    total_s = sum(sums.values())
    times_s = list(own.times_s)
    met = [row for row in rank.signals.optimizers if row.number in loop.optimizers]
    first = met[0] if met else None
    where = None if first is None else places.where(first.file, first.line)
    called_at = None if first is None else places.where(first.outer_file, first.outer_line)
    return TrainingLoop(
        number=number,
        num_steps=len(loop.steps),
        first_step=loop.steps[0],
        last_step=loop.steps[-1],
        total_s=loop.total_s,
        step_time_s=median_interval(times_s) if times_s else None,
        phases={name: value / total_s for name, value in sums.items() if value > 0},
        optimizers=tuple(dict.fromkeys(row.kind for row in met)),
        where=where,
        called_at=None if called_at == where else called_at,
        is_shown=is_shown,
    )
