"""The isolation matrix: what degrading each component does to each metric.

In: experiments that degraded components. Out: a cell for each metric that has a team and each
component: an own metric must move, that of another team must stay still within its margin.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.release.release_question import MetricExperiment, ReleaseMetric, Team
from steptime.verify.release.still import judge_still, mean_gain
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import IsolationCell, MetricKind

_WORST = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)


def isolation_matrix(
    teams: Sequence[Team], metrics: Sequence[ReleaseMetric], experiments: Sequence[MetricExperiment]
) -> tuple[IsolationCell, ...]:
    """Return the cells, component by component; those without an experiment are left out.

    A KPI of the own team may move or not, so it has no cell; nor has a KPI of all.
    """
    cells = list[IsolationCell]()
    for team in teams:
        for component in team.components:
            found = [one for one in experiments if one.component == component and one.is_degraded]
            for metric in metrics:
                is_own = metric.team == team.name
                if metric.team is None or (is_own and metric.kind is MetricKind.KPI):
                    continue
                gains = _at_highest_dose(found, metric.name)
                if gains:
                    cells.append(_cell(team, component, metric, gains, is_own=is_own))
    return tuple(cells)


def _cell(
    team: Team, component: str, metric: ReleaseMetric, gains: list[SignedGain], *, is_own: bool
) -> IsolationCell:
    if is_own:
        gain = mean_gain(gains)
        outcome = _judge_moved(gain, metric.margin)
    else:
        judged = [(judge_still(one, metric.margin), one) for one in gains]
        outcome, gain = min(judged, key=lambda one: (_WORST.index(one[0]), -abs(one[1].mean)))
    return IsolationCell(
        component=component,
        component_team=team.name,
        metric=metric.name,
        metric_team=str(metric.team),
        is_own=is_own,
        gain=gain.interval(),
        margin=metric.margin,
        num_experiments=len(gains),
        outcome=outcome,
    )


def _judge_moved(gain: SignedGain, margin: float) -> Outcome:
    """Return whether a degraded component makes its metric worse; FAIL where that stays still."""
    if gain.interval().high < 0:
        return Outcome.PASS
    is_still = judge_still(gain, margin) is Outcome.PASS
    return Outcome.FAIL if is_still or gain.interval().low > 0 else Outcome.INCONCLUSIVE


def _at_highest_dose(experiments: Sequence[MetricExperiment], metric: str) -> list[SignedGain]:
    """Return the gain of each kind of degradation at its highest dose."""
    highest = dict[str, MetricExperiment]()
    for one in experiments:
        if metric in one.gains:
            before = highest.get(one.kind)
            if before is None or (one.dose or 0.0) > (before.dose or 0.0):
                highest[one.kind] = one
    return [one.gains[metric] for one in highest.values()]
