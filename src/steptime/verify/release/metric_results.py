"""Judges each metric of a release by what is required of it, and sums what releases have cost it.

In: the metrics and what was measured. Out: a result for each. Own metrics must not be worse, those
of colleagues must stay still; one own metric at least must be better, by Holm over all own ones.
Many small losses that each pass are one large loss, so the losses of all releases are summed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from steptime.verify.model.signed_gains import LEVEL, judge
from steptime.verify.release.release_question import ReleaseQuestion
from steptime.verify.release.still import judge_still
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import Color, ErosionTotal, MetricResult


def metric_results(asked: ReleaseQuestion) -> Iterator[MetricResult]:
    """Yield the result of each metric that was measured."""
    p_better, online = _holm(asked), {table.name for table in asked.file.tables if table.online}
    for metric in asked.file.metrics:
        if metric.name not in asked.measured:
            continue
        gain = asked.measured[metric.name]
        found, still = gain.interval(), judge_still(gain, metric.margin)
        is_colleague = metric.team not in (None, asked.file.team)
        outcome = still if is_colleague else judge(gain, metric.margin)
        p = p_better.get(metric.name)
        is_better = not is_colleague and (found.low > 0 if p is None else p < LEVEL)
        color = Color.STILL if still is Outcome.PASS else Color.UNKNOWN
        if outcome is Outcome.FAIL:
            color = Color.RED
        elif is_better:
            color = Color.GREEN
        yield MetricResult(
            metric=metric.name,
            kind=metric.kind,
            team=metric.team,
            owner=asked.file.owner_of(metric.team),
            table=metric.table or "",
            gain=found,
            margin=metric.margin,
            color=color,
            outcome=outcome,
            p_better=p,
            is_online=metric.table in online,
        )


def _holm(asked: ReleaseQuestion) -> dict[str, float]:
    """Return for each own metric the probability of its gain, were there none, after Holm."""
    from statsmodels.stats.multitest import multipletests

    own = {one.name for one in asked.file.metrics if one.team == asked.file.team}
    p_values = {x: gain.p_not_worse(0.0) for x, gain in asked.measured.items() if x in own}
    adjusted = multipletests(list(p_values.values()), method="holm")[1] if p_values else ()
    return {name: float(p) for name, p in zip(p_values, adjusted, strict=True)}


def erosion_totals(asked: ReleaseQuestion) -> Iterator[ErosionTotal]:
    """Yield the totals, this release included; losses are not made up for by gains."""
    for metric in asked.file.metrics:
        if metric.erosion is None or metric.name not in asked.measured:
            continue
        gains = [one.gains[metric.name] for one in asked.ledger if metric.name in one.gains]
        gains.append(asked.measured[metric.name].mean)
        lost = math.fsum(max(0.0, -gain) for gain in gains)
        yield ErosionTotal(
            metric=metric.name,
            num_releases=len(gains) - 1,
            lost=lost,
            net=-math.fsum(gains),
            margin=metric.erosion,
            outcome=Outcome.PASS if lost <= metric.erosion else Outcome.FAIL,
        )
