"""Prints the report of a run: what fits one screen, or everything."""

from __future__ import annotations

from rich.console import Console

from steptime.report.blocks.run.run_report import run_report
from steptime.report.document.run_document import RunDocument
from steptime.report.text.paint_text import print_report

LEAST_LINES, MOST_LINES = 22, 30
"""Lines of a report on a terminal: in one of 24 rows, and however tall it is."""

_ROWS_OF_PROMPT = 2


def render(
    document: RunDocument, *, console: Console, store: str | None = None, is_whole: bool = False
) -> None:
    """Print the report of one run; on a terminal, what fits, or with `is_whole` everything.

    `store` is the folder that holds the store of the run, if that is not the store of this folder.
    """
    room = min(MOST_LINES, max(LEAST_LINES, console.height - _ROWS_OF_PROMPT))
    report = run_report(document, store=store)
    print_report(report, console=console, room=None if is_whole else room, how="`show -v`")
