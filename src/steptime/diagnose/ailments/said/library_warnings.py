"""Ailments that a library warns of, by what is known of its message; and DDP's idle search.

In: a Measurement with what libraries said. Out: findings. Messages that nothing is known of are
listed in the report, and make no finding. A finding with numbers of its own wins over a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from steptime.diagnose.ailments.ailment import Ailment, Asked, Removal, by_facts
from steptime.diagnose.ailments.said.known_message import KnownMessage, read_messages
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import (
    count,
    make_finding,
    median_step_s,
    seconds,
)
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement

MESSAGES = read_messages()

MIN_SEARCHES = Threshold(
    name="MIN_SEARCHES",
    value=20,
    why="a parameter that one iteration in seven leaves out is seen in 20 with 95 %",
)
MIN_SEARCH_COST = Threshold(
    name="MIN_SEARCH_COST",
    value=0.01,
    why="of a step: a search that takes less is named, but need not be removed",
)


def find_said(measurement: Measurement, *, message: KnownMessage) -> Finding | None:
    """No bottleneck by itself: a library warns of something that is known."""
    pattern = re.compile(message.pattern)
    found = ((pattern.search(one.text), one) for one in measurement.said)
    match, said = next(((m, one) for m, one in found if m is not None), (None, None))
    if match is None or said is None:
        return None
    row = _BY_CAUSE[message.cause]
    finding = make_finding(
        row,
        severity=Severity.WARNING if message.serious else Severity.INFO,
        evidence=(
            count("num_said", said.num),
            *(() if said.first_update is None else (count("first_update", said.first_update),)),
        ),
    )
    names = {name: word or "a function" for name, word in match.groupdict().items()}
    return replace(finding, where=said.where, names=names or None)


def find_unused_search(measurement: Measurement) -> Finding | None:
    """No bottleneck by itself: DDP searches for unused parameters, and there are none."""
    search, step_s = measurement.unused_search, median_step_s(measurement)
    if search is None or search.with_unused or search.iterations < MIN_SEARCHES.value:
        return None
    cost_s = search.s_per_step
    fraction = None if cost_s is None or not step_s else min(1.0, cost_s / step_s)
    is_small = fraction is not None and fraction < MIN_SEARCH_COST.value
    return make_finding(
        UNUSED_SEARCH,
        severity=Severity.INFO if is_small else Severity.WARNING,
        evidence=(
            count("num_iterations", search.iterations),
            *(() if cost_s is None else (seconds("search", cost_s),)),
        ),
        fraction=fraction,
    )


def without_said_twice(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without messages whose cause another finding names with its numbers."""
    causes = {one.cause for one in findings}
    same = {m.cause for m in MESSAGES if causes.intersection(m.same_as)}
    return [one for one in findings if one.cause not in same]


def _row(message: KnownMessage) -> Ailment:
    """Return the row of a message."""
    return Ailment(
        cause=message.cause,
        what=f"{message.library} warns: {message.cause.removeprefix('said_').replace('_', ' ')}",
        needs="`said`",
        rule=partial(find_said, message=message),
        asked=Asked.ALWAYS,
        title=f"warning of {message.library}",
        sentence=message.means,
        explanation=f"People ask about this at {message.thread}.",
        remedy=message.remedy,
        when_contended=by_facts("The library says so, whatever other programs do."),
    )


UNUSED_SEARCH = Ailment(
    cause="unused_search",
    what="DDP searches for unused parameters in each step, and none is unused",
    needs="DDP's logging data, 20 iterations",
    rule=find_unused_search,
    asked=Asked.ALWAYS,
    thresholds=(MIN_SEARCHES, MIN_SEARCH_COST),
    title="unused search",
    sentence="in each step DDP searches the graph for parameters that are unused "
    "(find_unused_parameters=True), and in {num_iterations} iterations there was none.",
    explanation="People ask about this at https://github.com/m2lines/Samudra/issues/630.",
    removal=Removal(
        condition="Without the search",
        parts={"search": "that takes {search} per step"},
        whole="step",
    ),
    remedy="Leave find_unused_parameters out of DistributedDataParallel(...), if no later step "
    "leaves a parameter out.",
    when_contended=by_facts("Iterations are counted."),
)
AILMENTS = (UNUSED_SEARCH, *map(_row, MESSAGES))
_BY_CAUSE = {row.cause: row for row in AILMENTS}
