"""The report of a run as a notebook shows it: a page in a frame of its own, and text.

In: an `ObservedRun`. Out: a bundle by MIME type. The page has no plots over time: it is stored in
the notebook, and its size is bounded.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from steptime.report.text.plain_text import as_html

if TYPE_CHECKING:
    from steptime.app.run.observed_run import ObservedRun

MAX_BYTES = 300_000
"""A larger page is left out for the text: a notebook with many reports must stay small."""

HEIGHT = 620
"""Pixels of the frame; the page scrolls in it, and the frame can be made taller."""

_FRAME = (
    f'<div style="height:{HEIGHT}px;resize:vertical;overflow:hidden">'
    '<iframe srcdoc="{}" sandbox title="Steptime" style="width:100%;height:100%;border:0"></iframe>'
    "</div><details><summary>the report as text</summary>{}</details>"
)


class Report:
    """What is shown below a cell. `notes` say what went wrong in observing it."""

    def __init__(self, observed: ObservedRun, *, notes: tuple[str, ...] = ()) -> None:
        self.observed = observed
        self.notes = notes

    def bundle(self) -> dict[str, str]:
        """Return what is shown, by MIME type."""
        text = self.text()
        page = None if self.observed.is_empty else self.page()
        if page is None:
            return {"text/plain": text, "text/html": as_html(text)}
        # Where frames are taken out, as in a notebook that is not trusted, the text remains.
        return {"text/plain": text, "text/html": _FRAME.format(html.escape(page), as_html(text))}

    def text(self) -> str:
        """Return the report of the terminal, with the notes."""
        notes = "".join(f"\nsteptime: {note}" for note in self.notes)
        return str(self.observed) + notes

    def page(self) -> str | None:
        """Return the page without plots over time; None where it is too long for a notebook."""
        from steptime.app.stored.report import gather_facts
        from steptime.report.html.run_page import render_page

        page = render_page(gather_facts(self.observed), is_whole=False)
        return page if len(page.encode()) <= MAX_BYTES else None
