"""Times, sizes, shares and prices as they are typed: text in, numbers out."""

from __future__ import annotations

import re

from steptime.cli.parser import NEGATIVE
from steptime.errors import UsageError

_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]i?B)")
_SIZE_UNITS = {f"{letter}iB": 1024**n for n, letter in enumerate("KMGT", start=1)} | {
    f"{letter}B": 1000**n for n, letter in enumerate("KMGT", start=1)
}
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")


def _refuse_negative(text: str, flag: str) -> None:
    if NEGATIVE.match(text.strip()):
        raise UsageError(f"{flag} must not be negative, got `{text}`.")


def parse_percent(text: str, *, flag: str) -> float:
    """Return the fraction in `5%`.

    Raises:
        UsageError: the text is not a percentage.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        _refuse_negative(text, flag)
        raise UsageError(f"{flag} must be a percentage, got `{text}`.", hint=f"Write: {flag} 5%")
    return float(found[1]) / 100


def parse_time(text: str, *, flag: str = "--budget") -> float:
    """Return the seconds in `30s`, `10m`, `1h`.

    Raises:
        UsageError: the text is not a time above zero.
    """
    found = _TIME.fullmatch(text)
    value_s = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    if value_s <= 0:
        _refuse_negative(text, flag)
        raise UsageError(f"{flag} must be a time such as 30s, 10m or 1h, got `{text}`.")
    return value_s


def parse_size(text: str, *, flag: str) -> int:
    """Return the bytes in `8GiB`, `900MiB` or `80GB`.

    Raises:
        UsageError: the text is not a size above zero.
    """
    found = _SIZE.fullmatch(text.strip())
    size = round(float(found[1]) * _SIZE_UNITS[found[2]]) if found else 0
    if size <= 0:
        _refuse_negative(text, flag)
        raise UsageError(f"{flag} must be a size such as 8GiB, 900MiB or 80GB, got `{text}`.")
    return size


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in `a,b`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
