"""Makes a command fit and reports it, for `steptime fit` and `tune --objective fits`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.cli.option_values import parse_names, parse_size, parse_time
from steptime.cli.options import store_to_write, was_given
from steptime.cli.output import STDOUT, console_for, error_text, say, tell, write_json
from steptime.errors import UsageError

if TYPE_CHECKING:
    from steptime.app.fit.fit import FittedCommand
    from steptime.tune.fit.run_fit import FitLimit, FitOptions
    from steptime.tune.values.fit_values import FitStudy
    from steptime.tune.values.study_values import State


def fit_and_report(
    options: argparse.Namespace, command: tuple[str, ...], *, verb: str, aims_low: bool = False
) -> int:
    """Run the fit and report it; return the exit code.

    Args:
        options: of the command line; those that `fit` alone has may be missing.
        command: the user's.
        verb: of the document.
        aims_low: the least memory is wanted, and there is no limit.
    """
    limit = None if aims_low else _limit(options)
    asked = _fit_options(options, command, limit)
    from steptime.app.fit.fit import fit_command

    fitted = fit_command(asked, output=Path(options.output), tell=_say_what_begins)
    return _report(options, fitted, verb=verb)


def refuse_what_is_of_speed(options: argparse.Namespace) -> None:
    """Refuse options of `tune` that are without effect where memory is the objective.

    Raises:
        UsageError: one of them was given.
    """
    given = (
        "allow_training_changes",
        "levers",
        "recipe",
        "python",
        "run_steps",
        "report",
        "require_speedup",
    )
    for name in given:
        if was_given(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} goes with --objective speed.", hint="Leave it out.")
    if options.objective == "memory" and options.memory_limit is not None:
        raise UsageError("--memory-limit goes with --objective fits.", hint="Leave it out.")


def _fit_options(
    options: argparse.Namespace, command: tuple[str, ...], limit: FitLimit | None
) -> FitOptions:
    budget_s, exclude = parse_time(options.budget), parse_names(options.exclude or "")
    from steptime.app.study.tune import choose_levers
    from steptime.tune.fit.fit_search import AS_WRITTEN
    from steptime.tune.fit.run_fit import FitLimit, FitOptions

    return FitOptions(
        command=command,
        store=store_to_write(options),
        limit=FitLimit(bytes=0, origin=AS_WRITTEN) if limit is None else limit,
        levers=choose_levers(None, exclude, names=("--levers", "--exclude"), tell=tell),
        excluded=exclude,
        budget_s=budget_s,
        allow_unsafe=options.unsafe_trials,
        share_network=options.share_network,
        training=options.training,
        measures=getattr(options, "measure", False),
        num_devices=getattr(options, "gpus", None),
    )


def _limit(options: argparse.Namespace) -> FitLimit:
    """Return the limit that was given; what is free here without one."""
    part = getattr(options, "on", None)
    if options.memory_limit is not None and part is not None:
        raise UsageError("--memory-limit and --on both name a limit.", hint="Name one of them.")
    size = (
        None
        if options.memory_limit is None
        else parse_size(options.memory_limit, flag="--memory-limit")
    )
    from steptime.app.fit.fit import limit_of_machine, limit_of_part
    from steptime.tune.fit.run_fit import FitLimit

    if size is not None:
        return FitLimit(bytes=size, origin="given")
    return limit_of_machine() if part is None else limit_of_part(part)


def _say_what_begins(what: str, state: State, left_s: float) -> None:
    from steptime.core.units import format_seconds
    from steptime.report.words.fit.fit_words import describe_beginning

    tell(f"{describe_beginning(what, state)} · {format_seconds(left_s)} left")


def _report(options: argparse.Namespace, fitted: FittedCommand, *, verb: str) -> int:
    """Say what was found, where the options say; return the exit code."""
    from steptime.report.blocks.fit.fit_report import fit_report
    from steptime.report.document.envelope import ErrorItem, enclose
    from steptime.report.document.fit_document import fit_errors
    from steptime.report.text.paint_text import print_report

    study, failure = fitted.study, fitted.failure
    errors = list(fit_errors(study))
    if failure is not None:
        say(error_text(failure))
        errors.append(ErrorItem(code=failure.code, message=str(failure), hint=failure.hint))
    code = exit_code_of(study, is_required=getattr(options, "require_fit", False))
    if code == 5:
        errors.append(ErrorItem(code="gate_not_met", message="it was not made to fit"))
        tell("it was not made to fit")
    if options.json != STDOUT:
        print_report(fit_report(study), console=console_for(sys.stdout))
    if study.page is not None:
        tell(f"the page of this fit: {study.page}")
    if options.json is not None:
        write_json(options.json, enclose(verb, study, exit_code=code, errors=tuple(errors)))
    return code


def exit_code_of(study: FitStudy, *, is_required: bool = False) -> int:
    """Return what the process ends with; "it does not fit" is an answer like others."""
    from steptime.report.document.fit_document import TIMES
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
