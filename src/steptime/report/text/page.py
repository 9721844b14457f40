"""Lays out a terminal report: labeled blocks, bars and columns on a page of known width.

In: text that may hold anything (arguments, paths). Out: `rich` Text, one per line, already
wrapped. Nothing is ever read as markup, and no control character reaches the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from steptime.report.blocks.phrasing import GLUE

LABEL_WIDTH = 11
"""Columns of the labels at the left, including the gap."""

MAX_WIDTH = 100
"""On a wider page the eye would lose the row."""

MIN_WIDTH = 50
"""On a narrower terminal, the terminal itself folds the lines."""

_EIGHTHS = " ▏▎▍▌▋▊▉"
_ASCII = str.maketrans({"·": "-", "µ": "u", "×": "x", "ᵀ": "T", "³": "^3"})
_NUMBER_GAP = re.compile(r"(?<=\d) (?=[\w%µ])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where the report is shown."""

    console: Console
    width: int
    ascii_only: bool

    def write(self, lines: Iterable[Text]) -> None:
        """Print the lines as they are: no wrapping, no markup, no highlighting."""
        for line in lines:
            line.rstrip()
            if self.ascii_only:
                line.plain = (
                    line.plain.translate(_ASCII).encode("ascii", "backslashreplace").decode()
                )
            self.console.print(line, soft_wrap=True)

    def block(self, label: str, content: Text | str, *, style: str = "") -> list[Text]:
        """Wrap the content to the page, with its label at the left of the first line."""
        body = Text(content, style=style) if isinstance(content, str) else content.copy()
        # A number and its unit stay on one line.
        body.plain = _NUMBER_GAP.sub(GLUE, body.plain)
        lines: list[Text] = []
        for row in self.folded(body, self.width - LABEL_WIDTH):
            row.plain = row.plain.replace(GLUE, " ")
            head = f"{'' if lines else label:<{LABEL_WIDTH}}"
            lines.append(Text.assemble((head, "dim"), row))
        return lines

    def folded(self, body: Text, width: int) -> Iterable[Text]:
        """Return the lines of a text; an address is not broken, as it would not open then."""
        if "://" in body.plain:
            body.overflow = "ignore"
        return body.wrap(self.console, width)

    def bar(self, fraction: float, width: int) -> str:
        """Return a bar of `width` columns for a fraction of 0 to 1, in eighths if the page can."""
        eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
        full, part = divmod(eighths, 8)
        if self.ascii_only:
            return ("#" * (full + (part >= 4))).ljust(width)
        return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def page_of(console: Console) -> Page:
    """Return the page that a console gives."""
    width = max(MIN_WIDTH, min(MAX_WIDTH, console.width))
    return Page(console=console, width=width, ascii_only=console.options.ascii_only)
