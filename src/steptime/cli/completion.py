"""Completes a command line for the shell, with the ids of what the store holds.

In: what argcomplete's hook puts into the environment. Out: words for the shell. A person waits at
each Tab, so only one command's parser is built, and a store is no more than listed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NoReturn

from steptime.cli.parser import Parser

_OF_RUNS = ("run", "pid_run")
"""Words that only a run is named by."""

_LAST = ("last", "run", "study", "fit")


def complete(build: Callable[[str | None], Parser], commands: tuple[str, ...]) -> NoReturn:
    """Answer the shell's question, and end the process."""
    try:
        import argcomplete
    except (ImportError, RuntimeError):
        raise SystemExit(1) from None  # the hook is of another environment
    Parser.is_strict = False
    words = os.environ.get("COMP_LINE", "").split()[1:]
    verb = words[0] if words and words[0] in commands else None
    parser = build(verb)
    for one in _parsers(parser):
        for action in one._actions:
            if action.dest in ("id", *_OF_RUNS) and not action.option_strings:
                action.completer = _ids  # type: ignore[attr-defined]
            elif action.dest in ("levers", "exclude", "name"):
                action.completer = _levers  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)
    raise SystemExit(0)


def _parsers(parser: Parser) -> list[Parser]:
    return [parser, *(found for one in parser.commands.values() for found in _parsers(one))]


def _ids(
    prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: object
) -> list[str]:
    """Return the ids in the store, newest first."""
    store = os.path.join(getattr(parsed_args, "store", None) or ".", ".steptime")
    found: list[str] = []
    for kind in ("runs",) if action.dest in _OF_RUNS else ("runs", "studies", "fits"):
        try:
            found += [name for name in os.listdir(os.path.join(store, kind)) if name[0] != "."]
        except OSError:
            continue
    words = ("last",) if action.dest in _OF_RUNS else _LAST
    return [*(words if action.nargs == "?" else ()), *sorted(found, reverse=True)]


def _levers(prefix: str, **_: object) -> list[str]:
    """Return the names of levers, behind those that stand before the last comma."""
    from steptime.levers import NAMES

    done = prefix.rpartition(",")[0]
    return [f"{done},{name}" if done else name for name in NAMES]
