"""The words of a judgement over seeds: the answer, why there is none, what each summary is."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_percent, format_seconds
from steptime.verify.values import Outcome
from steptime.verify.values.seed_runs import SummaryDifference, TrainingVerdict

SUMMARIES: Mapping[str, str] = {
    "final": "final metric",
    "area": "log loss on the way",
    "to_target": "log samples to target",
}
"""What each summary is."""

SAME = "A/A: two reference halves"
"""Half of the reference's runs judged against the rest of them."""

REASONS: Mapping[str, str] = {
    "too_few_runs": "more runs are needed",
    "reference_too_noisy": (
        "the reference would not pass against itself at this margin with so few runs"
    ),
    "candidate_diverged": "a run of the candidate diverged or ended early, none of the reference",
    "diverges_more": "the candidate diverges or ends early more often, beyond chance",
    "cut_not_worse": (
        "the shortened reference is not worse than the whole one, so it measures no margin: "
        "shorten it more, or make more runs"
    ),
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
    how = f", measured by {found.num_cut} shortened ones" if found.num_cut else ""
    return f"{found.margin:.4g}{told}{how}"


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
    """Say which runs diverged, and which ended early; None where none did."""
    early = {arm: f" ({one} ended early)" for arm, one in (found.num_incomplete or {}).items()}
    told = {arm: number for arm, number in (found.num_diverged or {}).items() if number}
    return ", ".join(f"{n} of the {arm}{early.get(arm, '')}" for arm, n in told.items()) or None


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


def describe_same(found: TrainingVerdict) -> str | None:
    """Say what the reference says against itself; None below four runs, and beside an answer.

    Halves of it decide less than all runs: where these decide, an open A/A is no objection.
    """
    one = found.same
    if one is None or (one.outcome is Outcome.INCONCLUSIVE and found.outcome is not one.outcome):
        return None
    return f"{one.outcome.value}, gain {one.estimate:+.4g}, {one.low:+.4g} to {one.high:+.4g}"


def describe_price(found: TrainingVerdict) -> str | None:
    """Say what the speedup costs in training; None where its slope is not known."""
    speed = found.speed
    if speed is None or speed.gap_fraction is None:
        return None
    if speed.gap_fraction <= 0:
        return "The speedup costs no training: the candidate ends no worse on average."
    share = format_percent(speed.gap_fraction)
    return f"The speedup costs {share} of the training, which is what its loss of quality is worth."


def describe_to_target(found: TrainingVerdict) -> str | None:
    """Say how long both arms take to the same quality, and what the search for it adds."""
    time = found.to_target
    if time is None:
        return None
    missed = ", ".join(
        f"{number} of the {arm}" for arm, number in time.num_missed.items() if number
    )
    if time.reference_s is None or time.candidate_s is None:
        return f"not known for {time.target:.4g}: it was not reached by {missed}"
    text = (
        f"{time.target:.4g} in {format_seconds(time.reference_s)} and, by the candidate, in "
        f"{format_seconds(time.candidate_s)}"
    )
    if missed:
        text += f"; not reached by {missed}"
    if time.ratio is not None and time.low is not None and time.high is not None:
        text += f": {time.ratio:.2f}x ({time.low:.2f} to {time.high:.2f})"
    if not time.price_s:
        return text
    text += f", with {format_seconds(time.price_s)} to find it added once"
    if time.num_runs_to_earn is None:
        return f"{text}; it saves nothing that could earn that"
    return f"{text}; earned after {time.num_runs_to_earn} runs"


def describe_rests(one: SummaryDifference) -> str:
    """Say what a difference rests on, and where a loss is certain and allowed."""
    parts = [f"margin {one.margin:.4g}"]
    if one.p_permuted is not None:
        parts.append(f"p by permuting the runs {one.p_permuted:.3f}")
    parts.append(f"SD of the runs {one.reference_sd:.3g}, {one.candidate_sd:.3g}")
    if one.is_worse_within_margin:
        parts.append("worse, within the margin")
    return "; ".join(parts)
