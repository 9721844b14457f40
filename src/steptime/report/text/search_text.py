"""Shows what a search for parameters found.

In: a `SeekAnswer`. Out: lines of labeled blocks and tables.
"""

from __future__ import annotations

from rich.text import Text

from steptime.core.units import format_seconds
from steptime.report.text.page import Page, columns
from steptime.report.words import search_words as words
from steptime.seek.values.seek_values import SeekAnswer

_MOST_ROWS = 8


def search_lines(found: SeekAnswer, *, page: Page, next_command: str) -> list[Text]:
    """Return the answer, what it rests on, and the command to run next.

    Args:
        found: the answer.
        page: where it is shown.
        next_command: the last line.
    """
    style = {True: "bold green", False: "bold red", None: "bold yellow"}[found.holds]
    lines = page.block("best", Text(words.describe_best(found), style=style))
    told = (
        ("holds", words.describe_holds(found)),
        ("beside", words.describe_beside(found)),
        ("runs", words.describe_runs(found)),
        ("noise", words.describe_noise(found)),
        ("spent", words.describe_spent(found)),
    )
    for label, text in told:
        if text is not None:
            lines += page.block(label, text)
    lines += [Text(), *_candidates(found)]
    if found.effects:
        lines += [Text(), *_effects(found)]
    return [*lines, Text(), *page.with_command("next", Text(""), next_command)]


def _candidates(found: SeekAnswer) -> list[Text]:
    rows = [("candidate", "time to target", "reached", "best metric")]
    for one in found.candidates[:_MOST_ROWS]:
        took = "–" if one.time_to_target_s is None else format_seconds(one.time_to_target_s)
        value = "–" if one.best_value is None else f"{one.best_value:.5g}"
        name = words.describe_values(one.parameters)
        rows.append((name, took, f"{one.num_reached} of {one.num_runs}", value))
    lines = columns(rows)
    more = len(found.candidates) - _MOST_ROWS
    return [*lines, Text(f"and {more} more", style="dim")] if more > 0 else lines


def _effects(found: SeekAnswer) -> list[Text]:
    """List what each parameter explains, and its best values."""
    rows = [("parameter", "best at", "explains")]
    for one in found.effects:
        best = min(one.groups, key=lambda group: group.time_s)
        span = best.low if best.low == best.high else f"{best.low} to {best.high}"
        rows.append((one.name, span, words.describe_share(one.share)))
    return columns(rows, left=2)
