"""The command that shows a run again, for whoever reads of the run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.launch.values import CELL

SHOW = "steptime show"


def is_cell(command: Sequence[str]) -> bool:
    """Return whether it was one cell of a notebook, which no command can run again."""
    return tuple(command[:1]) == (CELL,)


def words_again(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that run a command again; of a cell, those of a script made from it."""
    return ("python", "train.py") if is_cell(command) else tuple(command)


def show_command(
    run_id: str, *, training: int | None = None, store: str | None = None, option: str = ""
) -> str:
    """Return `steptime show ID` with the options that it needs, and with another `option`.

    `training` is None where the command has one, and `store` for the store of this folder.
    """
    words = [*SHOW.split(), run_id]
    if training is not None:
        words += ["--training", str(training)]
    words += [option] if option else []
    if store is not None:
        words += ["--store", store]
    return printable(shlex.join(words))
