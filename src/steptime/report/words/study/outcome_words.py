"""The wording of how a study ended: without a proof by its reason, with one by the whole run."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_count, format_seconds
from steptime.tune.values.study_values import Choice, Study, WholeRun

OUTCOME_HEADS: Mapping[str, str] = {
    "ends_too_soon": "the script ends too soon to tell",
    "exit_code": "the script crashed in its trials",
    "signal": "the script crashed in its trials",
    "out_of_memory": "the script ran out of memory in its trials",
    "cannot_tell": "the machine was too busy to tell",
    "no_time": "there was no time to tell",
    "too_few_repeats": "there was no time to tell",
    "quality_not_judged": "there was no time to tell",
}
"""What stands for `too noisy to tell`, where it is not the noise."""

# Why an outcome is what it is.
OUTCOME_REASONS: Mapping[str, str] = {
    "interrupted": "it was interrupted before anything could be confirmed",
    "no_noise_floor": "there was no time to find out how noisy the machine is",
    "no_time": "the time was over before all levers were tried",
    "quality_not_judged": (
        "something is faster, but there was no time to judge whether it trains as well"
    ),
    "noise_floor": "on this machine an effect of 10 % would be lost in the noise",
    "not_confirmed": "something seemed faster, but fresh repeats did not settle it",
    "cannot_tell": "other programs kept the machine busy during everything that was tried",
    "undecided": "something that was tried may give 10 %, but the measurements cannot tell",
    "too_few_repeats": "something seemed faster, but there was no time to confirm it",
    "repeats_disagree": "something seemed faster, but its fresh repeats disagree",
    "nothing_applies": "none of the levers applies here",
    "needs_proof_over_seeds": "what applies here changes the training, which takes runs over seeds",
    "nothing_helps": "the command as written is the fastest that could be proven",
    "ruled_out": "no lever that was tried gives more than {rules_out}",
}


def claimed_span(study: Study) -> str:
    """Return what the speedup of the headline is one of."""
    if study.loop_speedup is None:
        return " in each step"
    return " within an epoch" if unended_epoch(study) else " from the first step to the last"


def unended_epoch(study: Study) -> Choice | None:
    """Return what the study noted of an epoch that no trial saw end; None where there is none."""
    return next((one for one in study.choices if one.code == "within_epoch"), None)


def describe_whole_run(run: WholeRun) -> str:
    """Return how long a whole run takes as written and with the recipe, as forecast or measured."""
    low, high = format_seconds(run.tuned.low), format_seconds(run.tuned.high)
    num_steps = f"{format_count(run.num_steps)} steps"
    how = f"measured in {run.tuned.n} runs each" if run.is_measured else "a forecast"
    return (
        f"{num_steps} {'from start to end' if run.is_measured else 'with the start'}: "
        f"{format_seconds(run.baseline.estimate)} as written, "
        f"{format_seconds(run.tuned.estimate)} tuned ({low} to {high}); {how}"
    )
