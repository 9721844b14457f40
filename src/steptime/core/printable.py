"""Makes text of other people safe to print: names of files, arguments, errors."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with every control character written out, so that it can do no harm."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
