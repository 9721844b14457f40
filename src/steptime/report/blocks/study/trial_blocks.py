"""Makes the tables of a study's trials: what was tried, its speedup, and what was thrown away.

In: a Study. Out: blocks. Each row keeps a name that tells it from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from steptime.core.units import format_count, format_speedup
from steptime.report.blocks.study.speedup_scale import SpeedupScale, scale_for
from steptime.report.blocks.study.state_names import NamedState, fitted_names
from steptime.report.blocks.values import Block, Cell, Labeled, TableBlock
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
