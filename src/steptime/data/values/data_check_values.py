"""What `steptime data check` found: one value for each check, and the whole of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """One check of the data or of a loader.

    Attributes:
        name: which check it is.
        outcome: whether it passed, failed, or could not be decided.
        finding: what was found, or why nothing could be.
        evidence: the first places where it was found, and counts.
        advice: what to do about it; null where there is nothing to do.
        place: the line that makes the loader; null where it is about no loader.
        p_value: how likely a sound order would look so or worse; null where nothing is tested.
    """

    name: str
    outcome: Outcome
    finding: str
    evidence: tuple[str, ...] = ()
    advice: str | None = None
    place: str | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheckReport:
    """The checks of one command, of one source or of two.

    Attributes:
        subject: the command or the sources.
        outcome: FAIL if a check failed, else INCONCLUSIVE if one could not be decided, else PASS.
        checks: each check that applies.
        limits: what was looked at, and what was not.
        failure: how the command failed before it trained; null where it did not.
    """

    subject: tuple[str, ...]
    outcome: Outcome
    checks: tuple[DataCheck, ...]
    limits: tuple[str, ...] = ()
    failure: str | None = None


def outcome_of(checks: Iterable[DataCheck]) -> Outcome:
    """Return the outcome of all checks together; without any it is INCONCLUSIVE."""
    found = {check.outcome for check in checks}
    if Outcome.FAIL in found:
        return Outcome.FAIL
    return Outcome.PASS if found == {Outcome.PASS} else Outcome.INCONCLUSIVE
