"""Thresholds with their reasons, and the scale that all rules on a share of the step use."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.diagnose.values.finding import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number that a rule compares with, and why it is that number."""

    name: str
    value: float
    why: str


INFO_FRACTION = Threshold(
    name="INFO_FRACTION",
    value=0.10,
    why="headroom 1.11x: quiet step times alone scatter by 3 to 16 %",
)
WARNING_FRACTION = Threshold(
    name="WARNING_FRACTION",
    value=0.20,
    why="headroom 1.25x: more than the noise of one run, so that a remedy can be shown to work",
)
CRITICAL_FRACTION = Threshold(
    name="CRITICAL_FRACTION",
    value=1 / 3,
    why="headroom 1.50x: no other single remedy is likely to give more",
)
SCALE = (INFO_FRACTION, WARNING_FRACTION, CRITICAL_FRACTION)
"""The thresholds for a share of the step."""

MIN_EXPLAINED = Threshold(
    name="MIN_EXPLAINED",
    value=0.5,
    why="a cause is named if it explains at least half of the time in question",
)
MIN_STEADY_STEPS = Threshold(
    name="MIN_STEADY_STEPS",
    value=6,
    why="the fewest values whose median has a distribution-free 95 % interval (1 − 2/2⁶)",
)


def severity_of(fraction: float | None) -> Severity | None:
    """Return how much a share of the step matters; None below the scale or if it is unknown."""
    if fraction is None:
        return None
    if fraction >= CRITICAL_FRACTION.value:
        return Severity.CRITICAL
    if fraction >= WARNING_FRACTION.value:
        return Severity.WARNING
    return Severity.INFO if fraction >= INFO_FRACTION.value else None


def headroom(fraction: float) -> float | None:
    """Return the step time now over that without this share; None if nothing would be left."""
    return 1 / (1 - fraction) if fraction < 1 else None
