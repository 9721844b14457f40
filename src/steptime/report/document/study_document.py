"""Makes the document of a study, as `steptime tune` and `study show` write it.

In: a Study. Out: a `StudyDocument` in its envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.study.study_words import (
    describe_outcome,
    describe_reason,
    describe_state,
)
from steptime.tune.values.study_values import Study, StudyOutcome, Trial, TrialEnd

_BROKEN = (TrialEnd.FAILED, TrialEnd.OUT_OF_MEMORY, TrialEnd.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDocument:
    """A study and where its recipe was written.

    Attributes:
        study: all that was tried, and the results.
        recipe_file: path of the recipe; null where none was written.
        page: path of the study's page, an HTML file; null where there is none.
    """

    study: Study
    recipe_file: str | None
    page: str | None = None


def study_envelope(
    document: StudyDocument,
    *,
    command: str,
    exit_code: int,
    errors: tuple[ErrorItem, ...] = (),
) -> Envelope[StudyDocument]:
    """Return the envelope of a study; trials that broke, or an early end, make it partial."""
    every = (*_study_errors(document.study), *errors)
    return enclose(command, document, exit_code=exit_code, errors=every)


def _study_errors(study: Study) -> tuple[ErrorItem, ...]:
    """Return what keeps a study from being whole."""
    items = [_trial_error(trial) for trial in study.trials if trial.end in _BROKEN]
    if study.is_interrupted:
        items.append(ErrorItem(code="interrupted", message="the study was interrupted"))
    elif study.outcome is None and not items:
        items.append(ErrorItem(code="time_limit", message="the time was up before an answer"))
    elif study.outcome is StudyOutcome.TOO_NOISY:
        items.append(ErrorItem(code="too_noisy", message=describe_outcome(study)))
    return tuple(items)


def _trial_error(trial: Trial) -> ErrorItem:
    reason = describe_reason(trial)
    if trial.kind == "observe":
        code = "time_limit" if trial.end is TrialEnd.TIMED_OUT else "script_failed"
        return ErrorItem(code=code, message=f"the command as written: {reason}")
    state = describe_state(trial.state)
    return ErrorItem(code=f"trial_{trial.end.value}", message=f"{state}: {reason}")
