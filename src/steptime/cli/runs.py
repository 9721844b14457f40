"""`steptime runs`: the runs of this folder, newest first."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.output import STDOUT, check_target, console_for, open_store, write_json

if TYPE_CHECKING:
    from steptime.core.index import RunSummary

SUMMARY = "list the runs of this folder"
DESCRIPTION = "List the runs of this folder, newest first."
USAGE = "steptime runs [options]"
EXAMPLES = """\
examples:
  steptime runs
  steptime runs --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `runs`."""
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help="one JSON document instead (default: on stdout)",
    )
    store = parser.add_argument_group("store")
    store.add_argument(
        "--store",
        metavar="DIR",
        default=".",
        help="folder that holds .steptime (default: this one)",
    )
    store.add_argument(
        "--reindex", action="store_true", help="build the index anew from the run folders"
    )


def execute(options: argparse.Namespace) -> int:
    """Print the list."""
    if options.json != STDOUT:
        check_target("--json", options.json)
    from steptime.core.listing import list_runs, reindex

    store = open_store(options.store)
    rows = reindex(store) if options.reindex else list_runs(store)
    if options.json is None:
        _print_table(rows)
    else:
        _write_document(options.json, store, rows)
    return 0


def _print_table(rows: tuple[RunSummary, ...]) -> None:
    """The runs in columns; on a terminal a long command is cut, in a pipe it is whole."""
    from steptime.report.page import columns, shortened

    console = console_for(sys.stdout)
    heading = ("run", "state", "diagnosis", "steps", "step time")
    lines = columns([heading, *map(_cells, rows)], left=3)
    commands = ["command", *(_command_text(row) for row in rows)]
    for line, command in zip(lines, commands, strict=True):
        left = console.width - line.cell_len - 2
        text = shortened(command, max(left, 10)) if console.is_terminal else command
        console.print(line, text, sep="  ", markup=False, highlight=False, soft_wrap=True)


def _cells(row: RunSummary) -> tuple[str, ...]:
    from steptime.core.units import format_seconds
    from steptime.report.words import describe_title

    return (
        row.run_id,
        row.state.value,
        "" if row.kind is None else describe_title(row.kind),
        "" if row.num_steps is None else str(row.num_steps),
        "" if row.step_time_s is None else format_seconds(row.step_time_s),
    )


def _command_text(row: RunSummary) -> str:
    from steptime.report.page import printable

    return printable(shlex.join(row.command))


def _write_document(target: str, store: Path, rows: tuple[RunSummary, ...]) -> None:
    from steptime.core.codec import to_json
    from steptime.report.envelope import Envelope

    data = {"store": str(store), "runs": [to_json(row) for row in rows]}
    write_json(target, Envelope(command="runs", exit_code=0, data=data))
