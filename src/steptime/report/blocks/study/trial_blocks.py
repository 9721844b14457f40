"""Makes the tables of a study's trials: what was tried, and its speedup on one scale.

In: a Study. Out: blocks. Each row keeps a name that tells it from the others. The scale is
logarithmic, so that twice as fast and half as fast are equally far from the middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from steptime.core.interval import Interval
from steptime.core.units import format_count, format_speedup
from steptime.report.blocks.study.state_names import NamedState, fitted_names
from steptime.report.blocks.values import Block, Cell, Labeled, Reach, TableBlock, Ticks
from steptime.report.words.study import study_words as words
from steptime.tune.values.study_values import Study, Trial

MAX_ROWS = 24
"""Rows of the table on a terminal; `steptime show ID -v` has the others."""

_NAME = 36
"""Columns of a name on a terminal."""

_ABSENT = "–"
_STYLES = {"helps": "green", "proof": "green", "as good": "green", "slower": "yellow"}


def trial_table(study: Study, *, num_rows: int | None = None) -> list[Block]:
    """Show trials with their intervals; of very many, those that decided something."""
    trials = [trial for trial in study.trials if trial.kind != "observe"]
    if not trials:
        return []
    shown = _most_telling(trials, num_rows)
    scale = scale_for([t.speedup for t in trials if t.speedup is not None])
    names = fitted_names([_named(trial, study) for trial in shown], _NAME)
    heading: list[Cell] = ["trial", "speedup", "95 % interval", "n", scale.ticks(), ""]
    rows = [_cells(name, trial, study, scale) for name, trial in zip(names, shown, strict=True)]
    left_out = len(trials) - len(shown)
    more = f"{left_out} more trials: steptime show {study.study_id} -v"
    return [
        TableBlock(heading, rows, name="Trials", kind="trials"),
        *([Labeled("", more, style="dim")] if left_out else []),
    ]


def _most_telling(trials: Sequence[Trial], num_rows: int | None) -> list[Trial]:
    """Prefer trials that decided something to the others; keep the order they were made in."""
    if num_rows is None or len(trials) <= num_rows:
        return list(trials)
    dull = ("no_gain", "cannot_tell", "halved", "pruned")
    ranked = sorted(trials, key=lambda t: (t.kind != "confirm", t.reason in dull, t.number))
    return sorted(ranked[:num_rows], key=lambda t: t.number)


def _named(trial: Trial, study: Study) -> NamedState:
    if study.recipe and trial.state == study.recipe and trial.kind in ("quality", "confirm"):
        return NamedState(name="the recipe")
    return NamedState(state=trial.state, reference=trial.reference, number=trial.number)


def _cells(name: str, trial: Trial, study: Study, scale: SpeedupScale) -> list[Cell]:
    mark = words.describe_mark(trial)
    told: list[Cell] = [scale.reach(trial.speedup, floor=study.noise_floor)]
    told.append(Text(mark, style=_STYLES.get(mark, "")))
    speedup, few = trial.speedup, trial.few
    if speedup is not None:
        interval = f"{format_speedup(speedup.low)[:-1]} to {format_speedup(speedup.high)[:-1]}"
        return [name, format_speedup(speedup.estimate), interval, f"{speedup.n:,}", *told]
    if few is not None:
        return [name, format_speedup(few.median), _ABSENT, f"{few.n}", *told]
    return [name, _ABSENT, _ABSENT, _ABSENT, *told]


def count_of(trials: Sequence[Trial]) -> str:
    """Return `1 trial` or `12 trials`."""
    return "1 trial" if len(trials) == 1 else f"{format_count(len(trials))} trials"


_LEAST = math.log(1.05)
"""The scale shows at least 5 % on both sides, so that small differences appear small."""

_MOST = math.log(4.0)
"""Larger speedups are drawn at the edge, so that one wild interval does not squeeze all others."""

_TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
_TICK_GAP, _NARROW_GAP = 0.14, 0.48
"""Fractions of the cell that the words of a tick take, on a wide page and on a phone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupScale:
    """Maps speedups to fractions of a cell; `low` and `high` are logarithms."""

    low: float
    high: float

    def place(self, speedup: float) -> float:
        """Return the place of a speedup, or the edge if it lies beyond the scale."""
        value = math.log(speedup) if speedup > 0 else self.low
        return max(0.0, min(1.0, (value - self.low) / (self.high - self.low)))

    def reach(self, speedup: Interval | None, *, floor: float | None = None) -> Reach:
        """Return the cell of one interval; within the noise floor it says nothing."""
        noise = None
        if floor is not None:
            noise = (self.place(1 / (1 + floor)), self.place(1 + floor))
        if speedup is None:
            return Reach(None, self.place(1.0), noise=noise)
        ends = tuple(map(self.place, (speedup.low, speedup.estimate, speedup.high)))
        kind = "even"
        if speedup.low > 1 + (floor or 0.0):
            kind = "gain"
        elif speedup.high < 1:
            kind = "loss"
        return Reach((ends[0], ends[1], ends[2]), self.place(1.0), kind, noise)

    def ticks(self) -> Ticks:
        """Return the heading of such cells: 1.00x, then what lies far enough from others."""
        narrow = set(self._fitting(_NARROW_GAP))
        marks = [
            (format_speedup(value), self.place(value), value in narrow)
            for value in self._fitting(_TICK_GAP)
        ]
        return Ticks(marks)

    def _fitting(self, gap: float) -> Iterator[float]:
        taken: list[float] = []
        order = sorted(_TICKS, key=lambda one: (one != 1.0, one not in (0.5, 2.0), abs(one - 1)))
        for value in order:
            place = self.place(value)
            if (0 < place < 1 or value == 1.0) and all(abs(place - x) >= gap for x in taken):
                taken.append(place)
                yield value


def scale_for(speedups: Sequence[Interval]) -> SpeedupScale:
    """Return the scale on which all speedups have room."""
    lows = [math.log(one.low) if one.low > 0 else -_MOST for one in speedups]
    highs = [math.log(one.high) for one in speedups if one.high > 0]
    return SpeedupScale(
        low=max(-_MOST, min([-_LEAST, *lows])), high=min(_MOST, max([_LEAST, *highs]))
    )
