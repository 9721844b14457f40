"""`steptime stacks`: where each rank of a running command is right now."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from steptime.cli.options import (
    add_json,
    add_run_id,
    add_store,
    add_training,
    check_json,
    store_folder,
)
from steptime.cli.output import open_store, tell, write_json

if TYPE_CHECKING:
    from steptime.app.run.stacks import RankStacks

SUMMARY = "show which line each rank of a running command is at"
DESCRIPTION = """\
Show the Python stack of every rank of a run that is still going: at which line
it is, what it waits for, and for which other rank; and where ranks stand still
in different collectives, what each of them called. The stacks are read from
outside; nothing is stopped or changed.
"""
USAGE = "steptime stacks ID [options]"
EXAMPLES = """\
If the run has ended, the stacks of its last stall are shown.

examples:
  steptime stacks last
  steptime stacks 20261120-1015 --json
  steptime stacks last --training 2
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stacks`."""
    add_run_id(parser)
    add_training(parser, what="show", default="default: all of them")
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Take the stacks, and print them."""
    check_json(options)
    from steptime.app.run.stacks import take_stacks
    from steptime.app.stored.run_listing import find_run
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import StacksDocument

    run = find_run(open_store(store_folder(options)), options.run)
    found = take_stacks(run, training=options.training)
    if found.is_past:
        tell(f"run {run.run_id} has ended; these stacks were taken while it was stalled")
    if options.json is None:
        _print(found)
        return 0
    seen = StacksDocument(
        run_id=run.run_id,
        taken_unix_s=round(time.time(), 3),
        ranks=found.ranks,
        culprits=found.culprits,
        desync=found.desync,
    )
    write_json(options.json, enclose("stacks", seen))
    return 0


def _print(found: RankStacks) -> None:
    from steptime.core.printable import printable
    from steptime.diagnose.ailments.ranks.desynced import describe_desync
    from steptime.report.blocks.run.stall_blocks import describe_ranks, stack_lines

    if found.desync is not None:
        print(printable(describe_desync(found.desync)))
    for sentence in describe_ranks(found.ranks, found.culprits):
        print(printable(sentence))
    for one in found.ranks:
        for line in ("", *stack_lines(one)):
            print(printable(line))
