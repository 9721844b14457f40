"""What the commands say, and where: words go to stderr, reports and documents to their place."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from steptime.errors import NotFoundError, SteptimeError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.report.blocks.values import Block, Sheet
    from steptime.report.document.envelope import Envelope

STDOUT = "-"
"""The target of `--json` without a file."""

VERDICT_CODES = {"PASS": 0, "FAIL": 5, "INCONCLUSIVE": 4}
"""What a command ends with that gives a verdict."""

_REPORT_WIDTH = 100

_TONE = {"quiet": False, "plain": False, "verbose": False}
"""What `-q`, `--no-color` and `-v` asked of this process."""


def set_tone(*, is_quiet: bool, is_colored: bool, is_verbose: bool) -> None:
    """Take what `-q`, `--no-color` and `-v` ask, for all that this process says from now on."""
    _TONE.update(quiet=is_quiet, plain=not is_colored, verbose=is_verbose)


def is_quiet() -> bool:
    """Return whether only results and errors are wanted."""
    return _TONE["quiet"]


def is_verbose() -> bool:
    """Return whether all of a report is wanted, however small the terminal is."""
    return _TONE["verbose"]


def say(text: str, *, end: str = "\n") -> None:
    """Print a line to stderr; it does not fail if stderr is closed or full."""
    if sys.stderr is None:
        return
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Whatever is left in its buffer would make Python end with 120.
        sys.stderr = None


def tell(text: str) -> None:
    """Say a sentence that comes from this program itself: `steptime: ...`.

    It may name a file, so control characters are written out.
    """
    from steptime.core.printable import printable

    if not is_quiet():
        say(f"steptime: {printable(text)}")


def error_text(error: SteptimeError) -> str:
    """Return the error as people read it: what happened, then what to do.

    The text may hold what the user typed, so control characters are written out.
    """
    from steptime.core.printable import printable

    lines = [*str(error).splitlines(), *(error.hint or "").splitlines()]
    return "error: " + "\n       ".join(printable(line) for line in lines)


def open_store(folder: str | None, *, kind: str | None = "runs") -> Path:
    """Return the store of the runs (or another kind; None: of any) in a folder, or the current one.

    Raises:
        NotFoundError: there is none.
    """
    if kind is None:
        from steptime.app.kept.kept import KINDS

        for one in KINDS:
            with suppress(NotFoundError):
                return open_store(folder, kind=one)
        kind = "runs"
    from steptime.core.store import find_store, other_store, store_in, why_unwritable

    store = find_store(None if folder is None else Path(folder), kind=kind)
    wanted = store_in(Path(folder or "."))
    if store != wanted:
        because = why_unwritable(wanted, kind=kind)
        tell(f"{wanted} cannot be written ({because}); these {kind} are in {store}")
    elif folder is None and (other := other_store(wanted, kind=kind)) is not None:
        because = why_unwritable(wanted, kind=kind)
        newer = f"newer {kind} are elsewhere: --store {other.parent}"
        tell(f"{wanted} cannot be written ({because}); {newer}")
    return store


def console_for(file: TextIO, *, is_plain: bool = False) -> Console:
    """Return a console; a plain one has neither color nor the width of any terminal."""
    from rich.console import Console

    from steptime.record.numbers_told import whole_number_in

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 (rich would end the process with 1, whatever the command's code)

    # Rich makes a number of `²`, for `isdigit` is true of it.
    sizes = ("COLUMNS", "LINES")
    told = {k: v for k, v in os.environ.items() if k not in sizes or whole_number_in(v)}
    if is_plain:
        return Piped(
            file=file, width=_REPORT_WIDTH, force_terminal=False, color_system=None, _environ=told
        )
    return Piped(file=file, no_color=_TONE["plain"] or None, _environ=told)


def put(
    options: argparse.Namespace,
    envelope: Envelope[object],
    report: Callable[[], Sheet | Iterable[Block]],
    *,
    is_beside: bool = False,
) -> None:
    """Write the document where `--json` says, and print the report where it leaves room for it.

    With `is_beside`, a document in a file stands beside the report, not instead of it.
    """
    if options.json is not None:
        write_json(options.json, envelope)
    if options.json is None or (is_beside and options.json != STDOUT):
        paint(options, report())


def paint(options: argparse.Namespace, report: Sheet | Iterable[Block]) -> None:
    """Print a report, or blocks, as text or as `--format` says."""
    from steptime.report.blocks.values import Sheet
    from steptime.report.text.paint_text import print_blocks, print_report

    if not isinstance(report, Sheet):
        print_blocks(report, console=console_for(sys.stdout))
    elif getattr(options, "format", "text") == "md":
        from steptime.report.markdown.paint_markdown import paint_markdown

        print(paint_markdown(report), end="")
    else:
        print_report(report, console=console_for(sys.stdout))


def write_json(target: str, envelope: Envelope[object]) -> None:
    """Write the one document to stdout or to the named file.

    Raises:
        SteptimeError: the file cannot be written.
    """
    from steptime.core.codec import render

    write_text(target, render(envelope))


def write_text(target: str, text: str) -> None:
    """Write what `--json` was asked for to stdout or to the named file.

    Raises:
        SteptimeError: the file cannot be written.
    """
    if target == STDOUT:
        print(text, end="")
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SteptimeError(f"--json: {error}") from error


def write_failure(error: SteptimeError, words: Sequence[str]) -> None:
    """Write the document of a command that failed, if the words ask for one.

    The words are read without argparse, because they may be what it refused.
    """
    from steptime.report.document.envelope import error_envelope

    target = None
    for index, word in enumerate(words):
        if word.startswith("--json="):
            target = word.partition("=")[2]
        elif word == "--json":
            following = words[index + 1] if index + 1 < len(words) else STDOUT
            target = STDOUT if following.startswith("-") else following
    if target and not (target == STDOUT and words[0] == "run"):
        with suppress(SteptimeError, OSError):  # a full disk may be why it failed
            check_target("--json", None if target == STDOUT else target)
            write_json(target, error_envelope(words[0], error))


_OURS = re.compile(
    rb'\s*(\{\s*"command": "|\{\s*"\$schema": |\{"traceEvents":|\x1f\x8b|--- '
    rb'|<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Sec'
    rb"|## Steptime: |steptime: |(steptime|diagnosis|machine|error|ended|outcome|result|checked"
    rb"|recipe|note) {2,}\S|\Z)"
)
"""How what we write begins: a document, a schema, a trace, a diff, a page, a report; or nothing."""


def check_target(flag: str, value: str | None, *, is_recipe: bool = False) -> None:
    """Refuse a file that cannot be written, before anything is started.

    Args:
        flag: that names the file.
        value: its path; None where it was not given.
        is_recipe: whoever writes the recipe looks at what is there.

    Raises:
        UsageError: its folder is missing, it is a folder, or a file that we did not write.
    """
    if value is None:
        return
    from steptime.record.regular_file import open_regular

    path = Path(value)
    if not os.path.isdir(path.parent):
        raise UsageError(
            f"{flag}: there is no folder `{path.parent}`.", hint=f"Make it: mkdir -p {path.parent}"
        )
    if os.path.isdir(path):
        raise UsageError(f"{flag}: `{path}` is a folder.", hint="Name a file in it.")
    if is_recipe or not path.is_file():  # a device or a pipe may be written to
        return
    try:
        with open_regular(path, max_bytes=1 << 40) as file:
            is_ours = _OURS.match(file.read(4096)) is not None
    except OSError as error:
        raise UsageError(f"{flag}: {error}") from error
    if not is_ours:
        raise UsageError(
            f"{flag}: `{path}` exists and is no report or document of Steptime; it stays as it is.",
            hint="Name another file, or move this one away.",
        )
