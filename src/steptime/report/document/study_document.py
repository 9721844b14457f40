"""A study as the `data` of a document: every key is always there; null means not known.

In: a Study. Out: the envelope of `tune` and of `study`, as `report/schema/tune.schema.json`
describes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from steptime.report.document.envelope import Envelope, ErrorItem
from steptime.report.words.study_words import describe_outcome, describe_reason, describe_state
from steptime.tune.values.study_values import NotTried, State, Study, StudyOutcome, Trial, TrialEnd
from steptime.verify.values import QualityCheck, Verdict

_BROKEN = (TrialEnd.FAILED, TrialEnd.OUT_OF_MEMORY, TrialEnd.TIMED_OUT)


def study_envelope(
    study: Study,
    *,
    command: str,
    exit_code: int,
    recipe_file: str | None = None,
    errors: tuple[ErrorItem, ...] = (),
) -> Envelope:
    """The envelope of a study; trials that broke, or an early end, make it partial."""
    return Envelope(
        command=command,
        exit_code=exit_code,
        data=study_data(study, recipe_file=recipe_file),
        errors=(*_study_errors(study), *errors),
    )


def study_data(study: Study, *, recipe_file: str | None) -> dict[str, Any]:
    """The `data` of `tune` and `study show`."""
    return {
        "study_id": study.study_id,
        "command": list(study.command),
        "started_unix_s": study.started_unix_s,
        "ended_unix_s": study.ended_unix_s,
        "is_interrupted": study.is_interrupted,
        "tier": study.tier,
        "tier_reasons": list(study.tier_reasons),
        "outcome": study.outcome,
        "reason": study.reason,
        "speedup": None if study.speedup is None else asdict(study.speedup),
        "noise_floor": study.noise_floor,
        "quality": _quality(study.quality),
        "recipe": _levers(study.recipe),
        "recipe_file": recipe_file,
        "baseline_step_s": study.baseline_step_s,
        "tuned_step_s": study.tuned_step_s,
        "samples_per_step": study.samples_per_step,
        "sample_unit": study.sample_unit,
        "break_even_steps": study.break_even_steps,
        "device": study.device,
        "torch_version": study.torch_version,
        "trials": [_trial(trial) for trial in study.trials],
        "not_tried": [_not_tried(item) for item in study.not_tried],
        "choices": [
            {"code": c.code, "lever": c.lever, "facts": dict(c.facts or {})} for c in study.choices
        ],
        "tried_writes": list(study.tried_writes),
    }


def studies_data(store: str, studies: Iterable[Study]) -> dict[str, Any]:
    """The `data` of `study list`: the store and its studies, newest first as given."""
    return {"store": store, "studies": [_summary(study) for study in studies]}


def _summary(study: Study) -> dict[str, Any]:
    return {
        "study_id": study.study_id,
        "command": list(study.command),
        "started_unix_s": study.started_unix_s,
        "ended_unix_s": study.ended_unix_s,
        "is_interrupted": study.is_interrupted,
        "outcome": study.outcome,
        "speedup": None if study.speedup is None else asdict(study.speedup),
        "recipe": _levers(study.recipe),
        "num_trials": len(study.trials),
    }


def _study_errors(study: Study) -> tuple[ErrorItem, ...]:
    """What keeps a study from being whole."""
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


def _levers(state: State) -> dict[str, dict[str, Any]]:
    return {applied.name: dict(applied.settings) for applied in state}


def _quality(quality: Verdict | None) -> dict[str, Any] | None:
    if quality is None:
        return None
    return {
        "outcome": quality.outcome,
        "level": quality.level,
        "checks": [_check(check) for check in quality.checks],
    }


def _check(check: QualityCheck) -> Mapping[str, Any]:
    return asdict(check)


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "kind": trial.kind,
        "levers": _levers(trial.state),
        "reference": _levers(trial.reference),
        "end": trial.end,
        "speedup": None if trial.speedup is None else asdict(trial.speedup),
        "quality": _quality(trial.quality),
        "reason": trial.reason,
        "facts": dict(trial.facts or {}),
    }


def _not_tried(item: NotTried) -> dict[str, Any]:
    return {
        "lever": item.name,
        "reason": item.reason,
        "text": item.text,
        "evidence": [asdict(evidence) for evidence in item.evidence],
    }
