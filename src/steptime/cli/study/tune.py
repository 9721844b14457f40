"""`steptime tune`: finds what makes the command faster, proves it, and writes a recipe."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.fit.fit_answer import fit_and_report, refuse_what_is_of_speed
from steptime.cli.option_values import parse_names, parse_time
from steptime.cli.options import (
    BESIDE,
    add_allow,
    add_contained,
    add_json,
    add_store,
    add_training,
    check_json,
    store_to_write,
    take_command,
)
from steptime.cli.output import STDOUT, check_target, console_for, error_text, say, tell, write_json
from steptime.cli.study.proof_options import add_proof, proof_of
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.study.tune import TunedCommand
    from steptime.tune.study_options import StudyOptions
    from steptime.tune.values.study_values import Study

SUMMARY = "make a training command faster, and prove it"
DESCRIPTION = """\
Try levers on a training command, in trials that can do no harm. Keep those that
make it faster while it trains as well as before, and write them to a recipe.
"""
USAGE = "steptime tune [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
examples:
  steptime tune --budget 1h --exclude compile -- python train.py
  steptime run --recipe tuned.toml -- python train.py
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tune`."""
    _add_search(parser.add_argument_group("search"))
    add_proof(parser)
    trials = parser.add_argument_group("trials")
    add_contained(trials)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        metavar="FILE",
        default="tuned.toml",
        help="write the recipe to FILE (default: tuned.toml)",
    )
    output.add_argument(
        "--report",
        metavar="FILE",
        help="write the report as plain text to FILE",
    )
    add_json(output, what=BESIDE)
    output.add_argument(
        "--require-speedup",
        metavar="X",
        type=float,
        help="exit with code 5 unless proven to be X times as fast",
    )
    add_store(output)


def _add_search(search: argparse._ArgumentGroup) -> None:
    """Add the options that say what is tried, and for how long."""
    search.add_argument(
        "--budget",
        metavar="TIME",
        default="10m",
        help="for the whole study (default: 10m); more continues it",
    )
    search.add_argument(
        "--levers", metavar="A,B", help="try only these; `steptime levers` lists them"
    )
    search.add_argument("--recipe", metavar="FILE", help="with --levers: those of a recipe, too")
    search.add_argument("--exclude", metavar="A,B", help="try all levers but these")
    add_allow(search)
    search.add_argument(
        "--python", metavar="FILE", help="try another interpreter, with its own torch, too"
    )
    search.add_argument(
        "--objective",
        metavar="WHAT",
        choices=("speed", "fits", "memory"),
        default="speed",
        help="speed; or as `steptime fit`: fits (--limit), memory",
    )
    search.add_argument("--limit", metavar="SIZE", help="of --objective fits: such as 8GiB")
    search.add_argument(
        "--run-steps",
        metavar="N",
        type=int,
        help="how many steps your real training has",
    )
    search.add_argument(
        "--fresh", action="store_true", help="do not continue an earlier study of this command"
    )
    add_training(search, what="tune", default="needed where a command starts several")


def execute(options: argparse.Namespace) -> int:
    """Run the study and report it."""
    command = take_command(options, verb="tune", usage=USAGE)
    check_target("--report", options.report)
    check_target("--output", options.output, is_recipe=True)
    check_json(options)
    if options.run_steps is not None and options.run_steps < 1:
        raise UsageError(f"--run-steps must be 1 or more, got {options.run_steps}.")
    if options.training is not None and options.training < 1:
        raise UsageError(f"--training must be 1 or more, got {options.training}.")
    required = options.require_speedup
    if required is not None and not 0 < required < float("inf"):
        raise UsageError(f"--require-speedup must be above 0, got {required}.")
    if options.objective != "speed":
        refuse_what_is_of_speed(options)
        low = options.objective == "memory"
        return fit_and_report(options, command, verb="tune", aims_low=low)
    if options.limit is not None:
        raise UsageError("--limit needs --objective fits.", hint="Or: steptime fit --limit SIZE")
    proof = proof_of(options)
    asked = _study_options(options, command)
    from steptime.app.study.tune import tune_command
    from steptime.cli.progress import ProgressPrinter

    printer = ProgressPrinter(sys.stderr)
    try:
        tuned = tune_command(asked, progress=printer, proof=proof, tell=tell)
    finally:
        printer.close()
    return _report(options, tuned, budget_s=asked.budget_s)


def _study_options(options: argparse.Namespace, command: tuple[str, ...]) -> StudyOptions:
    budget_s = parse_time(options.budget)
    only = None if options.levers is None else parse_names(options.levers)
    exclude = parse_names(options.exclude or "")
    from steptime.app.study.tune import choose_levers, other_python, with_recipe
    from steptime.tune.study_options import StudyOptions

    other = None if options.python is None else other_python(options.python, command)
    only, names = with_recipe(only, options.recipe), ("--levers", "--exclude")
    return StudyOptions(
        command=command,
        store=store_to_write(options),
        levers=choose_levers(
            only, exclude, names=names, tell=tell, with_interpreter=other is not None
        ),
        excluded=exclude,
        run_steps=options.run_steps,
        budget_s=budget_s,
        allow_unsafe=options.unsafe_trials,
        allows_changes=options.allow_training_changes,
        share_network=options.share_network,
        is_fresh=options.fresh,
        output=Path(options.output),
        training=options.training,
        other_python=other,
    )


def _report(options: argparse.Namespace, tuned: TunedCommand, *, budget_s: float) -> int:
    """Say what was found, where the options say; return the exit code."""
    from steptime.core.printable import printable
    from steptime.report.document.envelope import ErrorItem
    from steptime.report.document.study_document import StudyDocument, study_envelope
    from steptime.report.text.study_text import StudyRequest, render_study
    from steptime.report.words.study_words import describe_outcome

    study, failure, required = tuned.study, tuned.failure, options.require_speedup
    errors = []
    if failure is not None:
        say(error_text(failure))
        errors.append(ErrorItem(code=failure.code, message=str(failure), hint=failure.hint))
    code = exit_code_of(study, require_speedup=required)
    if failure is not None and failure.code != "recipe":
        code = code or failure.exit_code
    if code == 5:
        message = f"a speedup of {required:g}x was not proven"
        errors.append(ErrorItem(code="gate_not_met", message=message))
    for item in errors:
        tell(item.message)
    written = None if tuned.recipe_file is None else str(tuned.recipe_file)
    words = tuple(options.given[1:])
    asked = StudyRequest(recipe=written, options=words, budget_s=budget_s)
    if options.report is not None:
        with Path(options.report).open("w", encoding="utf-8") as file:
            render_study(study, console=console_for(file, is_plain=True), asked=asked)
    elif options.json != STDOUT:
        render_study(study, console=console_for(sys.stdout), asked=asked)
    if options.report is not None or options.json == STDOUT:
        tell(describe_outcome(study))
    if tuned.page is not None:
        say(f"steptime: the page of this study: {printable(str(tuned.page))}")
    if options.json is not None:
        page = None if tuned.page is None else str(tuned.page)
        document = study_envelope(
            StudyDocument(study=study, recipe_file=written, page=page),
            command="tune",
            exit_code=code,
            errors=tuple(errors),
        )
        write_json(options.json, document)
    return code


def exit_code_of(study: Study, *, require_speedup: float | None) -> int:
    """Return what the process ends with.

    The low end of the interval must meet a gate, because an estimate alone proves nothing.
    """
    from steptime.tune.values.study_values import StudyOutcome, TrialEnd

    if study.is_interrupted:
        return 130
    if study.outcome is None:
        first = next((trial.end for trial in study.trials if trial.kind == "observe"), None)
        return 124 if first in (None, TrialEnd.FINISHED, TrialEnd.TIMED_OUT) else 3
    if study.outcome is StudyOutcome.TOO_NOISY:
        return 4
    if study.seeds is not None and study.seeds.outcome.value != "PASS":
        return 5 if study.seeds.outcome.value == "FAIL" else 4
    proven = study.speedup.low if study.speedup and study.recipe else 1.0
    is_met = require_speedup is None or proven >= require_speedup
    return 0 if is_met else 5
