"""`steptime tune`: finds what makes the command faster, proves it, and writes a recipe."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_names, parse_time
from steptime.cli.options import (
    CONTAINED,
    JSON_BESIDE,
    STORE,
    need_at_least,
    store_to_write,
    take_command,
)
from steptime.cli.output import STDOUT, check_target, console_for, error_text, say, tell, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.study.tune import TunedCommand
    from steptime.app.verify.prove_training import ProofOptions
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
OPTIONS = (
    """\
search:
  --budget TIME  for the whole study (default: 10m); more continues it
  --levers A,B  try only these; `steptime levers` lists them
  --recipe FILE  with --levers: those of a recipe, too
  --exclude A,B  try all levers but these
  --allow-training-changes  also name levers that change training
  --python FILE  try another interpreter, with its own torch, too
  --run-steps N  steps of your real run: its time is forecast or measured
  --fresh  do not use what an earlier call has found
  --training N  of a command that started several trainings
proof over seeds:
  --prove  judge the recipe over seeds, too
  --margin M  0.01, 1%, 1%-of-training
  --metric NAME  a pattern, tb:TAG, ...
  --better {down,up}  as of a loss (default: down)
  --seeds N  runs of each (default: 5)
  --seed-flag FLAG  option of the script that takes the seed
  --run-timeout TIME  how long one run may take (default: 24h)
trials:
"""
    + CONTAINED
    + """\
output:
  -o, --output FILE  write the recipe to FILE (default: tuned.toml)
  --report FILE  write the report as plain text to FILE
  --require-speedup X  exit with code 5 unless the loop is proven to be X times as
                 fast, by the low end of its interval
"""
    + JSON_BESIDE
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Run the study and report it."""
    command = take_command(options, verb="tune", usage=USAGE)
    check_target("--report", options.report)
    check_target("--output", options.output, is_recipe=True)
    need_at_least(options, 1, "run_steps", "training")
    required = options.require_speedup
    if required is not None and not 0 < required < float("inf"):
        raise UsageError(f"--require-speedup must be above 0, got {required}.")
    proof = _proof_of(options)
    asked = _study_options(options, command)
    from steptime.app.study.tune import tune_command
    from steptime.cli.progress import ProgressPrinter

    printer = ProgressPrinter(sys.stderr)
    try:
        tuned = tune_command(asked, progress=printer, proof=proof, tell=tell)
    finally:
        printer.close()
    return _report(options, tuned, budget_s=asked.budget_s)


def _proof_of(options: argparse.Namespace) -> ProofOptions | None:
    """Return what is to be proven; None where no option asks for it.

    Raises:
        UsageError: something is missing, or belongs to a proof that was not asked for.
    """
    if not options.prove:
        for flag in ("margin", "metric", "seed_flag"):
            if getattr(options, flag) is not None:
                raise UsageError(f"--{flag.replace('_', '-')} needs --prove.")
        return None
    if options.margin is None or options.metric is None:
        raise UsageError(
            "--prove needs a margin and a metric.",
            hint="Such as: --margin 1%-of-training --metric 'val loss ([0-9.]+)'",
        )
    need_at_least(options, 2, "seeds")
    from steptime.app.search.run_metric import check_metric
    from steptime.app.stored.margin_text import parse_margin
    from steptime.app.verify.prove_training import ProofOptions
    from steptime.verify.values.seed_runs import TrainingQuestion

    check_metric(options.metric)
    question = TrainingQuestion(
        margin=parse_margin(options.margin), is_better_down=options.better == "down"
    )
    return ProofOptions(
        metric=options.metric,
        question=question,
        num_seeds=options.seeds,
        seed_flag=options.seed_flag,
        limit_s=parse_time(options.run_timeout, flag="--run-timeout"),
    )


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
        given=tuple(options.given[1:]),
    )


def _report(options: argparse.Namespace, tuned: TunedCommand, *, budget_s: float) -> int:
    """Say what was found, where the options say; return the exit code."""
    from steptime.report.blocks.study.study_next import StudyRequest
    from steptime.report.blocks.study.study_report import study_report
    from steptime.report.document.envelope import ErrorItem
    from steptime.report.document.study_documents import StudyDocument, study_envelope
    from steptime.report.text.paint_text import print_report
    from steptime.report.words.study.study_words import describe_outcome

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
    asked = StudyRequest(recipe=written, budget_s=budget_s)
    report = study_report(study, asked=asked)
    if options.report is not None:
        with Path(options.report).open("w", encoding="utf-8") as file:
            print_report(report, console=console_for(file, is_plain=True))
    elif options.json != STDOUT:
        print_report(report, console=console_for(sys.stdout))
    if options.report is not None or options.json == STDOUT:
        tell(describe_outcome(study))
    if tuned.page is not None:
        tell(f"the page of this study: {tuned.page!s}")
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
    proven = study.claim.low if study.claim and study.recipe else 1.0
    is_met = require_speedup is None or proven >= require_speedup
    return 0 if is_met else 5
