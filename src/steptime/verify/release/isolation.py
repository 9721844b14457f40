"""The isolation matrix: what degrading each component does to each metric.

In: experiments that degraded components. Out: a cell for each metric that has a team and each
component: an own metric must move, that of another team must stay still within its margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.release.release_question import MetricExperiment, ReleaseMetric, Team
from steptime.verify.release.still import judge_still, mean_gain, worst
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import IsolationCell, MetricKind


def isolation_matrix(
    teams: Sequence[Team], metrics: Sequence[ReleaseMetric], experiments: Sequence[MetricExperiment]
) -> Iterator[IsolationCell]:
    """Yield the cells, component by component; those without an experiment are left out.

    A KPI of the own team may move or not, so it has no cell; nor has a KPI of all.
    """
    parts = [(team, component) for team in teams for component in team.components]
    for (team, component), metric in product(parts, metrics):
        is_own = metric.team == team.name
        if metric.team is None or (is_own and metric.kind is MetricKind.KPI):
            continue
        gains = _at_highest_dose(experiments, component, metric.name)
        if not gains:
            continue
        gain, outcome = (_moved if is_own else _farthest)(gains, metric.margin)
        yield IsolationCell(
            component=component,
            component_team=team.name,
            metric=metric.name,
            metric_team=metric.team,
            gain=gain.interval(),
            margin=metric.margin,
            num_experiments=len(gains),
            outcome=outcome,
        )


def _moved(gains: list[SignedGain], margin: float) -> tuple[SignedGain, Outcome]:
    """Return the mean, and whether it is worse as it must be; FAIL where it stays still."""
    gain = mean_gain(gains)
    if gain.interval().high < 0:
        return gain, Outcome.PASS
    is_blind = gain.interval().low > 0 or judge_still(gain, margin) is Outcome.PASS
    return gain, Outcome.FAIL if is_blind else Outcome.INCONCLUSIVE


def _farthest(gains: list[SignedGain], margin: float) -> tuple[SignedGain, Outcome]:
    """Return the gain that is farthest from still, and the gravest answer."""
    outcome = worst(judge_still(one, margin) for one in gains)
    graves = [one for one in gains if judge_still(one, margin) is outcome]
    return max(graves, key=lambda one: abs(one.mean)), outcome


def _at_highest_dose(
    experiments: Sequence[MetricExperiment], component: str, metric: str
) -> list[SignedGain]:
    """Return the gain of each kind of degradation of a component at its highest dose."""
    found = [
        one
        for one in experiments
        if one.component == component and one.is_degraded and metric in one.gains
    ]
    highest = {one.kind: one for one in sorted(found, key=lambda one: one.dose or 0.0)}
    return [one.gains[metric] for one in highest.values()]
