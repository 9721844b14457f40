"""Words of a release decision."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.units import format_count, format_percent
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import (
    Color,
    DataNeed,
    ErosionTotal,
    IsolationCell,
    MetricResult,
    Reason,
    ReleaseVerdict,
    Rung,
)

ANSWERS: Mapping[Outcome, str] = {
    Outcome.PASS: "Ship",
    Outcome.FAIL: "Do not ship",
    Outcome.INCONCLUSIVE: "Not yet",
}
STANDS: Mapping[Outcome, str] = {
    Outcome.PASS: "yes",
    Outcome.FAIL: "NO",
    Outcome.INCONCLUSIVE: "unknown",
}
_COLORS: Mapping[Color, str] = {
    Color.GREEN: "better",
    Color.RED: "worse",
    Color.STILL: "still",
    Color.UNKNOWN: "unknown",
}
_REASONS: Mapping[str, str] = {
    "own_worse": "{subject} is worse by more than its margin",
    "colleague_moved": "{subject} of another team moves by more than its margin",
    "no_gain": "no metric of {other} is better, and all are worse",
    "not_measured": "{subject} has too few rows to be judged at all",
    "acceptance_at_fault": "the acceptance metric {subject} is at fault: it is better, and {other} "
    "is worse",
    "proxy_refuted": "{subject} is better, but does not stand for {other}, so that counts for "
    "nothing",
    "proxy_open": "{subject} is better, but is not shown to stand for {other}",
    "kpi_too_early": "{subject} was read too early: its sign is honest only after {other}",
    "leak": "degrading {other} moves {subject} of another team by more than its margin",
    "blind": "{subject} does not see it when {other} of its own team is degraded",
    "check": "the check {subject} fails ({other})",
    "erosion": "all releases together have cost {subject} more than they may",
}
_OPEN_REASONS: Mapping[str, str] = {
    **_REASONS,
    "own_worse": "{subject} may be worse by its margin: its rows do not decide",
    "colleague_moved": "{subject} of another team is not shown to stay still",
    "no_gain": "no metric of {other} is shown to be better",
    "leak": "{subject} is not shown to stay still when {other} is degraded",
    "blind": "{subject} is not shown to move when {other} of its own team is degraded",
    "check": "the check {subject} is undecided ({other})",
}
_RUNG_REASONS: Mapping[str, str] = {
    "no_experiments": "fewer than three experiments have both metrics",
    "zero_variance": "ZeroVariance: all experiments move it by the same",
    "weak_experiments": "WeakExperiments: most of their spread is noise; degrade harder",
    "aa_moved": "A/A experiments move it",
    "no_aa": "no A/A experiment shows that it stays still",
    "no_consequence": "what degrades it leaves the metric above within its margin",
    "no_correlation": "the effects do not go together",
    "correlation_open": "the experiments do not show that the effects go together",
    "direction_open": "too few kinds of degradation move both the same way",
}


def describe_answer(found: ReleaseVerdict) -> str:
    """Say the answer in one sentence."""
    who = f"{found.release} of {found.team} ({found.owner})"
    told = list(dict.fromkeys(describe_reason(one, has_owner=False) for one in found.reasons))
    if not told:
        return f"{who}: an own metric is better, and nothing speaks against it"
    return f"{who}: {told[0]}" + (f", and {len(told) - 1} more" if len(told) > 1 else "")


def describe_reason(reason: Reason, *, has_owner: bool = True) -> str:
    """Say one thing that keeps the release from shipping."""
    words = _OPEN_REASONS if reason.outcome is Outcome.INCONCLUSIVE else _REASONS
    text = words[reason.code].format(subject=reason.subject, other=reason.other)
    return f"{text} (ask {reason.owner})" if has_owner and reason.owner else text


def describe_need(need: DataNeed, currency: str) -> str:
    """Return `12,000 more rows in offline decide ndcg, for 240.00 EUR`."""
    text = f"{format_count(need.num_more)} more rows in {need.table} decide "
    text += ", ".join(need.metrics)
    return text if need.cost is None else f"{text}, for {_price(need.cost, currency)}"


def describe_cost(found: ReleaseVerdict) -> str | None:
    """Return the price of all needs together; None where there is only one, or none is known."""
    costs = [one.cost for one in found.needs if one.cost is not None]
    if len(costs) < max(len(found.needs), 2):
        return None
    return f"{_price(sum(costs), found.currency)} together"


def _price(cost: float, currency: str) -> str:
    return f"{cost:,.2f} {currency}".rstrip()


def describe_metric(one: MetricResult, *, of: str) -> str:
    """Say what a metric did, seen from the team that wants to ship."""
    if one.team not in (None, of) and one.color is Color.RED:
        return "moves"
    text = _COLORS[one.color]
    if one.outcome is Outcome.PASS and one.gain.high < 0:
        text += ", significantly worse but within the margin"
    if one.is_online:
        text += ", at any look"
    return text


EVIDENCE = ("signal", "r without noise", "r as it is", "kinds", "lag")


def describe_evidence(rung: Rung) -> tuple[str, ...]:
    """Return a cell for each of `EVIDENCE`."""
    share, r, naive = rung.signal_share, rung.correlation, rung.naive_correlation
    return (
        "" if share is None else format_percent(max(share, 0.0)),
        "" if r is None else f"{r.estimate:.2f} ({r.low:.2f} to {r.high:.2f})",
        "" if naive is None else f"{naive:.2f}",
        f"{rung.num_kinds_agree} of {rung.num_kinds}",
        "" if rung.lag is None else f"{rung.lag:g}",
    )


def describe_rung(rung: Rung) -> str:
    """Say why a metric does not stand for the one above it, and PROXIMA's scores."""
    told = [] if rung.reason is None else [f"{_RUNG_REASONS[rung.reason]}."]
    if rung.fragility_rate is not None and rung.directional_accuracy is not None:
        told.append(
            f"PROXIMA: correlation {rung.naive_correlation or 0.0:.2f}, direction "
            f"{format_percent(rung.directional_accuracy)}, flips in "
            f"{format_percent(rung.fragility_rate)} of the segments, reliability "
            f"{rung.reliability or 0.0:.2f}."
        )
    flips = sorted(rung.segment_flips.items(), key=lambda one: -one[1])[:3]
    if named := ", ".join(f"{name} {format_percent(rate)}" for name, rate in flips if rate > 0):
        told.append(f"Most flips: {named}.")
    return " ".join(told)


def describe_cell(cell: IsolationCell) -> str:
    """Return a cell of the isolation matrix, in margins."""
    words = {Outcome.PASS: "still", Outcome.FAIL: "LEAKS", Outcome.INCONCLUSIVE: "unknown"}
    if cell.component_team == cell.metric_team:
        words |= {Outcome.PASS: "moves", Outcome.FAIL: "BLIND"}
    return f"{words[cell.outcome]} {cell.gain.estimate / cell.margin:+.2g} m"


def describe_erosion(total: ErosionTotal) -> str:
    """Return what releases have cost a metric."""
    text = f"{total.lost:.3g} of {total.margin:g} is lost in this and {total.num_releases} earlier "
    return f"{text}releases; with their gains, the sum is {-total.net:+.3g}"
