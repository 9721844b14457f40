"""The wording of what a study saw and did not prove, and of the time that is missing for it."""

from __future__ import annotations

import math

from steptime.core.units import format_speedup
from steptime.report.words.study.study_words import describe_interval, describe_state
from steptime.tune.values.study_values import FewPairs, Unproven


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
