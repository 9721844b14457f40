"""Combines the comparison of two models with everything else that was asked of the candidate.

In: the verdict of the comparison, and the checks. Out: the verdict of all: any FAIL fails, any
INCONCLUSIVE else leaves it open, else the comparison answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptime.verify.values import Outcome
from steptime.verify.values.model_verdict import ModelVerdict
from steptime.verify.values.predictor_results import ModelChecks

LEAK, ADDS_NOTHING, VIOLATED = "leak", "adds_nothing", "probe_violated"


def with_checks(verdict: ModelVerdict, checks: ModelChecks) -> ModelVerdict:
    """Return the verdict with the checks; the gravest answer decides, with its reason."""
    found = list(_answers(checks))
    whole = replace(verdict, checks=checks)
    failed = next((why for answer, why in found if answer is Outcome.FAIL), None)
    if failed is None and verdict.outcome is not Outcome.PASS:
        return whole
    left_open = next((why for answer, why in found if answer is Outcome.INCONCLUSIVE), None)
    if failed is None and left_open is None:
        return whole
    outcome = Outcome.INCONCLUSIVE if failed is None else Outcome.FAIL
    reason = failed or left_open
    return replace(whole, outcome=outcome, reason=reason, num_needed=None, is_allowed_loss=False)


def _answers(checks: ModelChecks) -> Iterator[tuple[Outcome, str]]:
    """Yield the answer of each check with the word for why it may not pass, the gravest first."""
    if checks.leaks is not None:
        is_open = checks.leaks.outcome is Outcome.INCONCLUSIVE
        yield checks.leaks.outcome, "rows_repeat" if is_open else LEAK
    if checks.simple is not None:
        is_open = checks.simple.outcome is Outcome.INCONCLUSIVE
        yield checks.simple.outcome, "simple_undecided" if is_open else ADDS_NOTHING
    if checks.probes is not None:
        for one in checks.probes.results:
            if one.outcome is not None:
                is_open = one.outcome is Outcome.INCONCLUSIVE
                yield one.outcome, "probe_undecided" if is_open else VIOLATED
    if checks.human is not None and checks.human.outcome is not None:
        yield checks.human.outcome, "no_human_baseline"
