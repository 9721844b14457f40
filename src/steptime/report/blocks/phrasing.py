"""Makes the words of blocks: parts that break only between each other, and short forms.

In: text that may hold anything. Out: text for a block.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from steptime.core.printable import printable

GLUE = "\ue000"
"""A space at which no line breaks: a private-use character; `printable` lets none through."""


def joined(parts: Iterable[str]) -> str:
    """Join the parts in one paragraph; lines break between the parts, not within them."""
    return " · ".join(part.replace(" ", GLUE) for part in parts)


def shortened(text: str, width: int) -> str:
    """Return the text on one line of at most `width` columns; `...` marks what is cut off."""
    line = Text(printable(text))
    if line.cell_len <= width:
        return line.plain
    line.truncate(width - 3)
    return line.plain.rstrip() + "..."


def plain(text: str | Text) -> str:
    """Return the words of a block without styles and marks."""
    return (text if isinstance(text, str) else text.plain).replace(GLUE, " ")
