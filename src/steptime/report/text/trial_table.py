"""The table of a study's trials: what was tried, the speedup with its interval, and a drawing.

In: a Study and a page. Out: lines. Each row keeps a name that tells it from the others: where the
page has no room for that, the drawing goes first, then the column `n`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from steptime.core.units import format_speedup
from steptime.report.text.interval_bars import Scale, draw, heading, scale_for
from steptime.report.text.page import Page, columns
from steptime.report.text.state_names import NamedState, fitted_names, need_no_number
from steptime.report.words import study_words as words
from steptime.tune.values.study_values import Study, Trial

MAX_ROWS = 24
"""Rows of the table of trials; `steptime show` has the others."""

_MIN_DRAWING, _MIN_NAME = 12, 12
_USUAL_NAME = 28  # a lever with a setting: the drawing makes room for so much
_MARK_WIDTH = 9
_GAP = 2
_NO_LIMIT = 10_000
_MARK_STYLES = {"helps": "green", "proof": "green", "as good": "green", "slower": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Columns of a table; `drawing` is 0 where there is none."""

    name: int
    drawing: int
    has_n: bool = True


def trial_rows(study: Study, page: Page, *, num_rows: int = MAX_ROWS) -> list[Text]:
    """Return the lines of the table; none where nothing was tried."""
    trials = [trial for trial in study.trials if trial.kind != "observe"]
    if not trials:
        return []
    shown = _most_telling(trials, num_rows)
    lines = _table(shown, [_named(trial, study) for trial in shown], page)
    if len(trials) > len(shown):
        left_out = f"{len(trials) - len(shown)} more trials: steptime show {study.study_id}"
        lines.append(Text(left_out, style="dim"))
    return lines


def _most_telling(trials: Sequence[Trial], num_rows: int) -> list[Trial]:
    """Prefer trials that decided something to the others; keep the order they were made in."""
    if len(trials) <= num_rows:
        return list(trials)
    dull = ("no_gain", "cannot_tell")
    ranked = sorted(trials, key=lambda t: (t.kind != "confirm", t.reason in dull, t.number))
    return sorted(ranked[:num_rows], key=lambda t: t.number)


def _named(trial: Trial, study: Study) -> NamedState:
    if study.recipe and trial.state == study.recipe and trial.kind in ("quality", "confirm"):
        return NamedState(name="the recipe")
    return NamedState(state=trial.state, reference=trial.reference, number=trial.number)


def _layout(names: Sequence[NamedState], free: int, n_width: int) -> _Layout:
    """Return the widest drawing that leaves each row its own name; at worst names get numbers.

    Args:
        names: of the rows.
        free: columns for name and drawing, with the gap between them.
        n_width: columns of `n`, with its gap.
    """
    longest = max(map(len, fitted_names(names, _NO_LIMIT)))
    width = free - _GAP
    half = max(_MIN_NAME, min(longest, width // 2))
    if longest <= min(_USUAL_NAME, width - _MIN_DRAWING):
        half = longest
    for name in (half, min(longest, width - _MIN_DRAWING)):
        if name >= half and width - name >= _MIN_DRAWING and need_no_number(names, name):
            return _Layout(name=name, drawing=width - name)
    if need_no_number(names, free):
        return _Layout(name=min(longest, free), drawing=0)
    wider = free + n_width
    return _Layout(name=min(longest, wider), drawing=0, has_n=False)


def _table(trials: Sequence[Trial], names: Sequence[NamedState], page: Page) -> list[Text]:
    rows = [["speedup", "95 % interval", "n"], *([*_cells(trial)] for trial in trials)]
    n_width = max(len(row[2]) for row in rows) + _GAP
    right = columns(rows, left=0)
    free = page.width - right[0].cell_len - _MARK_WIDTH - 2 * _GAP
    layout = _layout(names, free, n_width)
    if not layout.has_n:
        right = columns([row[:2] for row in rows], left=0)
    scale = scale_for([t.speedup for t in trials if t.speedup is not None], layout.drawing or 1)
    shown = ["trial", *fitted_names(names, layout.name)]
    lines = []
    for index, (name, cells) in enumerate(zip(shown, right, strict=True)):
        line = Text(name.ljust(layout.name) + " " * _GAP)
        line.append_text(cells)
        _append_end(
            line, trials[index - 1] if index else None, scale if layout.drawing else None, page
        )
        lines.append(line)
    return lines


def _append_end(line: Text, trial: Trial | None, scale: Scale | None, page: Page) -> None:
    """Append the drawing, where there is one, and the mark; without a trial, their heading."""
    if trial is None:
        line.append("" if scale is None else " " * _GAP + heading(scale))
        line.stylize("dim")
        return
    if scale is not None:
        drawing = draw(trial.speedup, scale, ascii_only=page.ascii_only)
        line.append(" " * _GAP + drawing, style="cyan")
    mark = words.describe_mark(trial)
    line.append(" " * _GAP + mark, style=_MARK_STYLES.get(mark, ""))


def _cells(trial: Trial) -> Iterable[str]:
    speedup = trial.speedup
    if speedup is None:
        few = trial.few
        yield from ("-", "-", "-") if few is None else (format_speedup(few.median), "-", f"{few.n}")
        return
    yield format_speedup(speedup.estimate)
    yield f"{format_speedup(speedup.low)[:-1]} to {format_speedup(speedup.high)[:-1]}"
    yield f"{speedup.n:,}"
