"""The words on a trial that a finding offers, and on the recipe of a run: its proof, its gain."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_bytes, format_seconds, format_speedup
from steptime.measure.values.observations import RecipeUse
from steptime.report.document.run_document import LeverTrial, RecipeGain

_MISSING: Mapping[str, str] = {
    "differs": "what it gave against its proof is not known, because this run is not as it was "
    "proven",
    "levers_off": "what it gave against its proof is not known, because not all of its levers "
    "were on",
    "busy": "what it gave against its proof is not known: other processes kept the machine busy",
    "no_step_times": "the recipe does not hold the step times of its proof",
}


BENCH = "Or see which part of the input it is, and what any loader can give at most:"


def describe_trial(trial: LeverTrial) -> str:
    """Say what the command after it tries, and what that can give at most."""
    these = "this lever" if len(trial.levers) == 1 else "these levers"
    if trial.at_most_speedup is None:
        return f"Let Steptime try {these}:"
    most = format_speedup(trial.at_most_speedup)
    if trial.bound_by == "phases":
        return f"Let Steptime try {these} (all that they can shorten is {most}):"
    return f"Let Steptime try {these}, at most {most}:"


def describe_proof(use: RecipeUse) -> str:
    """Say what the study of a recipe proved."""
    if use.speedup is None:
        if use.limit_bytes is None:
            return "nothing was proven of it"
        return f"proven to fit into {format_bytes(use.limit_bytes)}"
    ends = f"{format_speedup(use.speedup.low)} to {format_speedup(use.speedup.high)}"
    return f"proven {format_speedup(use.speedup.estimate)}, 95 % interval {ends}"


def describe_gain(gain: RecipeGain) -> str:
    """Say what a recipe gave, against its proof and against a run without it."""
    return "; ".join([_of_proof(gain), *_of_runs(gain)])


def _of_proof(gain: RecipeGain) -> str:
    now = f"a step takes {format_seconds(gain.step_s)}"
    against = gain.against_proof
    if against is None or gain.written_step_s is None:
        return f"{now}, and {_MISSING.get(gain.missing or '', gain.missing)}"
    found = f"{format_speedup(against.low)} to {format_speedup(against.high)}"
    written = format_seconds(gain.written_step_s)
    proven = "" if gain.proven_step_s is None else f" ({format_seconds(gain.proven_step_s)} then)"
    return (
        f"{now}{proven}: {format_speedup(against.estimate)} ({found}) against {written} as written "
        "when it was proven, at another time"
    )


def _of_runs(gain: RecipeGain) -> list[str]:
    if gain.against_runs is None:
        return ["no finished run of this command without a recipe was beside as busy a machine"]
    found = format_speedup(gain.against_runs)
    low, high = gain.against_runs_low, gain.against_runs_high
    if gain.num_plain_runs == 1:
        plain = f"run {gain.plain_run_id} without it"
    else:
        plain = f"{gain.num_plain_runs} runs without it"
    own = "" if gain.num_recipe_runs == 1 else f"{gain.num_recipe_runs} runs with it have "
    if low is None or high is None:
        return [f"{own}{found} against {plain} (too few runs to say how much runs differ)"]
    return [f"{own}{found} ({format_speedup(low)} to {format_speedup(high)}) against {plain}"]
