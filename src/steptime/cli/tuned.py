"""The end of `steptime tune`: write the recipe, report, choose the exit code."""

from __future__ import annotations

import sys
from pathlib import Path

from steptime.cli.output import STDOUT, console_for, error_text, say, write_json
from steptime.cli.tune import TuneOptions
from steptime.errors import RecipeError
from steptime.report.document.envelope import ErrorItem
from steptime.report.document.study_document import study_envelope
from steptime.report.text.study_text import StudyRequest, render_study
from steptime.report.words.study_words import describe_outcome
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
from steptime.tune.values.study_values import Study, StudyOutcome, TrialEnd


def report_study(options: TuneOptions, study: Study) -> int:
    """Write what was found where the options say; the exit code."""
    errors: list[ErrorItem] = []
    written = _write_recipe(options, study, errors)
    code = exit_code_of(study, require_speedup=options.require_speedup)
    if code == 5:
        message = f"a speedup of {options.require_speedup:g}x was not proven"
        errors.append(ErrorItem(code="gate_not_met", message=message))
    if errors:
        say("".join(f"steptime: {item.message}\n" for item in errors).rstrip("\n"))
    asked = StudyRequest(recipe=written, options=options.given, budget_s=options.budget_s)
    if options.report is not None:
        with Path(options.report).open("w", encoding="utf-8") as file:
            render_study(study, console=console_for(file, is_plain=True), asked=asked)
    elif options.json != STDOUT:
        render_study(study, console=console_for(sys.stdout), asked=asked)
    if options.report is not None or options.json == STDOUT:
        say(f"steptime: {describe_outcome(study)}")
    if options.json is not None:
        document = study_envelope(
            study, command="tune", exit_code=code, recipe_file=written, errors=tuple(errors)
        )
        write_json(options.json, document)
    return code


def exit_code_of(study: Study, *, require_speedup: float | None) -> int:
    """What the process ends with.

    A gate is met by the low end of the interval: an estimate alone proves nothing.
    """
    if study.is_interrupted:
        return 130
    if study.outcome is None:
        first = next((trial.end for trial in study.trials if trial.kind == "observe"), None)
        return 124 if first in (None, TrialEnd.FINISHED, TrialEnd.TIMED_OUT) else 3
    if study.outcome is StudyOutcome.TOO_NOISY:
        return 4
    proven = study.speedup.low if study.speedup and study.recipe else 1.0
    is_met = require_speedup is None or proven >= require_speedup
    return 0 if is_met else 5


def _write_recipe(options: TuneOptions, study: Study, errors: list[ErrorItem]) -> str | None:
    """Where the recipe was written; None where there is none, or it could not be."""
    if study.outcome is not StudyOutcome.FASTER or not study.recipe:
        return None
    recipe = make_recipe(
        study,
        script=describe_script(study.command, folder=Path.cwd()),
        machine=describe_machine(),
    )
    try:
        write_recipe(options.output, recipe)
    except RecipeError as error:
        errors.append(ErrorItem(code=error.code, message=str(error), hint=error.hint))
        say(error_text(error))
        return None
    return str(options.output)
