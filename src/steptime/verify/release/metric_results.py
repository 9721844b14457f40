"""Judges each metric of a release by what is required of it, and sums what releases have cost it.

In: the metrics and what was measured. Out: a result for each. Own metrics must not be worse, those
of colleagues must stay still; one own metric at least must be better, by Holm over all own ones.
Many small losses that each pass are one large loss, so the losses of all releases are summed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from steptime.verify.model.signed_gains import LEVEL, judge
from steptime.verify.release.release_question import Measured, ReleaseMetric, ReleaseQuestion
from steptime.verify.release.still import judge_still, p_not_better
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import Color, ErosionTotal, MetricResult, MetricRole


def metric_results(asked: ReleaseQuestion) -> tuple[MetricResult, ...]:
    """Return the result of each metric that was measured."""
    owners = {team.name: team.owner for team in asked.teams}
    found = [(metric, asked.measured[metric.name]) for metric in asked.metrics
             if metric.name in asked.measured]  # fmt: skip
    p_better = _holm(
        {
            metric.name: p_not_better(measured.gain)
            for metric, measured in found
            if role_of(metric, asked.team) is MetricRole.OWN
        }
    )
    return tuple(
        _result(
            metric,
            measured,
            role=role_of(metric, asked.team),
            owner=owners.get(metric.team or ""),
            p_better=p_better.get(metric.name),
        )
        for metric, measured in found
    )


def role_of(metric: ReleaseMetric, team: str) -> MetricRole:
    """Return whose a metric is for a team."""
    if metric.team is None:
        return MetricRole.SHARED
    return MetricRole.OWN if metric.team == team else MetricRole.COLLEAGUE


def _holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values after Holm's correction."""
    if not p_values:
        return {}
    from statsmodels.stats.multitest import multipletests

    adjusted = multipletests(list(p_values.values()), method="holm")[1]
    return {name: float(p) for name, p in zip(p_values, adjusted, strict=True)}


def _result(
    metric: ReleaseMetric,
    measured: Measured,
    *,
    role: MetricRole,
    owner: str | None,
    p_better: float | None,
) -> MetricResult:
    gain, margin = measured.gain, metric.margin
    still = judge_still(gain, margin)
    outcome = still if role is MetricRole.COLLEAGUE else judge(gain, margin)
    is_better = gain.interval().low > 0 if p_better is None else p_better < LEVEL
    if outcome is Outcome.FAIL:
        color = Color.RED
    elif is_better and role is not MetricRole.COLLEAGUE:
        color = Color.GREEN
    else:
        color = Color.STILL if still is Outcome.PASS else Color.UNKNOWN
    return MetricResult(
        metric=metric.name,
        kind=metric.kind,
        team=metric.team,
        owner=owner,
        role=role,
        table=measured.table,
        gain=gain.interval(),
        margin=margin,
        color=color,
        outcome=outcome,
        p_better=p_better,
        is_online=measured.is_online,
        is_allowed_loss=outcome is Outcome.PASS and gain.interval().high < 0,
    )


def erosion_totals(asked: ReleaseQuestion) -> tuple[ErosionTotal, ...]:
    """Return the totals, this release included; losses are not made up for by gains."""
    totals = list[ErosionTotal]()
    for metric in asked.metrics:
        if metric.erosion is None or metric.name not in asked.measured:
            continue
        gains = [one.gains[metric.name] for one in asked.ledger if metric.name in one.gains]
        gains.append(asked.measured[metric.name].gain.mean)
        lost = math.fsum(max(0.0, -gain) for gain in gains)
        totals.append(
            ErosionTotal(
                metric=metric.name,
                num_releases=len(gains) - 1,
                lost=lost,
                net=-math.fsum(gains),
                margin=metric.erosion,
                outcome=Outcome.PASS if lost <= metric.erosion else Outcome.FAIL,
            )
        )
    return tuple(totals)
