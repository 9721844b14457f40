"""Judges whether a candidate trains as the baseline does, by the class of its levers.

In: recordings of whole runs. Out: a `Verdict`. Replay (L0) judges EXACT; one step against
float64 (L1) and lockstep (L2) judge NUMERIC; the samples and lockstep judge STATISTICAL. The counts
judge all three. docs/explanation/quality.md says how, and what these checks cannot detect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptime.verify.counts import check_counts, pairs
from steptime.verify.lockstep import HIDDEN, check_finite, check_lockstep
from steptime.verify.numerics import (
    FLOAT32_ROUNDOFF,
    OPEN,
    check_one_step,
    excess,
    first_tensors,
    make_rulers,
)
from steptime.verify.recordings import Recording
from steptime.verify.values import Outcome, QualityCheck, Verdict

EXACT, NUMERIC, STATISTICAL, NOTHING = "EXACT", "NUMERIC", "STATISTICAL", "NOTHING"


NUM_OF_LOCKSTEP = 3
"""Perturbed runs that make the envelope of the losses, which would grow with more of them."""

EARLY = 10.0
"""While repeats are missing, a FAIL must exceed the limit so far by this factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The runs that a candidate is compared with; None or empty where one is still to be made.

    Attributes:
        baseline: the command as written.
        again: a second run of the same command.
        double: its first updates in float64; without ranks where it cannot run in float64.
        perturbed: runs with the last bits of the weights changed, at the levers' roundoff.
        redrawn: runs with other random draws after the same initial weights, and in another order
            of samples where the levers change it.
        roundoff: the largest unit roundoff of the levers.
        num_repeats: how many perturbed or redrawn runs there will be.
    """

    baseline: Recording
    again: Recording | None = None
    double: Recording | None = None
    perturbed: tuple[Recording, ...] = ()
    redrawn: tuple[Recording, ...] = ()
    roundoff: float = FLOAT32_ROUNDOFF
    num_repeats: int = 1

    @property
    def noise(self) -> tuple[Recording, ...]:
        """Return the second run if it does not repeat the first bit for bit."""
        if self.again is None or find_difference(self.baseline, self.again) is None:
            return ()
        return (self.again,)


def judge(reference: Reference, candidate: Recording, *, preserves: str) -> Verdict:
    """Return the verdict whether the candidate's training is as good as the baseline's.

    Args:
        reference: may lack runs that are still to be made: the checks that need them are then
            INCONCLUSIVE, so that a FAIL can end a judgement early.
        candidate: the candidate's recording.
        preserves: the weakest class of its levers: EXACT, NUMERIC, STATISTICAL or NOTHING.
    """
    if preserves == NOTHING:
        return _conclude([_say("class", Outcome.FAIL, "the lever changes the training")])
    checks = _check_counts(reference, candidate, preserves=preserves)
    if any(check.name in NEEDED and check.outcome is not Outcome.PASS for check in checks):
        return _conclude(checks)
    checks.append(check_finite(reference.baseline, candidate))
    if preserves == EXACT:
        checks += _check_exact(reference, candidate)
    elif preserves == NUMERIC:
        checks += _check_numeric(reference, candidate)
    else:
        checks += _check_statistical(reference, candidate)
    return _conclude(checks)


NEEDED = ("recording",)
"""The counts without which there is nothing to compare."""


def _check_counts(
    reference: Reference, candidate: Recording, *, preserves: str
) -> list[QualityCheck]:
    """Return the counts; one that the baseline itself does not repeat stays INCONCLUSIVE."""
    perturbed = () if preserves == EXACT else reference.perturbed or None
    found = check_counts(reference.baseline, candidate, preserves=preserves, perturbed=perturbed)
    if reference.again is None or not reference.again.ranks:
        return list(found)
    again = check_counts(reference.baseline, reference.again, preserves=preserves)
    unsteady = {check.name: check.detail for check in again if check.outcome is Outcome.FAIL}
    return [
        _say(check.name, Outcome.INCONCLUSIVE, f"as written, run again: {unsteady[check.name]}")
        if check.outcome is Outcome.FAIL and check.name in unsteady
        else check
        for check in found
    ]


def _check_exact(reference: Reference, candidate: Recording) -> Iterator[QualityCheck]:
    """Check L0: the same losses and weights bit for bit, where the baseline repeats itself so.

    Where it does not, its noise is the limit for one step and for lockstep.
    """
    if reference.again is None:
        yield _say("replay", Outcome.INCONCLUSIVE, "the baseline was run once only")
        return
    if noise := reference.noise:
        rulers = make_rulers(reference.baseline, Recording(ranks=()), noise, roundoff=0.0)
        yield from check_one_step(rulers, first_tensors(candidate))
        yield from check_lockstep(reference.baseline, noise, candidate)
        return
    n = min(reference.baseline.num_updates, candidate.num_updates)
    found = find_difference(reference.baseline, candidate)
    outcome = Outcome.PASS if found is None else Outcome.FAIL
    yield QualityCheck(name="replay", outcome=outcome, n=n, detail=found)


def _check_numeric(reference: Reference, candidate: Recording) -> Iterator[QualityCheck]:
    """Check L1 and L2: no further off than another rounding at the levers' precision."""
    others = (*reference.perturbed, *reference.noise)
    if reference.double is None or not reference.perturbed:
        yield _say("one_step", Outcome.INCONCLUSIVE, "runs of the baseline are missing")
        return
    rulers = make_rulers(reference.baseline, reference.double, others, roundoff=reference.roundoff)
    is_over = len(reference.perturbed) >= reference.num_repeats
    found = list(check_one_step(rulers, first_tensors(candidate)))
    others = (*reference.perturbed[:NUM_OF_LOCKSTEP], *reference.noise)
    if not rulers.is_double:
        found[0] = _add(found[0], "against float32: there is no twin in float64")
    found += check_lockstep(reference.baseline, others, candidate)
    yield from (found if is_over else map(_hold_back, found))


def _check_statistical(reference: Reference, candidate: Recording) -> Iterator[QualityCheck]:
    """Check L2 against other random draws of the same script."""
    if not reference.redrawn:
        yield _say("lockstep", Outcome.INCONCLUSIVE, "runs of the baseline are missing")
        return
    others = (*reference.redrawn, *reference.noise)
    is_over = len(reference.redrawn) >= reference.num_repeats
    found = check_lockstep(reference.baseline, others, candidate, are_redrawn=True)
    yield from (found if is_over else map(_hold_back, found))


def needs_draws(verdict: Verdict) -> bool:
    """Return whether an error within the spread of its limit is all that keeps it open."""
    undecided = [check for check in verdict.checks if check.outcome is Outcome.INCONCLUSIVE]
    is_open = all(OPEN in (check.detail or "") for check in undecided)
    return verdict.outcome is Outcome.INCONCLUSIVE and is_open


def is_hidden(verdict: Verdict) -> bool:
    """Return whether chance leaves it open, and would for each candidate that rounds as much."""
    return any(
        check.outcome is Outcome.INCONCLUSIVE and HIDDEN in (check.detail or "")
        for check in verdict.checks
    )


def _hold_back(check: QualityCheck) -> QualityCheck:
    """Return no PASS and no narrow FAIL while repeats are missing: the limit may still grow."""
    if check.outcome is Outcome.FAIL and excess(check) > EARLY:
        return check
    return replace(check, outcome=Outcome.INCONCLUSIVE)


def _add(check: QualityCheck, text: str) -> QualityCheck:
    return replace(check, detail=f"{check.detail}; {text}" if check.detail else text)


def find_difference(one: Recording, other: Recording) -> str | None:
    """Return where two runs first differ in a bit of a loss or weight; None if they never do."""
    for a, b in pairs(one, other):
        for x, y in zip(a.updates, b.updates, strict=False):
            if x.losses != y.losses:
                return f"another loss in update {x.n}"
            if x.weights != y.weights:
                return f"other weights after update {x.n}"
    return None


def _conclude(checks: list[QualityCheck]) -> Verdict:
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


def _say(name: str, outcome: Outcome, detail: str) -> QualityCheck:
    return QualityCheck(name=name, outcome=outcome, detail=detail)
