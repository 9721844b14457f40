"""What all command lines share: common options, and their values."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from steptime.cli.output import STDOUT, check_target
from steptime.cli.parser import NEGATIVE
from steptime.errors import UsageError

_TIME = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]i?B)")
_SIZE_UNITS = {f"{letter}iB": 1024**n for n, letter in enumerate("KMGT", start=1)} | {
    f"{letter}B": 1000**n for n, letter in enumerate("KMGT", start=1)
}
_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")
_PRICE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:/h)?")


def take_command(options: argparse.Namespace, *, verb: str, usage: str) -> tuple[str, ...]:
    """Return the user's command.

    Raises:
        UsageError: there is none, its beginning cannot be told, or this is Windows.
    """
    refuse_windows(verb)
    if getattr(options, "words", None):
        ask_for_dashes(options)
    if not options.command:
        raise UsageError("no command was given.", hint=f"usage: {usage}")
    return tuple(options.command)


def ask_for_dashes(options: argparse.Namespace) -> NoReturn:
    """Show the command line with a `--` where it belongs; a later one is the command's own."""
    verbs = len(options.parser.prog.split()) - 1
    place = verbs + (options.parser.command_at(options.given[verbs:], takes_optional=True) or 0)
    rest = [] if options.command is None else ["--", *options.command]
    right = shlex.join(["steptime", *options.given[:place], "--", *options.given[place:], *rest])
    raise UsageError("the command must come after `--`.", hint=f"Write: {right}")


def refuse_windows(verb: str) -> None:
    """Refuse a verb that works only on Linux.

    Raises:
        UsageError: this is Windows.
    """
    if sys.platform == "win32":
        raise UsageError(
            f"`steptime {verb}` does not work on Windows.",
            hint="Use it in WSL 2, which is a Linux.",
        )


INSTEAD = "write one JSON document instead, to FILE or to stdout"
BESIDE = "write one JSON document to FILE beside the report, or to stdout instead of it"


def add_json(group: argparse._ActionsContainer, *, what: str = INSTEAD) -> None:
    """Add `--json`, alone for stdout or with a file."""
    group.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help=what,
    )


def add_run_id(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a run."""
    parser.add_argument(
        "run", metavar="ID", help="the id of a run, the beginning of it, or `last` for the newest"
    )


LONGEST = "default: the one that lasted longest"


def add_training(group: argparse._ActionsContainer, *, what: str, default: str = LONGEST) -> None:
    """Add `--training`, which names one of several trainings of a command."""
    group.add_argument(
        "--training",
        metavar="N",
        type=int,
        help=f"{what} training N of a command that started several ({default})",
    )


def add_store(group: argparse._ActionsContainer) -> None:
    """Add `--store`; its default is the current folder."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help="the folder that holds .steptime (default: the current folder)",
    )


def check_json(options: argparse.Namespace) -> None:
    """Refuse a file of `--json` that cannot be written, before anything is done.

    Raises:
        UsageError: its folder is missing, or it is a folder.
    """
    if options.json != STDOUT:
        check_target("--json", options.json)


def store_folder(options: argparse.Namespace) -> str | None:
    """Return the folder of `--store`, from which something is read; None where it is not given.

    Raises:
        UsageError: the name is empty.
    """
    if options.store == "":
        raise UsageError("--store names no folder.", hint="Write: --store DIR, or leave it out.")
    store: str | None = options.store
    return store


def store_to_write(options: argparse.Namespace) -> Path:
    """Return the folder of `--store`, in which something is written, or the current one.

    Raises:
        UsageError: the name is empty or that of a file.
    """
    folder = store_folder(options)
    if folder is None:
        return Path()
    from steptime.core.store import store_in

    for path in (Path(folder), store_in(Path(folder))):
        if os.path.lexists(path) and not os.path.isdir(path):
            raise UsageError(
                f"--store: `{path}` is not a folder.",
                hint="Name a folder; the store is made in it.",
            )
    return Path(folder)


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


def parse_price(text: str, *, flag: str) -> float:
    """Return the price of an hour in `2.5/h` or `2.5`.

    Raises:
        UsageError: the text is not a number above zero.
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        message = f"{flag} must be the price of an hour, a number above 0, got `{text}`."
        raise UsageError(message, hint=f"Write: {flag} 2.5/h")
    return float(found[1])


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


def add_allow(search: argparse._ArgumentGroup) -> None:
    """Add `--allow training-changes`: no lever that changes the training is named without it."""
    search.add_argument(
        "--allow",
        metavar="WHAT",
        choices=("training-changes",),
        help="training-changes: also name levers that change training",
    )


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in `a,b`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
