"""Draws speedups with their intervals, one row each, on one scale around 1.00x.

In: trials of a study. Out: a table that needs no script: marks are placed in hundredths of a cell.
The scale is that of the terminal's table: logarithmic, so that twice as fast and half as fast are
equally far from the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steptime.core.interval import Interval
from steptime.core.units import format_count, format_speedup
from steptime.report.html.html_tags import Html, breakable, joined_html, table, tag
from steptime.report.text.interval_bars import Scale, scale_for
from steptime.report.words import study_words as words
from steptime.tune.values.study_values import Study, Trial

_ABSENT = "–"
_WIDTH = 1001
"""Places on the scale, so that tenths of a percent of the cell are told from each other."""

_TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
_TICK_GAP, _NARROW_GAP = 14.0, 48.0
"""Hundredths of the cell that the words of a tick take, on a wide page and on a phone."""

MAX_ROWS = 40
"""Rows that are seen at once; the others are folded away."""

_MAX_FOLDED = 500


def trials_part(study: Study) -> Html | None:
    """Show every trial with its interval; where there are many, those that decided come first."""
    trials = [trial for trial in study.trials if trial.kind != "observe"]
    if not trials:
        return None
    scale = scale_for([t.speedup for t in trials if t.speedup is not None], _WIDTH)
    chosen = _most_telling(trials)
    others = [trial for trial in trials if trial not in chosen]
    parts: list[Html | None] = [_table(chosen, study, scale)]
    if others:
        title = tag("summary", f"{format_count(len(others))} more trials")
        parts.append(tag("details", title, _table(others[:_MAX_FOLDED], study, scale)))
    if len(others) > _MAX_FOLDED:
        more = f"{format_count(len(others) - _MAX_FOLDED)} more are in the document of --json."
        parts.append(tag("p", more, class_="dim"))
    return joined_html(parts)


def _most_telling(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that decided something, in the order in which they were made."""
    if len(trials) <= MAX_ROWS:
        return list(trials)
    dull = ("no_gain", "cannot_tell", "halved", "pruned")
    ranked = sorted(trials, key=lambda t: (t.kind != "confirm", t.reason in dull, t.number))
    return sorted(ranked[:MAX_ROWS], key=lambda t: t.number)


def _table(trials: Sequence[Trial], study: Study, scale: Scale) -> Html:
    heading: list[Html | str] = ["trial", _axis(scale), "speedup", "95 % interval", "n", ""]
    rows = [_cells(trial, study, scale) for trial in trials]
    return tag("div", table(heading, rows, left=2, name="Trials"), class_="trials")


def _cells(trial: Trial, study: Study, scale: Scale) -> list[Html | str]:
    speedup, few = trial.speedup, trial.few
    told: list[Html | str] = [name_of(trial, study)]
    if speedup is None:
        bare = [_ABSENT] if few is None else [format_speedup(few.median)]
        told += [forest(None, scale, floor=study.noise_floor), *bare, _ABSENT]
        told.append(_ABSENT if few is None else format_count(few.n))
    else:
        told += [
            forest(speedup, scale, floor=study.noise_floor),
            format_speedup(speedup.estimate),
            f"{format_speedup(speedup.low)[:-1]} to {format_speedup(speedup.high)[:-1]}",
            format_count(speedup.n),
        ]
    why = None if trial.reason is None else words.describe_reason(trial)
    return [*told, tag("span", words.describe_mark(trial), title=why)]


def name_of(trial: Trial, study: Study) -> Html:
    """Name what was on in a trial, and what it was compared with if that had levers too."""
    if study.recipe and trial.state == study.recipe and trial.kind in ("quality", "confirm"):
        return tag("b", "the recipe")
    if not trial.reference:
        return breakable(words.describe_state(trial.state))
    added = breakable(words.describe_state(trial.state, reference=trial.reference))
    over = breakable(f" over {words.describe_state(trial.reference)}")
    return tag("span", added, tag("span", over, class_="dim"))


def forest(speedup: Interval | None, scale: Scale, *, floor: float | None) -> Html:
    """Draw one interval: its line, its estimate, and behind them 1.00x and the noise floor."""
    one = _place(1.0, scale)
    marks: list[Html] = []
    if floor is not None:
        marks.append(_span("noise", _place(1 / (1 + floor), scale), _place(1 + floor, scale)))
    marks.append(_mark("one", one))
    if speedup is not None:
        low, high = _place(speedup.low, scale), _place(speedup.high, scale)
        side = _side(speedup, floor or 0.0)
        marks += [_span(f"reach {side}", low, high)]
        marks.append(_mark(f"middle {side}", _place(speedup.estimate, scale)))
    return tag("span", *marks, class_="forest", aria_hidden="true")


def _side(speedup: Interval, floor: float) -> str:
    """Return which way an interval lies; within the noise floor it says nothing."""
    if speedup.low > 1 + floor:
        return "gain"
    return "loss" if speedup.high < 1 else "even"


def _place(speedup: float, scale: Scale) -> float:
    return 100 * scale.column(speedup) / (_WIDTH - 1)


def _mark(kind: str, at: float) -> Html:
    return tag("i", class_=kind, style=f"left:{at:.1f}%")


def _span(kind: str, low: float, high: float) -> Html:
    return tag("i", class_=kind, style=f"left:{low:.1f}%;width:{max(0.2, high - low):.1f}%")


def _axis(scale: Scale) -> Html:
    """Return the heading of the drawings: ticks that have room beside 1.00x."""
    narrow = set(_fitting(scale, gap=_NARROW_GAP))
    ticks = [
        tag(
            "i",
            format_speedup(value),
            class_=None if value in narrow else "minor",
            style=f"left:{_place(value, scale):.1f}%",
        )
        for value in _fitting(scale, gap=_TICK_GAP)
    ]
    return tag("span", *ticks, class_="forest axis")


def _fitting(scale: Scale, *, gap: float) -> Iterator[float]:
    """Yield the values that are marked: 1.00x, then what lies far enough from those before."""
    taken: list[float] = []
    for value in sorted(_TICKS, key=lambda one: (one != 1.0, one not in (0.5, 2.0), abs(one - 1))):
        place = _place(value, scale)
        if (0 < place < 100 or value == 1.0) and all(abs(place - x) >= gap for x in taken):
            taken.append(place)
            yield value
