"""What the options of commands share: the document, the store, percentages and prices."""

from __future__ import annotations

import argparse
import re

from steptime.cli.output import STDOUT, check_target
from steptime.errors import UsageError

_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")
_PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:/h)?")


def add_json(group: argparse._ActionsContainer, *, what: str = "instead") -> None:
    """`--json`, alone for stdout or with a file."""
    group.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help=f"one JSON document {what} (default: on stdout)",
    )


def add_store(group: argparse._ActionsContainer) -> None:
    """`--store`; without it the current folder is meant."""
    group.add_argument(
        "--store", metavar="DIR", help="folder that holds .steptime (default: this one)"
    )


def check_json(options: argparse.Namespace) -> None:
    """Refuse a file of `--json` that cannot be written, before anything is done.

    Raises:
        UsageError: its folder is missing, or it is a folder.
    """
    if options.json != STDOUT:
        check_target("--json", options.json)


def store_folder(options: argparse.Namespace) -> str:
    """The folder of `--store`."""
    return options.store or "."


def parse_percent(text: str, *, flag: str) -> float:
    """The fraction in `5%`.

    Raises:
        UsageError: it is no percentage.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{flag} must be a percentage, got `{text}`.", hint=f"Write: {flag} 5%")
    return float(found[1]) / 100


def parse_price(text: str, *, flag: str) -> float:
    """The price of an hour in `2.5/h` or `2.5`.

    Raises:
        UsageError: it is no number above zero.
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        message = f"{flag} must be a number above 0 for an hour, got `{text}`."
        raise UsageError(message, hint=f"Write: {flag} 2.5/h")
    return float(found[1])
