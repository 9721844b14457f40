"""Makes the words of blocks: parts that break only between each other, short forms, and lists.

In: text that may hold anything. Out: text for a block, and blocks of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.text import Text

from steptime.core.printable import printable
from steptime.report.blocks.values import Blank, Block, Labeled, Section
from steptime.verify.values import Outcome

OUTCOME_TONES = {Outcome.PASS: "good", Outcome.FAIL: "bad", Outcome.INCONCLUSIVE: "warning"}
"""The severity of the headline of a verdict."""

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


def capitalized(text: str) -> str:
    """Return a sentence with a capital, unless it begins with a name such as `lr=0.1`."""
    first = text.partition(" ")[0].rstrip(",:;")
    return text[:1].upper() + text[1:] if first.replace("-", "").isalpha() else text


def labeled(*told: tuple[str, str | Text | None]) -> list[Block]:
    """Return a paragraph for each label whose text is known and not empty."""
    return [Labeled(label, text) for label, text in told if text]


def listed(label: str, texts: Iterable[str]) -> list[Block]:
    """Return paragraphs of which the first has the label."""
    return [Labeled("" if number else label, text) for number, text in enumerate(texts)]


def sections(
    parts: Iterable[tuple[str, Sequence[Block]]], *, pages: Collection[str] = ()
) -> list[Section]:
    """Return a section for each title with blocks; those named in `pages` are for the page."""
    return [
        Section(title, [*blocks, Blank()], only="page" if title in pages else None)
        for title, blocks in parts
        if blocks
    ]
