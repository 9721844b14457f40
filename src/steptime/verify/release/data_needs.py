"""The cheapest rows that decide what is open in a release, with their price.

In: the question and the verdict so far. Out: a need for each table. Rows of one table serve all its
metrics, so a table needs the rows of the metric that takes most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from steptime.verify.release.release_question import ReleaseQuestion
from steptime.verify.release.still import as_gain, num_more
from steptime.verify.values.release_verdict import Color, DataNeed, MetricRole, ReleaseVerdict

EXPERIMENTS = "experiments"
"""The table of the experiments, among those of the metrics."""


@dataclass(slots=True)
class _Needed:
    """Rows that each table needs, and what they decide."""

    num: dict[str, int] = field(default_factory=dict)
    served: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, table: str, num: int | None, subject: str) -> None:
        if num is not None:
            self.num[table] = max(num, self.num.get(table, 0))
            self.served.setdefault(table, {})[subject] = None


def cheapest_rows(asked: ReleaseQuestion, found: ReleaseVerdict) -> tuple[DataNeed, ...]:
    """Return the rows that decide, if the effects are as they were seen; power 80 % in all."""
    is_open = {(one.code, one.subject, one.other) for one in found.reasons}
    rows, num_tests = _Needed(), len(found.metrics)
    for one in found.metrics:
        gain = asked.measured[one.metric].gain
        if ("colleague_open", one.metric, None) in is_open:
            distance = abs(one.margin - abs(gain.mean))
            rows.add(one.table, num_more(gain, distance, num_tests=num_tests), one.metric)
        if ("own_open", one.metric, None) in is_open:
            distance = abs(gain.mean + one.margin)
            rows.add(one.table, num_more(gain, distance, num_tests=num_tests), one.metric)
    for metric in asked.metrics:
        if metric.table is not None:
            rows.add(metric.table, asked.missing.get(metric.name), metric.name)
    for cell in found.isolation:
        if ("leak_open", cell.component, cell.metric) in is_open:
            gain, subject = as_gain(cell.gain), f"{cell.metric} with {cell.component}"
            distance = abs(cell.margin - abs(gain.mean))
            needed = num_more(gain, distance, num_tests=len(found.isolation))
            rows.add(EXPERIMENTS, needed, subject)
    if ("no_gain_open", asked.team, None) in is_open:
        _add_gain(asked, found, rows)
    prices = asked.prices
    return tuple(
        DataNeed(
            table=table,
            metrics=tuple(rows.served[table]),
            num_more=num,
            cost=None if table not in prices else num * prices[table],
        )
        for table, num in rows.num.items()
    )


def _add_gain(asked: ReleaseQuestion, found: ReleaseVerdict, rows: _Needed) -> None:
    """Add the rows that show one own metric better, the cheapest, or else all of them worse."""
    own = [x for x in found.metrics if x.role is MetricRole.OWN and x.color is not Color.GREEN]
    better, worse = list[tuple[float, int, str, str]](), list[tuple[float, int, str, str]]()
    for one in own:
        gain = asked.measured[one.metric].gain
        needed = num_more(gain, abs(gain.mean), num_tests=len(own))
        if needed is not None:
            added = max(0, needed - rows.num.get(one.table, 0))
            choice = (added * asked.prices.get(one.table, 0.0), needed, one.table, one.metric)
            (better if gain.mean > 0 else worse).append(choice)
    for _, needed, table, metric in [min(better)] if better else worse:
        rows.add(table, needed, metric)
