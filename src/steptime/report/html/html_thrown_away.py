"""Lists what was tried and thrown away, each with its reason: negative results, kept for others.

In: a Study. Out: a table, or None if nothing was thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator

from steptime.core.units import format_count
from steptime.report.html.html_forest import name_of
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.words import study_words as words
from steptime.report.words.unproven_words import describe_few
from steptime.tune.values.study_values import State, Study, Trial, TrialEnd
from steptime.verify.values import Outcome

_MAX_ROWS, _MAX_FOLDED = 30, 300
_ABSENT = "–"


def thrown_away_part(study: Study) -> Html | None:
    """Show each state that was not kept: what it gave, and why it went."""
    rows: list[list[Html | str]] = [
        [name_of(trial, study), _gave(trial), _sentence(words.describe_reason(trial))]
        for trial in _thrown_away(study)
    ]
    if not rows:
        return None
    parts: list[Html | None] = [_table(rows[:_MAX_ROWS])]
    others = rows[_MAX_ROWS:_MAX_FOLDED]
    if others:
        title = tag("summary", f"{format_count(len(others))} more")
        parts.append(tag("details", title, _table(others)))
    if len(rows) > _MAX_FOLDED:
        more = f"{format_count(len(rows) - _MAX_FOLDED)} more are in the document of --json."
        parts.append(tag("p", more, class_="dim"))
    return joined_html(parts)


def _table(rows: list[list[Html | str]]) -> Html:
    heading = ["tried", "speedup", "why it was not kept"]
    return table(heading, rows, left=3, name="Tried and thrown away")


def _thrown_away(study: Study) -> Iterator[Trial]:
    """Yield the last trial of each state that was not kept, in the order of the first."""
    last: dict[str, Trial] = {}
    for trial in study.trials:
        if trial.kind != "observe" and _is_thrown_away(trial, study.recipe):
            name = words.describe_state(trial.state)
            last[name] = trial
    yield from last.values()


def _is_thrown_away(trial: Trial, recipe: State) -> bool:
    if trial.end is TrialEnd.INTERRUPTED:
        return False
    is_bad = trial.quality is not None and trial.quality.outcome is not Outcome.PASS
    if trial.state and all(applied in recipe for applied in trial.state):
        return is_bad  # what was unclear by itself was kept in the end
    return is_bad or trial.reason is not None or trial.end is not TrialEnd.FINISHED


def _gave(trial: Trial) -> str:
    if trial.speedup is not None:
        return words.describe_interval(trial.speedup)
    return _ABSENT if trial.few is None else describe_few(trial.few)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
