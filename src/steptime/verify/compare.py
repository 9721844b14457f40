"""Judges whether a candidate trains as the baseline does, by the class of its levers.

In: recordings of whole runs. Out: a `Verdict`. EXACT is judged by replay (L0), NUMERIC by one
step against float64 (L1) and in lockstep (L2), STATISTICAL by its samples and in lockstep; all by
the counts. docs/explanation/quality.md says how, and what this cannot see.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.study import Check, Outcome, Verdict
from steptime.verify.counts import check_counts, pairs
from steptime.verify.records import Recording

EXACT, NUMERIC, STATISTICAL, NOTHING = "EXACT", "NUMERIC", "STATISTICAL", "NOTHING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a candidate is compared with; None and empty where a run has not been made.

    Attributes:
        baseline: the command as written.
        again: the same once more.
        double: its first updates in float64.
        perturbed: the same with the last bits of its weights changed, at the levers' roundoff.
        redrawn: the same with other random draws after the same initial weights.
    """

    baseline: Recording
    again: Recording | None = None
    double: Recording | None = None
    perturbed: tuple[Recording, ...] = ()
    redrawn: tuple[Recording, ...] = ()


def judge(reference: Reference, candidate: Recording, *, preserves: str) -> Verdict:
    """Whether the candidate's training is as good.

    Args:
        reference: may lack runs that are still to be made: what needs them is INCONCLUSIVE then,
            so that a FAIL can end a judgement early.
        candidate: its recording.
        preserves: the weakest class of its levers: EXACT, NUMERIC, STATISTICAL or NOTHING.
    """
    if preserves == NOTHING:
        return _conclude([_say("class", Outcome.FAIL, "the lever changes the training")])
    checks = list(check_counts(reference.baseline, candidate, preserves=preserves))
    checks.append(check_replay(reference, candidate))
    return _conclude(checks)


def check_replay(reference: Reference, candidate: Recording) -> Check:
    """L0: the same losses and weights bit for bit, where the baseline repeats itself so."""
    if reference.again is None:
        return _say("replay", Outcome.INCONCLUSIVE, "the baseline was run once only")
    if (noise := find_difference(reference.baseline, reference.again)) is not None:
        return _say("replay", Outcome.INCONCLUSIVE, f"the baseline does not repeat itself: {noise}")
    n = min(reference.baseline.num_updates, candidate.num_updates)
    found = find_difference(reference.baseline, candidate)
    outcome = Outcome.PASS if found is None else Outcome.FAIL
    return Check(name="replay", outcome=outcome, n=n, detail=found)


def find_difference(one: Recording, other: Recording) -> str | None:
    """Where two runs first differ in a bit of a loss or of the weights, over what both have."""
    for a, b in pairs(one, other):
        for x, y in zip(a.updates, b.updates, strict=False):
            if x.losses != y.losses:
                return f"another loss in update {x.n}"
            if x.weights != y.weights:
                return f"other weights after update {x.n}"
    return None


def _conclude(checks: list[Check]) -> Verdict:
    outcomes = {check.outcome for check in checks}
    for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        if outcome in outcomes:
            break
    else:
        outcome = Outcome.PASS
    levels = [LEVELS[c.name] for c in checks if c.name in LEVELS and c.outcome in DECIDED]
    return Verdict(outcome=outcome, level=max(levels, default=None), checks=tuple(checks))


LEVELS = {"replay": "L0", "one_step": "L1", "lockstep": "L2"}
DECIDED = (Outcome.PASS, Outcome.FAIL)


def _say(name: str, outcome: Outcome, detail: str) -> Check:
    return Check(name=name, outcome=outcome, detail=detail)
