"""Makes text of other people safe to print: names of files, arguments, errors."""

from __future__ import annotations

import re

_PYTHONS_LIMIT = re.compile(r"Exceeds the limit \(\d+[^\n]*")
_LONG_NUMBER = re.compile(r"\d{50,}")


def plain_numbers(text: str) -> str:
    """Return the text of an error with numbers that people can read."""
    text = _PYTHONS_LIMIT.sub("a number has more digits than Python reads (4,300)", text)
    return _LONG_NUMBER.sub(lambda found: f"{found[0][:9]}... ({len(found[0]):,} digits)", text)


def printable(text: str) -> str:
    """Return the text with every control character written out, so that it can do no harm."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
