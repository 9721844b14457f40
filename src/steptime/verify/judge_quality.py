"""Judges whether a candidate trains as the baseline does, by the class of its levers.

In: recordings of whole runs. Out: a `Verdict`. Replay (L0) judges EXACT; one step against
float64 (L1) and lockstep (L2) judge NUMERIC; the samples and lockstep judge STATISTICAL. The counts
judge all of them. docs/explanation/quality.md says how, and what this cannot see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptime.verify.counts import check_counts, pairs
from steptime.verify.lockstep import check_finite, check_lockstep
from steptime.verify.numerics import (
    FLOAT32_ROUNDOFF,
    check_one_step,
    excess,
    first_tensors,
    make_rulers,
)
from steptime.verify.recordings import Recording
from steptime.verify.values import Outcome, QualityCheck, Verdict

EXACT, NUMERIC, STATISTICAL, NOTHING = "EXACT", "NUMERIC", "STATISTICAL", "NOTHING"


EARLY = 10.0
"""While repeats are missing, only what is this much beyond the limit so far is a FAIL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a candidate is compared with; None and empty where a run has not been made.

    Attributes:
        baseline: the command as written.
        again: the same once more.
        double: its first updates in float64; without ranks where it cannot run so.
        perturbed: the same with the last bits of its weights changed, at the levers' roundoff.
        redrawn: the same with other random draws after the same initial weights.
        roundoff: the largest of the levers'.
        num_repeats: perturbed or redrawn runs that there will be.
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
        """The second run, where it does not repeat the first bit for bit."""
        if self.again is None or find_difference(self.baseline, self.again) is None:
            return ()
        return (self.again,)


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
"""Without them there is nothing to compare."""


def _check_counts(
    reference: Reference, candidate: Recording, *, preserves: str
) -> list[QualityCheck]:
    """The counts; one that the baseline itself does not repeat is left open."""
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
    """L0: the same losses and weights bit for bit, where the baseline repeats itself so.

    Where it does not, the candidate is held to its noise: one step, and lockstep.
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
    """L1 and L2: within what another rounding of the levers' precision does."""
    others = (*reference.perturbed, *reference.noise)
    if reference.double is None or not reference.perturbed:
        yield _say("one_step", Outcome.INCONCLUSIVE, "runs of the baseline are missing")
        return
    rulers = make_rulers(reference.baseline, reference.double, others, roundoff=reference.roundoff)
    is_over = len(reference.perturbed) >= reference.num_repeats
    found = list(check_one_step(rulers, first_tensors(candidate)))
    if not rulers.is_double:
        found[0] = _add(found[0], "against float32: there is no twin in float64")
    found += check_lockstep(reference.baseline, others, candidate)
    yield from (found if is_over else map(_hold_back, found))


def _check_statistical(reference: Reference, candidate: Recording) -> Iterator[QualityCheck]:
    """L2 against other random draws of the same script."""
    if not reference.redrawn:
        yield _say("lockstep", Outcome.INCONCLUSIVE, "runs of the baseline are missing")
        return
    others = (*reference.redrawn, *reference.noise)
    is_over = len(reference.redrawn) >= reference.num_repeats
    found = check_lockstep(reference.baseline, others, candidate, are_redrawn=True)
    yield from (found if is_over else map(_hold_back, found))


def _hold_back(check: QualityCheck) -> QualityCheck:
    """While repeats are missing the limit may still grow: no FAIL by a little, no PASS."""
    if check.outcome is Outcome.FAIL and excess(check) > EARLY:
        return check
    return replace(check, outcome=Outcome.INCONCLUSIVE)


def _add(check: QualityCheck, text: str) -> QualityCheck:
    return replace(check, detail=f"{check.detail}; {text}" if check.detail else text)


def find_difference(one: Recording, other: Recording) -> str | None:
    """Where two runs first differ in a bit of a loss or of the weights, over what both have."""
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
