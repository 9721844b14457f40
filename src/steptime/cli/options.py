"""What all command lines share: common options, and their values."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from steptime.cli.output import STDOUT, check_target, open_store
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.kept.kept import Stored


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
BESIDE = "also write one JSON document to FILE; or to stdout alone"


def add_json(group: argparse._ActionsContainer, *, what: str = INSTEAD) -> None:
    """Add `--json`, alone for stdout or with a file."""
    group.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help=what,
    )


def add_id(parser: argparse.ArgumentParser, *, only_runs: bool = False) -> None:
    """Add the argument that names a run, a study or a fit; the newest where it is left out."""
    others = "" if only_runs else "; or the newest `run`, `study` or `fit`"
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        default="last",
        help="the id, or the beginning of it; `last` for the newest (default), `last~1` for the "
        f"run before{others}",
    )


def find_named(options: argparse.Namespace, *, of_run: Sequence[str]) -> Stored:
    """Return the run, study or fit that `ID` names; with an option of runs, `last` is a run.

    Args:
        options: of the command line.
        of_run: the options that only a run has.

    Raises:
        NotFoundError: there is none.
        UsageError: it is no run, and an option of runs was given.
    """
    from steptime.app.kept.kept import KINDS, find_kept

    given = [flag for flag in of_run if getattr(options, flag.strip("-")) not in (None, False)]
    wanted = "run" if given and options.id == "last" else options.id
    found = find_kept(open_store(store_folder(options), kind=None), wanted)
    if given and found.kind != "runs":
        raise UsageError(
            f"{given[0]} has no effect with a {KINDS[found.kind]}.",
            hint="Leave it out, or name a run: steptime list runs",
        )
    return found


def add_machine(parser: argparse.ArgumentParser, *, what: str) -> None:
    """Add `--python` and `--data`, the parts of this machine that are `measured` or `checked`."""
    parser.add_argument(
        "--python",
        metavar="FILE",
        help=f"the Python whose torch is {what} (default: the first on the PATH)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=".",
        help="the folder with the training data (default: the current folder)",
    )


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


LONGEST = "default: the one that lasted longest"


def add_training(group: argparse._ActionsContainer, *, what: str, default: str = LONGEST) -> None:
    """Add `--training`, which names one of several trainings of a command."""
    group.add_argument(
        "--training",
        metavar="N",
        type=int,
        help=f"{what} training N of a command that started several ({default})",
    )


def add_contained(group: argparse._ActionsContainer, *, who: str = "trials") -> None:
    """Add `--share-network` and `--unsafe-trials`, which weaken the walls around a child."""
    group.add_argument(
        "--share-network",
        action="store_true",
        help=f"let {who} use the network and the socket files of this machine",
    )
    group.add_argument(
        "--unsafe-trials",
        action="store_true",
        help=f"run {who} even if nothing here keeps them from harm",
    )


def add_store(group: argparse._ActionsContainer) -> None:
    """Add `--store`; its default is the current folder."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help="the folder with .steptime (default: the current one)",
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


def add_allow(search: argparse._ArgumentGroup) -> None:
    """Add `--allow-training-changes`: no lever that changes training is named without it."""
    search.add_argument(
        "--allow-training-changes",
        action="store_true",
        help="also name levers that change training",
    )
