"""`steptime runs`: the runs of this folder, newest first."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steptime.cli.options import add_json, add_store, check_json, store_folder
from steptime.cli.output import console_for, open_store, write_json

if TYPE_CHECKING:
    pass

SUMMARY = "list the runs that were made in this folder"
DESCRIPTION = "List the runs that were made in this folder, the newest first."
USAGE = "steptime runs [options]"
EXAMPLES = """\
examples:
  steptime runs
  steptime runs --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `runs`."""
    output = parser.add_argument_group("output")
    add_json(output)
    store = parser.add_argument_group("store")
    add_store(store)
    store.add_argument(
        "--reindex",
        action="store_true",
        help="build the index of the store again, from the folders of the runs",
    )


def execute(options: argparse.Namespace) -> int:
    """Print the list."""
    check_json(options)
    from steptime.app.stored.current_runs import list_current_runs

    store = open_store(store_folder(options))
    rows = list_current_runs(store, is_fresh=options.reindex)
    if options.json is None:
        from steptime.core.store import store_to_name
        from steptime.report.blocks.run.run_list import run_list
        from steptime.report.text.paint_text import print_blocks

        blocks = run_list(rows, store=store_to_name(store))
        print_blocks(blocks, console=console_for(sys.stdout))
    else:
        from steptime.report.document.envelope import enclose
        from steptime.report.document.listings import RunsDocument

        write_json(options.json, enclose("runs", RunsDocument(store=str(store), runs=rows)))
    return 0
