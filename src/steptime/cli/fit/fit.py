"""`steptime fit`: says whether a training fits into memory, and makes it fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_names, parse_size, parse_time
from steptime.cli.options import (
    CONTAINED,
    JSON_BESIDE,
    STORE,
    need_at_least,
    store_to_write,
    take_command,
)
from steptime.cli.output import check_target, error_text, put, say, tell
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.fit.fit import FittedCommand
    from steptime.tune.fit.run_fit import FitOptions
    from steptime.tune.values.fit_values import FitStudy
    from steptime.tune.values.study_values import State

SUMMARY = "say whether a training fits into memory, and make it fit"
DESCRIPTION = """\
Say how much memory a training command needs, and who holds it. If that is more
than the limit, find the cheapest settings with which it runs at the same global
batch, prove them in a run under the limit, and write them to a recipe. Where it
does not run here at all, its peak is forecast without the memory.
"""
USAGE = "steptime fit [options] -- COMMAND [ARG ...]"
EXAMPLES = """\
examples:
  steptime fit -- python train.py                  # what is free here
  steptime fit --memory-limit 8GiB -- python train.py
  steptime fit --on H100-80GB --gpus 8 -- python train.py
  steptime run --recipe fit.toml -- python train.py
"""
OPTIONS = (
    """\
limit:
  --memory-limit SIZE  private memory a process may have (default: what is free)
  --on PART  memory of an accelerator, such as H100-80GB or L40S
  --gpus N  also say what each of N would hold that share the same global batch
trials:
  --budget TIME  all the time that it may take (default: 10m)
  --exclude A,B  use all levers but these
  --measure  of a forecast: time the operators, each alone
  --training N  fit training N of a command that started several
"""
    + CONTAINED
    + """\
output:
  -o, --output FILE  write the recipe to FILE (default: fit.toml)
  --require-fit  exit with code 5 unless it fits in the end
"""
    + JSON_BESIDE
    + STORE
)


def execute(options: argparse.Namespace) -> int:
    """Run the fit and report it."""
    command = take_command(options, verb="fit", usage=USAGE)
    check_target("--output", options.output, is_recipe=True)
    need_at_least(options, 1, "training", "gpus")
    if options.gpus is not None and options.on is None and options.memory_limit is None:
        raise UsageError(
            "--gpus needs the memory of one of them.", hint="Name it: --on H100-80GB --gpus 8"
        )
    asked = _fit_options(options, command)
    from steptime.app.fit.fit import fit_command

    fitted = fit_command(asked, output=Path(options.output), tell=_say_what_begins)
    return _report(options, fitted)


def _fit_options(options: argparse.Namespace, command: tuple[str, ...]) -> FitOptions:
    if options.memory_limit is not None and options.on is not None:
        raise UsageError("--memory-limit and --on both name a limit.", hint="Name one of them.")
    limit = options.memory_limit
    size = None if limit is None else parse_size(limit, flag="--memory-limit")
    budget_s, exclude = parse_time(options.budget), parse_names(options.exclude or "")
    from steptime.app.fit.fit import find_limit
    from steptime.app.study.tune import choose_levers
    from steptime.tune.fit.run_fit import FitOptions

    return FitOptions(
        command=command,
        store=store_to_write(options),
        limit=find_limit(size, on=options.on),
        levers=choose_levers(None, exclude, names=("--levers", "--exclude"), tell=tell),
        excluded=exclude,
        budget_s=budget_s,
        allow_unsafe=options.unsafe_trials,
        share_network=options.share_network,
        training=options.training,
        measures=options.measure,
        num_devices=options.gpus,
    )


def _say_what_begins(what: str, state: State, left_s: float) -> None:
    from steptime.core.units import format_seconds
    from steptime.report.words.fit.fit_words import describe_beginning

    tell(f"{describe_beginning(what, state)} · {format_seconds(left_s)} left")


def _report(options: argparse.Namespace, fitted: FittedCommand) -> int:
    """Say what was found, where the options say; return the exit code."""
    from steptime.report.blocks.fit.fit_report import fit_report
    from steptime.report.document.envelope import ErrorItem, enclose
    from steptime.report.document.study_documents import fit_errors

    study, failure = fitted.study, fitted.failure
    errors = list(fit_errors(study))
    if failure is not None:
        say(error_text(failure))
        errors.append(ErrorItem(code=failure.code, message=str(failure), hint=failure.hint))
    code = exit_code_of(study, is_required=options.require_fit)
    if code == 5:
        errors.append(ErrorItem(code="gate_not_met", message="it was not made to fit"))
        tell("it was not made to fit")
    document = enclose("fit", study, exit_code=code, errors=tuple(errors))
    put(options, document, lambda: fit_report(study), is_beside=True)
    if study.page is not None:
        tell(f"the page of this fit: {study.page}")
    return code


def exit_code_of(study: FitStudy, *, is_required: bool = False) -> int:
    """Return what the process ends with; "it does not fit" is an answer like others."""
    from steptime.report.document.study_documents import TIMES
    from steptime.verify.values import Outcome

    if study.is_interrupted:
        return 130
    if study.peak is None:
        return 124 if study.reason in TIMES else 3
    is_good = bool(study.fits) or study.is_made_to_fit
    if is_required and not is_good:
        return 5
    judged = study.quality
    is_open = bool(study.recipe) and (judged is None or judged.outcome is Outcome.INCONCLUSIVE)
    return 4 if is_open else 0
