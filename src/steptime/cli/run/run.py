"""`steptime run`: starts the command, waits for it, and says what was seen."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.options import STORE, store_to_write, take_command
from steptime.cli.output import check_target, console_for, is_verbose, say, tell, write_json
from steptime.cli.run.profilers import profile_wish
from steptime.cli.run.stop_options import checksum_level, stop_wish

if TYPE_CHECKING:
    from steptime.app.run.beside import MakeLine
    from steptime.app.run.observe import EndedRun
    from steptime.app.run.observed_run import ObservedRun
    from steptime.app.run.prepare import RunOptions
    from steptime.core.process_end import ProcessEnd

SUMMARY = "measure a training command without changing it"
DESCRIPTION = "Run a training command as it is, measure its steps, and say what holds it back."
USAGE = "steptime run [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
The command keeps its input, its output, its signals and its exit code. When it
has ended, Steptime writes its report to stderr. A training that goes on in the
background is followed: `steptime show` has the steps that it made since.

examples:
  steptime run -- python train.py --lr 3e-4
  steptime run --json result.json -- torchrun --nproc-per-node 2 train.py
  steptime run --count --peak bf16=312 -- python train_compiled.py
  steptime run --stop-on non_finite,stall --after 100 -- python train.py
  steptime run --health --live -- python train.py > train.log 2>&1
  steptime run -- sh -c 'nohup python train.py > train.log 2>&1 &'
"""
OPTIONS = (
    """\
training:
  --recipe FILE  train with the recipe that `steptime tune` wrote to FILE
  --count  count a step's work in a short extra run, where the run must not (it compiles)
  --peak TYPE=TFLOPS  the dense peak of the device (or CPU) for a type such as bf16 or tf32; MFU
      and HFU are shares of it (repeatable)
  --health  name layer and samples of a non-finite number (slower)
  --hourly-price X/h  what an hour of the machine costs, for the run's cost
  --checksums [N]  keep checksums of steps 1, 2, 4, 8, … (default: 1)
  --stop-on WORDS  end it with exit code 5 on non_finite, stall, no_learning or sense (repeatable)
  --after STEPS  let --stop-on end nothing before this step
  --on-finding CMD  run CMD for each finding, which is JSON on its input
profilers (these slow down four steps, and torch may print while it records):
  --profile [STEP]  record three steady steps with torch.profiler, from STEP on (default: 30)
  --nsys [STEP]  the same with Nsight Systems (default: 30)
  --profile-stacks  with --profile: record functions of the script, too
output:
  --report FILE  write the report to FILE as plain text, not to stderr
  --json FILE  write the result to FILE as one JSON document
  --live  show progress in the terminal (the command's output must go to a file), and warn at once
      of a NaN loss or a hang
"""
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Run the command; return the command's own exit code."""
    asked = _run_options(options)
    from steptime.app.run.attempt import attempt
    from steptime.launch.end_alike import SignalExit
    from steptime.launch.user_command import shell_exit_code

    ends: list[ProcessEnd] = []
    try:
        ended = _run(asked, is_live=options.live, on_end=ends.append)
        code = GATE_NOT_MET if _is_stopped(ended) else shell_exit_code(ended.end)
        with attempt(say):
            _conclude(options, ended, code)
    except KeyboardInterrupt:
        if not ends:
            raise
        show = "steptime show last" + _with_store(options.store)
        tell(f"the report was interrupted. To print it: {show}")
    else:
        if code == GATE_NOT_MET and _is_stopped(ended):
            return code
    return (SignalExit if ends[0].signal else int)(shell_exit_code(ends[0]))


GATE_NOT_MET = 5


def _is_stopped(ended: EndedRun) -> bool:
    """Return whether `--stop-on` ended the command."""
    record = ended.plan.record
    return record is not None and record.stopped is not None


def _with_store(store: str | None) -> str:
    """Return the option that names another store than that of this folder."""
    return "" if store is None else f" --store {shlex.quote(store)}"


def _run(asked: RunOptions, *, is_live: bool, on_end: Callable[[ProcessEnd], None]) -> EndedRun:
    """Start the command and wait for it; print nothing until it ends.

    From the call of `on_end` on, each signal that ends a process raises KeyboardInterrupt.
    """
    from steptime.app.run.observe import run_in_foreground
    from steptime.app.run.prepare import prepare
    from steptime.launch.user_command import release_streams, user_environment

    plan = prepare(asked, user_environment(), tell=tell)
    make_line = _line_maker() if is_live else None
    return run_in_foreground(plan, on_start=release_streams, on_end=on_end, make_line=make_line)


def _run_options(options: argparse.Namespace) -> RunOptions:
    """Return what the command line asks for, checked before anything starts."""
    command = take_command(options, verb="run", usage=USAGE)
    check_target("--report", options.report)
    profile = profile_wish(options)
    from steptime.app.run.prepare import RunOptions
    from steptime.core.devices.given_peaks import parse_peaks
    from steptime.core.devices.given_price import parse_price

    return RunOptions(
        command=command,
        store=store_to_write(options),
        recipe=None if options.recipe is None else Path(options.recipe),
        counts=options.count,
        profile=profile,
        looks_at_layers=options.health,
        peaks=parse_peaks(options.peak),
        price_per_h=parse_price(options.hourly_price),
        stop=stop_wish(options),
        checksums=checksum_level(options),
    )


def _line_maker() -> MakeLine:
    """Return what makes the live line; if none can be shown, say why, and warn at least."""
    from steptime.cli.run.live import RunLine, Troubles, why_no_line

    reason = why_no_line()
    if reason is None:
        return RunLine
    tell(f"the live line cannot be shown: {reason}")
    return Troubles


def _conclude(options: argparse.Namespace, ended: EndedRun, code: int) -> None:
    """Report on the run, where and how the options say."""
    from steptime.app.run.attempt import attempt
    from steptime.app.run.observe import conclude

    observed, notes = conclude(ended, counts=options.count, tell=tell)
    for note in dict.fromkeys(notes):  # a full disk causes the same note for each file
        tell(note)
    if observed is not None:
        with attempt(tell):
            _report(options, observed)
    if options.json is not None:
        with attempt(tell):
            _write_document(options.json, observed, notes, code)
    if observed is None:
        return
    if observed.goes_on:
        if options.report is not None or not observed.is_empty:
            tell(observed.describe_rest())
    elif observed.measurement.num_steps > 0:
        _offer_page(observed)


def _report(options: argparse.Namespace, observed: ObservedRun) -> None:
    if options.report is not None:
        with Path(options.report).open("w", encoding="utf-8") as file:
            observed.render(console_for(file, is_plain=True), is_whole=is_verbose())
    elif observed.is_empty:
        say(observed.describe_empty())
    elif sys.stderr is not None and not options.quiet:
        observed.render(console_for(sys.stderr), is_whole=is_verbose())


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


def _offer_page(observed: ObservedRun) -> None:
    """Say how the page of the run is drawn: it takes longer than some runs."""
    again = f"steptime report {observed.run_id}" + _with_store(observed.store_to_name)
    tell(f"the page of this run: {again}")
