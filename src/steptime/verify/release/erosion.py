"""Sums what releases have cost a metric since the first reference.

Many small losses that each pass are one large loss. In: the ledger and this release. Out: a total
for each metric whose releases together may cost a stated margin.
"""

from __future__ import annotations

import math

from steptime.verify.release.release_question import ReleaseQuestion
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import ErosionTotal


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
