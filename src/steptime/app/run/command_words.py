"""The command of a library call: its words, or one string that is split like in a shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from steptime.errors import UsageError
from steptime.record.hidden_words import HIDDEN


def as_argv(command: str | Sequence[str | os.PathLike[str]], *, what: str) -> tuple[str, ...]:
    """Return the argv of a command; `what` is the name of the call, for messages.

    Raises:
        UsageError: there is no word, a quote is left open, or this is Windows.
    """
    if sys.platform == "win32":
        raise UsageError(
            f"`steptime.{what}` does not work on Windows.", hint="Use it in WSL 2, a Linux."
        )
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UsageError(
                f"the command cannot be split into words: {error}.",
                hint="Pass a list of its words.",
            ) from error
    else:
        words = [os.fspath(word) for word in command]
    if not words:
        raise UsageError(
            "no command was given.", hint=f"Write: steptime.{what}(['python', 'train.py'])"
        )
    return tuple(words)


def need_all_words(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that a run or a study has kept, if it can be started again.

    Raises:
        UsageError: a secret among its words was not kept.
    """
    if any(HIDDEN in word for word in command):
        raise UsageError(
            "the command had a secret among its words, which Steptime did not keep.",
            hint="Give the command itself.",
        )
    return command
