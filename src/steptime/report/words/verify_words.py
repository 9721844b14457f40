"""The words of a judgement over seeds: the answer, why there is none, what each summary is."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_percent
from steptime.verify.values import Outcome
from steptime.verify.values.seed_runs import SummaryDifference, TrainingVerdict

SUMMARIES: Mapping[str, str] = {
    "final": "final metric",
    "area": "log loss on the way",
    "to_target": "log samples to the target",
}
"""What each summary is."""

REASONS: Mapping[str, str] = {
    "too_few_runs": "more runs are needed",
    "reference_too_noisy": (
        "the reference would not pass against itself at this margin with so few runs"
    ),
    "candidate_diverged": "a run of the candidate diverged, and none of the reference",
    "diverges_more": "the candidate diverges more often than the reference, beyond chance",
    "target_not_reached": "a run of the candidate did not reach the target",
}
"""Why there is no answer, or which one it is."""

ANSWERS: Mapping[Outcome, str] = {
    Outcome.PASS: "the candidate is not worse by the margin or more",
    Outcome.FAIL: "the candidate is worse by more than the margin",
    Outcome.INCONCLUSIVE: "it cannot be told",
}


def describe_verdict(found: TrainingVerdict) -> str:
    """Say the answer, and why it is that one."""
    text = f"{found.outcome.value}: {ANSWERS[found.outcome]}"
    if found.reason == "diverges_more":
        text = f"{found.outcome.value}: {REASONS['diverges_more']}"
    elif found.reason is not None:
        text += f": {REASONS.get(found.reason, found.reason)}"
    return text


def describe_margin(found: TrainingVerdict) -> str:
    """Say the margin in the metric's unit, and as a share of the training."""
    if found.margin is None:
        return "unknown"
    share = found.training_fraction
    told = "" if share is None else f", {format_percent(share)} of the reference's training"
    return f"{found.margin:.4g}{told}"


def describe_gain(found: TrainingVerdict) -> str | None:
    """Say how much better or worse the candidate ends; None where nothing was compared."""
    if found.estimate is None or found.low is None or found.high is None:
        return None
    word = "better" if found.estimate > 0 else "worse"
    size = abs(found.estimate)
    return f"{size:.4g} {word}, interval of the gain {found.low:+.4g} to {found.high:+.4g}"


def describe_runs(found: TrainingVerdict) -> str:
    """Say how many runs there are, and how many would decide."""
    text = f"{found.num_runs} of the smaller arm"
    if found.num_runs_needed is None:
        return f"{text}; no number of runs up to 10,000 decides this margin"
    return (
        f"{text}; by the spread that was seen, {found.num_runs_needed} of each decide this margin"
    )


def describe_diverged(found: TrainingVerdict) -> str | None:
    """Say which runs diverged; None where none did."""
    told = {name: number for name, number in (found.num_diverged or {}).items() if number}
    return ", ".join(f"{number} of the {name}" for name, number in told.items()) or None


def describe_speed(found: TrainingVerdict) -> str | None:
    """Say what the candidate saves, and what is left of it at equal quality."""
    speed = found.speed
    if speed is None:
        return None
    text = f"{speed.speedup:.2f}x in seconds ({speed.low:.2f} to {speed.high:.2f})"
    if speed.net is None or speed.gap_fraction is None:
        return text
    gap = format_percent(abs(speed.gap_fraction))
    word = "more" if speed.gap_fraction > 0 else "less"
    return f"{text}; {speed.net:.2f}x for the same quality, which takes {gap} {word} training"


def describe_allowed(one: SummaryDifference) -> str:
    """Say where a loss is certain and allowed."""
    return "worse, within the margin" if one.is_worse_within_margin else ""
