"""Words of a release decision."""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.interval import Interval
from steptime.core.units import format_count, format_percent
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import (
    Color,
    DataNeed,
    ErosionTotal,
    IsolationCell,
    MetricResult,
    MetricRole,
    Reason,
    ReleaseVerdict,
    Rung,
)

ANSWERS: Mapping[Outcome, str] = {
    Outcome.PASS: "Ship",
    Outcome.FAIL: "Do not ship",
    Outcome.INCONCLUSIVE: "Not yet",
}
COLORS: Mapping[Color, str] = {
    Color.GREEN: "better",
    Color.RED: "worse",
    Color.STILL: "still",
    Color.UNKNOWN: "unknown",
}
MUSTS: Mapping[MetricRole, str] = {
    MetricRole.OWN: "not be worse",
    MetricRole.SHARED: "not be worse",
    MetricRole.COLLEAGUE: "stay still",
}
NOTES: Mapping[str, str] = {
    "no_isolation": "no experiment degrades a component of a team, so there is no isolation matrix",
}
_REASONS: Mapping[str, str] = {
    "own_worse": "{subject} is worse by more than its margin",
    "own_open": "{subject} may be worse by its margin: its rows do not decide",
    "colleague_moved": "{subject} of another team moves by more than its margin",
    "colleague_open": "{subject} of another team is not shown to stay still",
    "no_gain": "no metric of {subject} is better, and all are worse",
    "no_gain_open": "no metric of {subject} is shown to be better",
    "not_measured": "{subject} has too few rows to be judged at all",
    "acceptance_at_fault": "the acceptance metric {subject} is at fault: it is better, and {other} "
    "is worse",
    "proxy_refuted": "{subject} is better, but does not stand for {other}, so that counts for "
    "nothing",
    "proxy_open": "{subject} is better, but is not shown to stand for {other}",
    "kpi_too_early": "{subject} was read too early: its sign is honest only after {other}",
    "leaks": "degrading {subject} moves {other} of another team by more than its margin",
    "leak_open": "{other} is not shown to stay still when {subject} is degraded",
    "blind": "{other} does not see it when {subject} of its own team is degraded",
    "blind_open": "{other} is not shown to move when {subject} of its own team is degraded",
    "check_failed": "the check {subject} fails ({other})",
    "check_open": "the check {subject} is undecided ({other})",
    "erosion": "all releases together have cost {subject} more than they may",
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
    first = found.reasons[0] if found.reasons else None
    who = f"{found.team} ({found.owner})"
    if first is None:
        return f"{found.release} of {who}: an own metric is better, and nothing speaks against it"
    more = f", and {len(found.reasons) - 1} more" if len(found.reasons) > 1 else ""
    return f"{found.release} of {who}: {describe_reason(first, has_owner=False)}{more}"


def describe_reason(reason: Reason, *, has_owner: bool = True) -> str:
    """Say one thing that keeps the release from shipping."""
    text = _REASONS[reason.code].format(subject=reason.subject, other=reason.other)
    return f"{text} (ask {reason.owner})" if has_owner and reason.owner else text


def describe_need(need: DataNeed, currency: str) -> str:
    """Return `12,000 more rows in offline decide ndcg, for 240 EUR`."""
    text = f"{format_count(need.num_more)} more rows in {need.table} decide "
    text += ", ".join(need.metrics)
    return text if need.cost is None else f"{text}, for {_price(need.cost, currency)}"


def describe_cost(found: ReleaseVerdict) -> str | None:
    """Return the price of all needs together; None where there is only one, or none is known."""
    if found.cost is None or len(found.needs) < 2:
        return None
    return f"{_price(found.cost, found.currency)} together"


def _price(cost: float, currency: str) -> str:
    return f"{cost:,.2f} {currency}".rstrip()


def describe_gain(gain: Interval) -> str:
    """Return `+0.02 (0.0051 to 0.0349)`."""
    return f"{gain.estimate:+.3g} ({gain.low:+.3g} to {gain.high:+.3g})"


def describe_metric(one: MetricResult) -> str:
    """Say what a metric did."""
    if one.role is MetricRole.COLLEAGUE and one.color is Color.RED:
        return "moves"
    text = COLORS[one.color]
    if one.is_allowed_loss:
        text += ", significantly worse but within the margin"
    if one.is_online:
        text += ", at any look"
    return text


def describe_rung(rung: Rung) -> str:
    """Say whether a metric stands for the one above it, and on what that rests."""
    if rung.outcome is Outcome.PASS:
        return "stands for it"
    verb = "does not stand for it" if rung.outcome is Outcome.FAIL else "undecided"
    return f"{verb}: {_RUNG_REASONS[rung.reason or '']}"


def describe_evidence(rung: Rung) -> str | None:
    """Return the figures behind a rung."""
    if rung.signal_share is None:
        return None
    parts = [f"signal {format_percent(max(rung.signal_share, 0.0))} of the spread"]
    if rung.correlation is not None:
        r = rung.correlation
        parts.append(f"r {r.estimate:.2f} ({r.low:.2f} to {r.high:.2f}) without noise")
    if rung.naive_correlation is not None:
        parts.append(f"r {rung.naive_correlation:.2f} as it is")
    if rung.slope is not None:
        slope = rung.slope
        parts.append(f"slope {slope.estimate:.3g} ({slope.low:.3g} to {slope.high:.3g})")
    if rung.p_direction is not None:
        kinds = f"{rung.num_kinds_agree} of {rung.num_kinds} kinds move both the same way"
        parts.append(f"{kinds} (p {rung.p_direction:.2g})")
    if rung.num_doses_kinds:
        parts.append(f"loss grows with the dose in {rung.num_monotone} of {rung.num_doses_kinds}")
    if rung.lag is not None:
        parts.append(f"honest after {rung.lag:g}")
    return f"{rung.num_experiments} experiments; " + ", ".join(parts)


def describe_proxima(rung: Rung) -> str | None:
    """Return PROXIMA's scores; None without segments."""
    if rung.fragility_rate is None or rung.directional_accuracy is None:
        return None
    text = f"correlation {rung.naive_correlation or 0.0:.2f}"
    text += f", direction {format_percent(rung.directional_accuracy)}"
    text += f", flips in {format_percent(rung.fragility_rate)} of the segments"
    text += f", reliability {rung.reliability:.2f}"
    worst = [one for one in rung.segments if one.flip_rate > 0][:3]
    names = ", ".join(f"{one.segment} {format_percent(one.flip_rate)}" for one in worst)
    return f"{text}; most flips: {names}" if names else text


def describe_cell(cell: IsolationCell | None) -> str:
    """Return a cell of the isolation matrix, in margins."""
    if cell is None:
        return "–"
    size = f"{cell.gain.estimate / cell.margin:+.2g} m"
    if cell.is_own:
        words = {Outcome.PASS: "moves", Outcome.FAIL: "BLIND", Outcome.INCONCLUSIVE: "unknown"}
    else:
        words = {Outcome.PASS: "still", Outcome.FAIL: "LEAKS", Outcome.INCONCLUSIVE: "unknown"}
    return f"{words[cell.outcome]} {size}"


def describe_erosion(total: ErosionTotal) -> str:
    """Return what releases have cost a metric."""
    text = f"{total.lost:.3g} of {total.margin:g} is lost in this and {total.num_releases} earlier "
    return f"{text}releases; with their gains, the sum is {-total.net:+.3g}"
