"""The wording of what a study has not proven: what it saw, what is missing, and how to prove it."""

from __future__ import annotations

import math
import shlex

from steptime.core.units import format_speedup
from steptime.report.words.study.study_words import describe_interval, describe_state
from steptime.tune.values.study_values import NEEDS_PROOF, FewPairs, Study, Unproven


def describe_unproven(unproven: Unproven) -> str:
    """Say what was seen of the most promising state, and how much time is missing."""
    state = describe_state(unproven.state)
    if unproven.speedup is not None:
        seen = f"{state}: {describe_interval(unproven.speedup)}; not proven"
    elif unproven.few is not None:
        seen = f"{state}: {describe_few(unproven.few)}; not proven"
    else:
        seen = f"{state} was not tried"
    if unproven.missing_s is None:
        return f"{seen}; more time alone would not settle it"
    return f"{seen}; about {describe_minutes(unproven.missing_s)} more should settle it"


def describe_few(few: FewPairs) -> str:
    """Return what so few pairs said that they carry no interval."""
    pairs = "1 pair" if few.n == 1 else f"{few.n:,} pairs"
    return f"{format_speedup(few.median)} in {pairs}, too few for an interval"


def describe_minutes(time_s: float) -> str:
    """Return a time in whole minutes, rounded up."""
    num = max(1, math.ceil(time_s / 60))
    return "1 minute" if num == 1 else f"{num:,} minutes"


MARGIN, SEEDS = "1%-of-training", 5
"""What the lines ask for: a loss no larger than that of the last percent of the steps."""


def proof_lines(study: Study) -> list[tuple[str, str]]:
    """Return (lever, command) for each lever that needs proof over seeds and has a recipe."""
    waiting = [one for one in study.not_tried if one.reason == NEEDS_PROOF and one.candidate]
    return [(one.name, proof_line(study.command, str(one.candidate))) for one in waiting]


def proof_line(command: tuple[str, ...], recipe: str) -> str:
    """Return `steptime verify training …` for a recipe that nothing has proven.

    The metric is the script's own, so the line has a pattern to replace.
    """
    reference = shlex.join(command)
    # What `run` reports must not be taken for what the script says.
    ours = f"steptime run --recipe {shlex.quote(recipe)} --report /dev/null"
    candidate = f"{ours} -- {reference}"
    return (
        f"steptime verify training --margin {MARGIN} --seeds {SEEDS} --metric 'loss ([0-9.]+)' "
        f"--reference {shlex.quote(reference)} --candidate {shlex.quote(candidate)}"
    )
