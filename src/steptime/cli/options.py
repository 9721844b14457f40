"""What all command lines share: common options, and their values."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from steptime.cli.output import open_store
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.kept.kept import Stored

JSON = """\
  --json [FILE]  write one JSON document instead, to FILE or to stdout
"""
JSON_BESIDE = """\
  --json [FILE]  also write one JSON document to FILE; or to stdout alone
"""
STORE = """\
  --store DIR  the folder with .steptime; else the current one
"""
ID = """\
  [ID]  the id or the beginning of it; `last~1` is the run before; `run`, `study` or `fit` the
      newest of its kind (default: last)
"""
MACHINE = """\
  --python FILE  the Python with the torch of the training; without it, the first on the PATH
  --data DIR  the folder with the training data (default: .)
"""
CONTAINED = """\
  --share-network  let trials use this machine's network and socket files
  --unsafe-trials  run trials even if nothing here keeps them from harm
"""
REMOVAL = """\
  --yes  remove without asking
  --dry-run  only say what would be removed
output:
"""


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


def was_given(options: argparse.Namespace, name: str) -> bool:
    """Return whether an option without a default was given; 0 was."""
    value = getattr(options, name)
    return value is not None and value is not False


def need_at_least(options: argparse.Namespace, least: int, *names: str) -> None:
    """Refuse whole numbers that are too small; an option that was not given is none.

    Raises:
        UsageError: one is below `least`.
    """
    for name in names:
        number = getattr(options, name)
        if number is not None and number < least:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} must be {least} or more, got {number}.")


def find_named(options: argparse.Namespace, *, of_run: Sequence[str]) -> Stored:
    """Return the run, study or fit that `ID` names; with an option `of_run`, `last` is a run.

    Raises:
        NotFoundError: there is none.
        UsageError: it is no run, and an option of runs was given.
    """
    from steptime.app.kept.kept import KINDS, find_kept

    given = [flag for flag in of_run if was_given(options, flag.strip("-"))]
    wanted = "run" if given and options.id == "last" else options.id
    found = find_kept(open_store(store_folder(options), kind=None), wanted)
    if given and found.kind != "runs":
        raise UsageError(
            f"{given[0]} has no effect with a {KINDS[found.kind]}.",
            hint="Leave it out, or name a run: steptime list runs",
        )
    return found


def data_folder(options: argparse.Namespace) -> Path:
    """Return the folder of `--data`.

    Raises:
        UsageError: there is none.
    """
    if not os.path.isdir(options.data):
        raise UsageError(
            f"--data: there is no folder `{options.data}`.", hint="Name an existing one."
        )
    return Path(options.data)


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
