"""Removes folders of the store after a question, for `steptime rm` and `steptime prune`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.output import STDOUT, say, tell, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.app.kept.kept import Stored


def remove_all(
    options: argparse.Namespace,
    found: Sequence[Stored],
    *,
    verb: str,
    stay: Sequence[tuple[Stored, str]] = (),
) -> int:
    """Say what goes and what stays and why, ask, and remove it; return the exit code.

    Raises:
        UsageError: there is no terminal to ask.
    """
    from steptime.app.kept.kept_list import summary_of
    from steptime.app.kept.removal import remove
    from steptime.core.units import format_bytes
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import RemovedDocument

    is_asked = bool(found) and not (options.dry_run or options.yes)
    if is_asked and (options.json == STDOUT or not (sys.stdin and sys.stdin.isatty())):
        raise UsageError("there is no terminal to ask.", hint="Add --yes, or --dry-run to see it.")
    rows = tuple(summary_of(one) for one in found)
    for one, reason in stay:
        tell(f"{one.id} stays: {reason}")
    for row in rows:
        say(f"{row.id}  {row.kind:<13}  {format_bytes(row.bytes):>9}")
    size = sum(row.bytes for row in rows)
    is_done = (
        bool(rows) and not options.dry_run and (not is_asked or _is_wanted(format_bytes(size)))
    )
    if is_done:
        remove(found)
        tell(f"removed: {len(rows)} ({format_bytes(size)})")
    elif not rows:
        tell("there is nothing to remove")
    if options.json is not None:
        document = RemovedDocument(is_removed=is_done, folders=rows, bytes=size)
        write_json(options.json, enclose(verb, document))
    return 0


def _is_wanted(size: str) -> bool:
    say(f"Remove them, {size}? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
