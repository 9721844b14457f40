"""`steptime run`: start the command, wait for it, say what was seen."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.counters import add_counter_options, write_counters
from steptime.cli.options import add_store, store_folder, take_command
from steptime.cli.output import check_target, console_for, say, tell, write_json
from steptime.errors import NotStartedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from steptime.app.beside import MakeLine
    from steptime.app.observe import EndedRun
    from steptime.app.observed_run import ObservedRun
    from steptime.app.prepare import RunOptions
    from steptime.measure.values.profiled import ProfileWish

SUMMARY = "measure a training command, unmodified"
DESCRIPTION = "Run a training command as it is, measure its steps, and say what holds it back."
USAGE = "steptime run [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
The command keeps its input, output, signals and exit code. When it has ended,
the report goes to stderr.

examples:
  steptime run -- python train.py --lr 3e-4
  steptime run --json result.json -- torchrun --nproc-per-node 2 train.py
  steptime run --count -- python train_compiled.py
  steptime run --profile -- python train.py
  steptime run --live -- python train.py > train.log 2>&1
"""

_PROFILED_FROM = 30  # `measure.values.profiled.DEFAULT_STEP`: the help is built without it


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    training = parser.add_argument_group("training")
    training.add_argument("--recipe", metavar="FILE", help="train with what `tune` has proven")
    training.add_argument(
        "--count",
        action="store_true",
        help="count the work of a step in a short extra run where the script compiles",
    )
    _add_profile_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--report", metavar="FILE", help="write the report there, as plain text")
    output.add_argument("--json", metavar="FILE", help="write the result as one JSON document")
    output.add_argument(
        "--live",
        action="store_true",
        help="show one line while it runs, if its output goes elsewhere",
    )
    add_store(output)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Options by which the user agrees to a profiler in the training."""
    deeper = parser.add_argument_group("deeper looks (slower, and torch may print, for 4 steps)")
    for name, tool in (("--profile", "torch.profiler"), ("--nsys", "Nsight Systems")):
        deeper.add_argument(
            name,
            metavar="STEP",
            nargs="?",
            type=int,
            const=_PROFILED_FROM,
            help=f"{tool} around 3 steady steps from STEP on (default: {_PROFILED_FROM})",
        )
    deeper.add_argument(
        "--profile-stacks",
        action="store_true",
        help="with --profile: the functions of the script that led there; slower again",
    )
    add_counter_options(deeper)


def execute(options: argparse.Namespace) -> int:
    """Run the command; the exit code is its own."""
    asked = _run_options(options)
    from steptime.app.attempt import attempt
    from steptime.launch.user_command import shell_exit_code

    try:
        ended = _run(asked, is_live=options.live)
    except NotStartedError as error:
        if asked.command[0].endswith(".py"):
            words = shlex.join(["python", *asked.command])
            error.hint = f"Name its interpreter: steptime run -- {words}"
        raise
    code = shell_exit_code(ended.end)
    try:
        attempt(lambda: _conclude(options, ended, code), tell=say)
    except KeyboardInterrupt:
        tell("the report was interrupted. Print it: steptime show last")
    return code


def _run(asked: RunOptions, *, is_live: bool) -> EndedRun:
    """Start the command and wait for it; nothing is said meanwhile."""
    from steptime.app.observe import run_in_foreground
    from steptime.app.prepare import prepare
    from steptime.launch.user_command import release_streams, user_environment

    plan = prepare(asked, user_environment(), tell=tell)
    make_line = _line_maker() if is_live else None
    return run_in_foreground(plan, on_start=release_streams, make_line=make_line)


def _run_options(options: argparse.Namespace) -> RunOptions:
    """What the command line says, checked before anything starts."""
    command = take_command(options, verb="run", usage=USAGE)
    check_target("--report", options.report)
    check_target("--json", options.json)
    profile = _profile_wish(options)
    from steptime.app.prepare import RunOptions

    return RunOptions(
        command=command,
        store=Path(store_folder(options)),
        recipe=None if options.recipe is None else Path(options.recipe),
        counts=options.count,
        profile=profile,
    )


def _profile_wish(options: argparse.Namespace) -> ProfileWish | None:
    """The profiler that the options ask for; None if none."""
    wants_counters = options.ncu is not None or options.perf
    if options.nsys is not None and (options.profile is not None or wants_counters):
        raise UsageError(
            "--nsys goes with neither --profile nor --ncu nor --perf: one profiler at a time.",
            hint="Make two runs.",
        )
    first_step = options.profile if options.nsys is None else options.nsys
    if first_step is None and wants_counters:
        first_step = _PROFILED_FROM  # its counts of kernels and its times are needed
    if options.profile_stacks and (first_step is None or options.nsys is not None):
        raise UsageError(
            "--profile-stacks needs --profile.", hint="Add it: --profile --profile-stacks"
        )
    if first_step is None:
        return None
    if first_step < 1:
        name = "--profile" if options.nsys is None else "--nsys"
        raise UsageError(
            f"{name} takes the number of a step from 1 on, got {first_step}.",
            hint=f"Without a number it is {_PROFILED_FROM}.",
        )
    from steptime.measure.values import profiled

    tool = profiled.TORCH if options.nsys is None else profiled.NSYS
    return profiled.ProfileWish(
        tool=tool, first_step=first_step, with_stacks=options.profile_stacks
    )


def _line_maker() -> MakeLine | None:
    """What makes the live line; where none can be shown, the reason is said now, and it is None."""
    from steptime.cli.live import RunLine, why_no_line

    reason = why_no_line()
    if reason is None:
        return RunLine
    tell(f"no live line: {reason}")
    return None


def _conclude(options: argparse.Namespace, ended: EndedRun, code: int) -> None:
    """Report on the run, where and how the options say."""
    from steptime.app.attempt import attempt
    from steptime.app.observe import conclude

    observed, notes = conclude(ended, counts=options.count, tell=tell)
    for note in dict.fromkeys(notes):  # a full disk says the same of each file
        tell(note)
    if observed is not None:
        attempt(lambda: _report(options, observed), tell=tell)
    if options.json is not None:
        attempt(lambda: _write_document(options.json, observed, notes, code), tell=tell)
    if observed is not None and observed.measurement.num_steps > 0:
        # Last, for it takes longest and is the least to lose.
        attempt(lambda: _offer_page(observed, notes), tell=tell)


def _report(options: argparse.Namespace, observed: ObservedRun) -> None:
    if options.report is not None:
        with Path(options.report).open("w", encoding="utf-8") as file:
            _render(options, observed, console_for(file, is_plain=True))
    elif sys.stderr is not None:
        _render(options, observed, console_for(sys.stderr))


def _render(options: argparse.Namespace, observed: ObservedRun, console: Console) -> None:
    observed.render(console)
    if not observed.is_empty:
        write_counters(observed.measurement, console, kernel=options.ncu, perf=options.perf)


def _write_document(
    target: str, observed: ObservedRun | None, notes: Sequence[str], code: int
) -> None:
    from steptime.report.document.envelope import ErrorItem, enclose
    from steptime.report.document.run_document import run_envelope

    if observed is None:
        item = ErrorItem(code="not_observed", message=" ".join(notes))
        write_json(target, enclose("run", None, exit_code=code, errors=(item,)))
        return
    write_json(target, run_envelope(observed.document, command="run", exit_code=code))


def _offer_page(observed: ObservedRun, told: Sequence[str]) -> None:
    """Write the page and say where it is, or how to get it, in one line on stderr.

    `told` is what went wrong and was said: a full disk is not said again.
    """
    from steptime.app.attempt import attempt
    from steptime.app.report import INSTALL, write_page

    again = f"steptime report {observed.run_id}"
    if find_spec("bokeh") is None:
        tell(f"for a page of this run: {INSTALL}, then: {again}")
        return

    def tell_why(note: str) -> None:
        reason = note.rpartition(": ")[2].rstrip(".")
        is_known = any(reason in one for one in told)
        say("not written, for the same reason" if is_known else f"not written: {note}")

    # The place follows when it is written: in a second or two, longer on a busy machine.
    say("steptime: the page of this run: ", end="")
    try:
        path = attempt(lambda: write_page(observed), tell=tell_why)
    except KeyboardInterrupt:
        say(f"interrupted. Write it: {again}")
        return
    if path is not None:
        say(str(path))
