"""Sums up what writing checkpoints was spent on, and what it cost the steps beside it.

In: the rows of a rank's checkpoints, and its steps. Out: a `Checkpoints`; None where none was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steptime.core.interval import Interval
from steptime.core.stats import median, median_interval
from steptime.measure.values.wall_time import Checkpoints
from steptime.record.places import NS

if TYPE_CHECKING:
    from steptime.measure.fold.rank_fold import FoldedRank
    from steptime.record.rows import CheckpointRow

MIN_BESIDE, MIN_OTHERS = 5, 20
"""Steps beside a checkpoint, and others: of fewer the median says nothing."""


def sum_checkpoints(folded: FoldedRank) -> Checkpoints | None:
    """Return what the checkpoints of a rank were spent on; None where none was seen."""
    rows = folded.steps.signals.checkpoints
    if not rows:
        return None
    waited = [row for row in rows if not row.is_beside]
    beside = [row for row in rows if row.is_beside]
    parts = {
        name: sum(getattr(row, f"{name}_ns") * row.num for row in waited)
        for name in ("total", "gather", "copy", "serialize", "write")
    }
    named_ns = sum(parts.values()) - parts["total"]
    near, others = _steps_beside(folded, beside)
    return Checkpoints(
        num=sum(row.num for row in waited),
        total_s=parts["total"] * NS,
        gather_s=parts["gather"] * NS,
        copy_s=parts["copy"] * NS,
        serialize_s=parts["serialize"] * NS,
        write_s=parts["write"] * NS,
        other_s=max(0, parts["total"] - named_ns) * NS,
        num_bytes=sum(row.num_bytes * row.num for row in rows) or None,
        num_beside=sum(row.num for row in beside),
        beside_s=sum(row.total_ns * row.num for row in beside) * NS,
        num_steps_beside=len(near),
        slowdown=_slowdown(near, others),
    )


def _steps_beside(
    folded: FoldedRank, rows: Sequence[CheckpointRow]
) -> tuple[list[float], list[float]]:
    """Return the times of steady steps beside these checkpoints, and those of the others [s]."""
    steps = folded.window.steps
    near: list[float] = []
    others: list[float] = []
    stretches = [(row.begin_ns * NS, (row.begin_ns + row.total_ns) * NS) for row in rows]
    for place in range(len(steps) if stretches else 0):
        begin_s, end_s = steps.begin_s(place), steps.end_s[place]
        is_near = any(begin_s < until_s and since_s < end_s for since_s, until_s in stretches)
        (near if is_near else others).append(steps.times_s[place])
    return near, others


def _slowdown(near: Sequence[float], others: Sequence[float]) -> Interval | None:
    if len(near) < MIN_BESIDE or len(others) < MIN_OTHERS:
        return None
    usual_s = median(others)
    if usual_s <= 0:
        return None
    found = median_interval(near)
    return Interval(
        estimate=found.estimate / usual_s,
        low=found.low / usual_s,
        high=found.high / usual_s,
        n=found.n,
    )
