"""`steptime stacks`: where each rank of a running command stands just now."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from steptime.cli.options import add_json, add_store, check_json, store_folder
from steptime.cli.output import open_store, say, write_json
from steptime.errors import NotFoundError

if TYPE_CHECKING:
    from steptime.core.store import Run
    from steptime.measure.values.stall import Stall, StalledRank

SUMMARY = "show where each rank of a running command stands"
DESCRIPTION = """\
Take the Python stack of every rank of a run that is still going, from outside:
what each waits in, at which line, for whom. Nothing is stopped or changed.
"""
USAGE = "steptime stacks ID [options]"
EXAMPLES = """\
Of a run that has ended: the stacks that were taken while it stood still.

examples:
  steptime stacks last
  steptime stacks 20261120-1015 --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `stacks`."""
    parser.add_argument("run", metavar="ID", help="run id, its beginning, or `last`")
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Look, and print what was seen."""
    check_json(options)
    from steptime.app.run_listing import find_run
    from steptime.report.document.envelope import enclose
    from steptime.report.document.listings import StacksDocument
    from steptime.watch.rank_stacks import probe_ranks

    run = find_run(open_store(store_folder(options)), options.run)
    ranks, culprits = probe_ranks(run.folder)
    if not ranks:
        stall = _last_stall(run)
        say(f"steptime: run {run.run_id} goes on no more; these were taken while it stood still")
        ranks, culprits = stall.ranks, stall.culprits
    if options.json is None:
        _print(ranks, culprits)
        return 0
    seen = StacksDocument(
        run_id=run.run_id,
        taken_unix_s=round(time.time(), 3),
        ranks=ranks,
        culprits=culprits,
    )
    write_json(options.json, enclose("stacks", seen))
    return 0


def _last_stall(run: Run) -> Stall:
    """The newest stall of a run without processes.

    Raises:
        NotFoundError: it never stood still.
    """
    from steptime.app.run_listing import read_end
    from steptime.core.process_end import RunState
    from steptime.record.lines import Torn
    from steptime.report.words.run_words import describe_end
    from steptime.watch.stall_file import read_stalls

    stalls = read_stalls(run.folder, Torn())
    if stalls:
        return stalls[-1]
    end = read_end(run)
    if end.state is RunState.RUNNING:
        raise NotFoundError(
            f"run {run.run_id} has no Python process that uses torch, none yet or none here.",
            hint="Try again when it trains, on the machine that it runs on.",
        )
    raise NotFoundError(
        f"run {run.run_id} has ended ({describe_end(end)}), and never stood still while it ran: "
        "there are no stacks.",
        hint=f"See its report: steptime show {run.run_id}",
    )


def _print(ranks: tuple[StalledRank, ...], culprits: tuple[int, ...]) -> None:
    from steptime.report.text.page import printable
    from steptime.report.text.stall_text import describe_ranks, stack_lines

    for sentence in describe_ranks(ranks, culprits):
        print(printable(sentence))
    for one in ranks:
        for line in ("", *stack_lines(one)):
            print(printable(line))
