"""Makes the documents of `steptime tune`, `steptime patch` and `steptime fit`.

In: a Study, an edit or a FitStudy. Out: a document, in its envelope or with its errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.patch.values import ByHand, CellText, Handover, PatchCheck, PlacedLever
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.fit.fit_words import describe_answer, describe_reason
from steptime.report.words.study import study_words as words
from steptime.tune.values.fit_values import FitStudy
from steptime.tune.values.study_values import Study, StudyOutcome, Trial, TrialEnd
from steptime.verify.values import Outcome

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
        items.append(ErrorItem(code="too_noisy", message=words.describe_outcome(study)))
    return tuple(items)


def _trial_error(trial: Trial) -> ErrorItem:
    reason = words.describe_reason(trial)
    if trial.kind == "observe":
        code = "time_limit" if trial.end is TrialEnd.TIMED_OUT else "script_failed"
        return ErrorItem(code=code, message=f"the command as written: {reason}")
    state = words.describe_state(trial.state)
    return ErrorItem(code=f"trial_{trial.end.value}", message=f"{state}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverDocument:
    """A recipe as an edit of the script.

    Attributes:
        diff: for `git apply`; bytes that are no UTF-8 are written out, so take the file for those.
        path: path of the file with the diff; null where `--output` named none.
        variables: environment variables to set for the command.
        launch_line: the command with them; null where there are none.
        placed: the levers that stand in the diff or in the launch line.
        by_hand: the levers that do not, or not everywhere.
        cells: the cells of notebooks that change, which are not in the diff.
        check: how the patched script compares with the recipe; null without `--check`.
    """

    diff: str
    path: str | None
    variables: Mapping[str, str]
    launch_line: str | None
    placed: tuple[PlacedLever, ...]
    by_hand: tuple[ByHand, ...]
    cells: tuple[CellText, ...]
    check: PatchCheck | None


def describe_handover(
    handover: Handover, check: PatchCheck | None, *, path: str | None
) -> HandoverDocument:
    """Return the document of an edit; `path` is where the diff was written."""
    return HandoverDocument(
        diff=handover.diff.decode("utf-8", "backslashreplace"),
        path=path,
        variables=handover.variables,
        launch_line=handover.launch_line,
        placed=handover.placed,
        by_hand=handover.by_hand,
        cells=handover.cells,
        check=check,
    )


def fit_errors(study: FitStudy) -> tuple[ErrorItem, ...]:
    """Return what went wrong; a command that does not fit is none of it."""
    if study.is_interrupted:
        return (ErrorItem(code="interrupted", message="the fit was interrupted"),)
    if study.peak is None:
        words = describe_reason(study.reason, study.reason_facts)
        code = "time_limit" if study.reason in TIMES else "script_failed"
        return (ErrorItem(code=code, message=f"the command as written: {words}"),)
    quality = study.quality
    if study.recipe and (quality is None or quality.outcome is not Outcome.PASS):
        return (ErrorItem(code="not_proven", message=describe_answer(study)),)
    return ()


TIMES = ("time_limit", "no_first_step", "hung", "budget")
"""Reasons of a command that took too long."""
