"""Combines the comparison of two models with everything else that was asked of the candidate.

In: the verdict of the comparison, and the checks. Out: the verdict of all: any FAIL fails, any
INCONCLUSIVE else leaves it open, else the comparison answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from steptime.core.interval import Interval
from steptime.verify.values import Outcome
from steptime.verify.values.check_results import ModelChecks
from steptime.verify.values.model_verdict import ModelVerdict

CALIBRATED, HUMAN, PREFERRED = REQUIRABLE = ("calibrated", "human", "preferred")
"""Checks that are shown, and decide where they are required."""

_LEAST_SEEN = 0.1
"""An overconfidence that rows must be able to show before they can say that there is none."""


def with_checks(
    verdict: ModelVerdict, checks: ModelChecks | None, required: Sequence[str] = ()
) -> ModelVerdict:
    """Return the verdict with the checks; the gravest answer decides, with its reason."""
    whole = replace(verdict, checks=checks, required=tuple(required))
    found = [] if checks is None else list(_answers(checks))
    found += [answer for name in required for answer in _required(verdict, checks, name)]
    for grave in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        reason = next((why for answer, why in found if answer is grave), None)
        if reason is not None:
            return replace(
                whole, outcome=grave, reason=reason, num_needed=None, is_allowed_loss=False
            )
        if verdict.outcome is grave:
            return whole
    return whole


def _answers(checks: ModelChecks) -> Iterator[tuple[Outcome, str]]:
    """Yield the answer of each check with the word for why it may not pass, the gravest first."""
    probes = () if checks.probes is None else checks.probes.results
    words = [
        (checks.leaks, "leak", "rows_repeat"),
        (checks.simple, "adds_nothing", "simple_undecided"),
        *((one, "probe_violated", "probe_undecided") for one in probes),
        (checks.human, "", "no_human_baseline"),
    ]
    for one, fails, is_open in words:
        if one is not None and one.outcome is not None:
            yield one.outcome, fails if one.outcome is Outcome.FAIL else is_open


def _required(
    verdict: ModelVerdict, checks: ModelChecks | None, name: str
) -> Iterator[tuple[Outcome, str]]:
    """Yield the answers of a check that is required; without one, it is open."""
    outcomes = list[Outcome]()
    if name == CALIBRATED:
        for one in verdict.calibration[-1:]:  # arms may have the same name
            is_seen = one.least_seen is not None and one.least_seen <= _LEAST_SEEN
            is_open = one.outcome is not Outcome.FAIL and not is_seen
            if one.arm == verdict.candidate_arm:
                outcomes.append(Outcome.INCONCLUSIVE if is_open else one.outcome)
    elif name == HUMAN and checks and checks.human and checks.human.gain:
        outcomes.append(_beside(checks.human.gain, -(verdict.margin or 0.0)))
    elif name == PREFERRED and checks:
        said = [one.gain for one in checks.others if one.kind == "preference"]
        outcomes += [_beside(one, 0.5) for one in said]
    for outcome in outcomes or [Outcome.INCONCLUSIVE]:
        yield outcome, f"{name}_{'fails' if outcome is Outcome.FAIL else 'undecided'}"


def _beside(found: Interval, border: float) -> Outcome:
    if found.low > border:
        return Outcome.PASS
    return Outcome.FAIL if found.high < border else Outcome.INCONCLUSIVE
