"""Makes the document of `steptime compare`.

In: a Comparison. Out: a `ComparisonDocument` in its envelope. Numbers that are not known are null,
never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.compare.values import Comparison, Effect, Estimate, FirstDifference
from steptime.report.blocks.compare.comparison_report import ComparisonRequest
from steptime.report.document.envelope import Envelope, ErrorItem, enclose
from steptime.report.words.run.compare_words import (
    describe_gate,
    describe_obstacle,
    describe_reason,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What a whole run costs at a price for an hour.

    Attributes:
        price_per_hour: the price that was given with `--hourly-price`.
        a: the cost of a run of A.
        b: the cost of a run of B.
        difference: the cost of B minus that of A.
    """

    price_per_hour: float
    a: float
    b: float
    difference: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument:
    """A comparison of two sets of runs.

    Attributes:
        comparison: what differs.
        cost: the cost of a whole run; null without `--hourly-price`, or where a run has no end.
        first_difference: where the two runs part; null without `--first-difference`.
    """

    comparison: Comparison
    cost: RunCost | None
    first_difference: FirstDifference | None = None


def comparison_envelope(
    found: Comparison, *, asked: ComparisonRequest, exit_code: int
) -> Envelope[ComparisonDocument]:
    """Return the envelope; what keeps the command from ending with 0 is among the errors."""
    document = ComparisonDocument(
        comparison=found,
        cost=_cost(found.finish, asked.price),
        first_difference=asked.first_difference,
    )
    errors = _errors(found, asked, exit_code)
    return enclose("compare", document, exit_code=exit_code, errors=errors)


def _errors(found: Comparison, asked: ComparisonRequest, exit_code: int) -> tuple[ErrorItem, ...]:
    if exit_code == 0:
        return ()
    stopping = [o for o in found.obstacles if o.code == "failed" or exit_code == 2]
    if exit_code in (2, 3) and stopping:
        code = "not_comparable" if exit_code == 2 else "script_failed"
        return tuple(ErrorItem(code=code, message=describe_obstacle(o)) for o in stopping)
    if exit_code == 5:
        code = "gate_not_met"
    else:
        code = "too_noisy"
    message = describe_gate(found, is_forced=asked.is_forced) or describe_reason(found.reason or "")
    return (ErrorItem(code=code, message=message),)


def _cost(finish: Effect | None, price: float | None) -> RunCost | None:
    if finish is None or price is None:
        return None
    rate, longer = price / 3600, finish.difference_s
    return RunCost(
        price_per_hour=price,
        a=finish.a_s * rate,
        b=finish.b_s * rate,
        difference=Estimate(
            value=longer.value * rate,
            low=None if longer.low is None else longer.low * rate,
            high=None if longer.high is None else longer.high * rate,
        ),
    )
