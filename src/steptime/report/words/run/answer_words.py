"""The words for a question to a run, and for the reasons why a rank did not answer it."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.printable import printable
from steptime.measure.values.answer import AskedSteps

WHATS: Mapping[str, str] = {
    "memory": "who holds the memory",
    "count": "the work of a step",
    "profile": "a profile of its steps",
    "health": "the numbers of its layers",
    "stacks": "the line where it is",
}
"""What is asked of a run."""

MISSING: Mapping[str, str] = {
    "no_answer": "no step ended in time",
    "process_ended": "the process has ended",
    "ended": "the training ended before it answered",
    "damaged": "its answer cannot be read",
    "too_large": "its answer is larger than 4 MB",
    "too_late": "it found the question when the time was over",
    "failed": "the examination failed; the failures of Steptime are in the report",
}
"""Reasons that any question may have."""

ASKED_REASONS: Mapping[str, str] = {
    "other_thread": "another thread than the first one steps now, and only the first is counted",
    "run_health": "its layers are probed already; see: steptime show",
    "run_profile": "the run was started with --profile, and its own profile is still to come",
    "own_profiler": "the script uses a profiler of its own, and torch allows one alone",
}
"""Reasons of a question itself that reports of a run do not have, or say differently."""


def describe_missing(word: str, reasons: Mapping[str, str]) -> str:
    """Return why there is no answer; `reasons` are those of the question itself."""
    return MISSING.get(word) or reasons.get(word) or word


def describe_waiting(what: str, num_answered: int, num_asked: int, *, left_s: float) -> str:
    """Return `steptime: asked for who holds the memory · 1 of 2 ranks answered · 54 s left`."""
    ranks = "rank" if num_asked == 1 else "ranks"
    answered = f"{num_answered} of {num_asked} {ranks} answered"
    return f"steptime: asked for {WHATS.get(what, what)} · {answered} · {left_s:.0f} s left"


def describe_asked(one: AskedSteps) -> str:
    """Return `memory in steps 812 to 813`."""
    what = printable(one.what)
    if one.last_step <= one.first_step:
        return f"{what} in step {one.first_step:,}"
    return f"{what} in steps {one.first_step:,} to {one.last_step:,}"
