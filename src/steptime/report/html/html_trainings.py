"""The part of the page that says which trainings a command has, and which one the page is about.

In: the document of a run. Out: a table with a row for each training; nothing for one alone.
"""

from __future__ import annotations

from steptime.core.units import format_count, format_seconds
from steptime.report.document.run_document import RunDocument, TrainingDocument
from steptime.report.html.html_tags import Html, joined_html, table, tag
from steptime.report.text.training_lines import describe_outcome, words_of

MAX_TRAININGS = 64
"""Nobody reads a page with a thousand rows; the JSON has them."""

_ABSENT = "–"


def trainings_part(document: RunDocument) -> Html | None:
    """Return all trainings of the command, if there are several."""
    own, parts = document.measurement.training, document.trainings
    if own is None or not parts:
        return None
    heading = ["", "training", "diagnosis", "steps", "step time", "ranks"]
    rows = [_cells(part, is_shown=part.number == own.number) for part in parts[:MAX_TRAININGS]]
    told = f"This page is about training {own.number}. The page of another: "
    command = f"steptime report {document.measurement.run_id} --training N"
    left_out = len(parts) - MAX_TRAININGS
    more = f"More trainings in the document of --json: {left_out}." if left_out > 0 else None
    return joined_html(
        [
            tag("p", told, tag("code", command)),
            table(heading, rows, left=3, name="Trainings"),
            more and tag("p", more, class_="dim"),
        ]
    )


def _cells(part: TrainingDocument, *, is_shown: bool) -> list[Html | str]:
    m = part.measurement
    time = None if m.steady is None else m.steady.step_time_s
    words = tag("code", words_of(part))
    return [
        str(part.number),
        tag("b", words) if is_shown else words,
        describe_outcome(part),
        format_count(m.num_steps),
        _ABSENT if time is None else format_seconds(time.estimate),
        format_count(m.num_ranks),
    ]
