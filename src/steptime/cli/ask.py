"""`steptime ask`: asks a run while it trains."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steptime.cli.options import (
    add_json,
    add_run_id,
    add_store,
    add_training,
    check_json,
    parse_time,
    store_folder,
)
from steptime.cli.output import console_for, open_store, tell, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steptime.app.run.conversation import Waiting
    from steptime.app.run.run_answer import RunAnswer

SUMMARY = "ask a training that runs: its memory, its work, a profile"
DESCRIPTION = """\
Ask a training while it runs. Its processes examine one step or a few of them,
and go on; nothing is stopped, and not a bit of what they compute changes. The
steps that were examined count in no figure of the run's report.
"""
USAGE = "steptime ask ID QUESTION [options]"
EXAMPLES = """\
Ctrl-C takes the question back. A run answers one question at a time.

examples:
  steptime ask last --memory
  steptime ask last --count --timeout 5m
  steptime ask last --profile 5 --json
  steptime ask last --health 200
  steptime ask last --stacks
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ask`."""
    add_run_id(parser)
    group = parser.add_argument_group("question")
    questions = group.add_mutually_exclusive_group(required=True)
    questions.add_argument(
        "--memory",
        action="store_true",
        help="who holds the memory: weights, states, activations, other tensors by shape",
    )
    questions.add_argument(
        "--count",
        action="store_true",
        help="the work of a step in FLOP, by operator class and type",
    )
    questions.add_argument(
        "--profile",
        metavar="STEPS",
        nargs="?",
        type=int,
        const=3,
        help="record STEPS steps with torch.profiler (default: 3): these are slower, torch may "
        "print, and a trace is left",
    )
    questions.add_argument(
        "--health",
        metavar="STEPS",
        nargs="?",
        type=int,
        const=50,
        help="probe the layers for STEPS steps (default: 50): the first one whose numbers are not "
        "finite, and norms of gradients and updates",
    )
    questions.add_argument(
        "--stacks",
        action="store_true",
        help="at which line each rank is, as `steptime stacks` shows it; no step has to end",
    )
    group.add_argument(
        "--timeout",
        metavar="TIME",
        help="how long to wait for an answer, such as 30s or 5m (default: 60s, and longer where "
        "steps take long)",
    )
    add_training(group, what="ask", default="default: all that run")
    output = parser.add_argument_group("output")
    add_json(output)
    add_store(output)


def execute(options: argparse.Namespace) -> int:
    """Ask, and print the answers; 1 if a rank did not answer."""
    check_json(options)
    timeout_s = None if options.timeout is None else parse_time(options.timeout, flag="--timeout")
    from steptime.app.run.ask import ask_run
    from steptime.app.stored.run_listing import find_run

    run = find_run(open_store(store_folder(options)), options.run)
    with _progress() as show:
        answer = ask_run(
            run,
            _what(options),
            num_steps=options.health if options.profile is None else options.profile,
            timeout_s=timeout_s,
            training=options.training,
            show=show,
        )
    code = 0 if answer.is_whole else 1
    if options.json is not None:
        _write_document(options.json, answer, code)
    else:
        answer.render(console_for(sys.stdout))
    if not answer.is_whole:
        silent = [str(one.rank) for one in answer.ranks if one.missing is not None]
        tell(f"{len(silent)} of {len(answer.ranks)} ranks gave no answer: {', '.join(silent)}")
    return code


def _what(options: argparse.Namespace) -> str:
    for what in ("profile", "health"):
        if getattr(options, what) is not None:
            return what
    return next(what for what in ("memory", "count", "stacks") if getattr(options, what))


@contextmanager
def _progress() -> Iterator[Callable[[Waiting], None]]:
    """Show on the terminal who is waited for, and for how long."""
    from steptime.cli.progress import OverwrittenLine
    from steptime.report.words.answer_words import describe_waiting

    line = OverwrittenLine(sys.stderr)

    def show(waiting: Waiting) -> None:
        line.show(
            describe_waiting(
                waiting.what, waiting.num_answered, waiting.num_asked, left_s=waiting.left_s
            )
        )

    try:
        yield show
    finally:
        line.close()


def _write_document(target: str, answer: RunAnswer, code: int) -> None:
    from steptime.errors import NotAnsweredError
    from steptime.report.document.envelope import ErrorItem, enclose

    errors = tuple(
        ErrorItem(code=NotAnsweredError.code, message=f"rank {one.rank}: {one.missing}")
        for one in answer.ranks
        if one.missing is not None
    )
    write_json(target, enclose("ask", answer.document, exit_code=code, errors=errors))
