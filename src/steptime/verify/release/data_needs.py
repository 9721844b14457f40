"""The cheapest rows that decide what is open in a release, with their price.

In: the question, the results and the reasons. Out: a need for each table. Rows of one table serve
all its metrics, so a table needs the rows of the metric that takes most.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.verify.release.release_question import ReleaseQuestion
from steptime.verify.release.still import as_gain, num_more
from steptime.verify.values.release_verdict import (
    Color,
    DataNeed,
    IsolationCell,
    MetricResult,
    MetricRole,
    Reason,
)

_OPEN_CODES = frozenset({"own_open", "colleague_open"})


EXPERIMENTS = "experiments"
"""The table of the experiments, among those of the metrics."""


def cheapest_rows(
    asked: ReleaseQuestion,
    metrics: Sequence[MetricResult],
    cells: Sequence[IsolationCell],
    reasons: Sequence[Reason],
) -> tuple[DataNeed, ...]:
    """Return the rows that decide, if the effects are as they were seen; power 80 % in all.

    Args:
        asked: the question.
        metrics: what each metric did.
        cells: of the isolation matrix.
        reasons: what keeps the release from shipping.
    """
    open_metrics = {one.subject for one in reasons if one.code in _OPEN_CODES}
    rows, served = dict[str, int](), dict[str, list[str]]()
    for one in metrics:
        needed = _required(asked, one, len(metrics)) if one.metric in open_metrics else None
        if needed is not None:
            rows[one.table] = max(needed, rows.get(one.table, 0))
            served.setdefault(one.table, []).append(one.metric)
    for metric in asked.metrics:
        if metric.name in asked.missing and metric.table is not None:
            rows[metric.table] = max(asked.missing[metric.name], rows.get(metric.table, 0))
            served.setdefault(metric.table, []).append(metric.name)
    leaks = {(one.subject, one.other) for one in reasons if one.code == "leak_open"}
    _add_experiments([one for one in cells if (one.component, one.metric) in leaks], rows, served)
    if any(one.code == "no_gain_open" for one in reasons):
        _add_gain(asked, metrics, rows, served)
    return tuple(
        DataNeed(
            table=table,
            metrics=tuple(served[table]),
            num_more=num,
            cost=None if table not in asked.prices else num * asked.prices[table],
        )
        for table, num in rows.items()
    )


def _required(asked: ReleaseQuestion, one: MetricResult, num_tests: int) -> int | None:
    """Return the rows that show what is required of a metric, or that it is not so."""
    gain = asked.measured[one.metric].gain
    if one.role is MetricRole.COLLEAGUE:
        distance = abs(one.margin - abs(gain.mean))
    else:
        distance = abs(gain.mean + one.margin)
    return num_more(gain, distance, num_tests=num_tests)


def _add_experiments(
    cells: Sequence[IsolationCell], rows: dict[str, int], served: dict[str, list[str]]
) -> None:
    """Add the rows of an experiment that show whether a metric stays still."""
    for cell in cells:
        gain, margin = as_gain(cell.gain), cell.margin
        needed = num_more(gain, abs(margin - abs(gain.mean)), num_tests=len(cells))
        if needed is not None:
            rows[EXPERIMENTS] = max(needed, rows.get(EXPERIMENTS, 0))
            served.setdefault(EXPERIMENTS, []).append(f"{cell.metric} with {cell.component}")


def _add_gain(
    asked: ReleaseQuestion,
    metrics: Sequence[MetricResult],
    rows: dict[str, int],
    served: dict[str, list[str]],
) -> None:
    """Add the rows that show one own metric better, or else all of them worse."""
    own = [one for one in metrics if one.role is MetricRole.OWN and one.color is not Color.GREEN]
    better, worse = list[tuple[float, int, str, str]](), list[tuple[float, int, str, str]]()
    for one in own:
        gain = asked.measured[one.metric].gain
        needed = num_more(gain, abs(gain.mean), num_tests=len(own))
        if needed is not None:
            added = max(0, needed - rows.get(one.table, 0))
            price = added * asked.prices.get(one.table, 0.0)
            choice = (price, needed, one.table, one.metric)
            (better if gain.mean > 0 else worse).append(choice)
    for _, needed, table, metric in [min(better)] if better else worse:
        rows[table] = max(needed, rows.get(table, 0))
        if metric not in served.setdefault(table, []):
            served[table].append(metric)
