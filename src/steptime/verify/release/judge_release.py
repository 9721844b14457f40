"""Decides whether a model may ship, and lists everything that keeps it from shipping.

In: a `ReleaseQuestion`. Out: a `ReleaseVerdict`. It ships where an own metric is better, no other
own one is worse, those of colleagues stay still, and all checks pass. A FAIL means that it must
not, whatever more rows would say; all else is not yet, with the cheapest rows that decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from steptime.errors import MissingExtraError
from steptime.verify.release.data_needs import cheapest_rows
from steptime.verify.release.isolation import isolation_matrix
from steptime.verify.release.metric_results import erosion_totals, metric_results
from steptime.verify.release.proxy import judge_rung
from steptime.verify.release.release_question import (
    MetricExperiment,
    ReleaseMetric,
    ReleaseQuestion,
)
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import (
    Color,
    IsolationCell,
    MetricKind,
    MetricResult,
    MetricRole,
    Reason,
    ReleaseVerdict,
    Rung,
)

_FAIL, _OPEN = Outcome.FAIL, Outcome.INCONCLUSIVE
Lags = Mapping[str, float]


def judge_release(asked: ReleaseQuestion) -> ReleaseVerdict:
    """Return the decision.

    Raises:
        MissingExtraError: the extra `verify-model` is not installed.
    """
    _load_statistics()
    isolation = isolation_matrix(asked.teams, asked.metrics, asked.experiments)
    found = ReleaseVerdict(
        release=asked.release,
        team=asked.team,
        owner=_owner(asked, asked.team) or "",
        outcome=Outcome.PASS,
        currency=asked.currency,
        metrics=metric_results(asked),
        ladder=_ladder(asked),
        isolation=isolation,
        checks=asked.checks,
        erosion=erosion_totals(asked),
        first_reference=asked.ledger[0].reference if asked.ledger else None,
        notes=asked.notes if isolation else (*asked.notes, "no_isolation"),
    )
    reasons = tuple(_reasons(asked, found, _early_kpis(asked, found.ladder)))
    outcomes = {reason.outcome for reason in reasons}
    outcome = next((one for one in (_FAIL, _OPEN) if one in outcomes), Outcome.PASS)
    found = replace(found, outcome=outcome, reasons=reasons)
    needs = cheapest_rows(asked, found) if outcome is _OPEN else ()
    costs = [one.cost for one in needs if one.cost is not None]
    is_priced = bool(needs) and len(costs) == len(needs)
    return replace(found, needs=needs, cost=sum(costs) if is_priced else None)


def _owner(asked: ReleaseQuestion, team: str | None) -> str | None:
    return next((one.owner for one in asked.teams if one.name == team), None)


def _ladder(asked: ReleaseQuestion) -> tuple[Rung, ...]:
    by_name = {metric.name: metric for metric in asked.metrics}
    return tuple(
        judge_rung(
            one, by_name[one.proxy_for], _experiments_of(one, asked), threshold=asked.threshold
        )
        for one in asked.metrics
        if one.proxy_for is not None
    )


def _experiments_of(metric: ReleaseMetric, asked: ReleaseQuestion) -> list[MetricExperiment]:
    """Return the experiments that tell of a metric: those on components of others do not."""
    others = {x for team in asked.teams if team.name != metric.team for x in team.components}
    return [one for one in asked.experiments if one.component not in others]


def _early_kpis(asked: ReleaseQuestion, ladder: Sequence[Rung]) -> Lags:
    """Return the metrics that were read before their lag, with the lag."""
    read = {one.name: one.read_after for one in asked.metrics}
    lags = dict[str, float]()
    for rung in ladder:
        after = read.get(rung.target)
        if rung.lag is not None and after is not None and after < rung.lag:
            lags[rung.target] = max(rung.lag, lags.get(rung.target, 0.0))
    return lags


def _because(
    outcome: Outcome, code: str, subject: str, other: str | None = None, owner: str | None = None
) -> Reason:
    return Reason(code=code, outcome=outcome, subject=subject, other=other, owner=owner)


def _reasons(asked: ReleaseQuestion, found: ReleaseVerdict, early: Lags) -> Iterator[Reason]:
    yield from _of_metrics(asked, found, early)
    yield from _of_own_gain(asked, found, early)
    for cell in found.isolation:
        concerns = asked.team in (cell.component_team, cell.metric_team)
        if concerns and cell.outcome is not Outcome.PASS:
            yield _of_cell(asked, cell)
    for check in asked.checks:
        if check.outcome is not Outcome.PASS:
            code = "check_failed" if check.outcome is _FAIL else "check_open"
            yield _because(check.outcome, code, check.name, check.detail)
    for total in found.erosion:
        if total.outcome is _FAIL:
            yield _because(_FAIL, "erosion", total.metric)


def _of_metrics(asked: ReleaseQuestion, found: ReleaseVerdict, early: Lags) -> Iterator[Reason]:
    """Yield what metrics say that do not do what is required of them."""
    known = {one.metric for one in found.metrics}
    for metric in asked.metrics:
        if metric.table is not None and metric.name not in known:
            yield _because(_OPEN, "not_measured", metric.name)
    for one in found.metrics:
        is_colleague = one.role is MetricRole.COLLEAGUE
        if one.metric in early:
            after = f"{early[one.metric]:g}"
            yield _because(_OPEN, "kpi_too_early", one.metric, after, one.owner)
        elif one.outcome is _FAIL:
            code = "colleague_moved" if is_colleague else "own_worse"
            yield _because(_FAIL, code, one.metric, owner=one.owner)
            for below in _green_below(asked, found, one):
                yield _because(_FAIL, "acceptance_at_fault", below.metric, one.metric, below.owner)
        elif one.outcome is _OPEN:
            code = "colleague_open" if is_colleague else "own_open"
            yield _because(_OPEN, code, one.metric, owner=one.owner)


def _green_below(
    asked: ReleaseQuestion, found: ReleaseVerdict, top: MetricResult
) -> Iterator[MetricResult]:
    """Yield the acceptance metrics that are green below a red KPI of the ladder."""
    above = {one.name: one.proxy_for for one in asked.metrics}
    for one in found.metrics if top.kind is MetricKind.KPI else ():
        name: str | None = one.metric
        while name is not None and name != top.metric:
            name = above.get(name)
        if name and one.kind is MetricKind.ACCEPTANCE and one.color is Color.GREEN:
            yield one


def _of_own_gain(asked: ReleaseQuestion, found: ReleaseVerdict, early: Lags) -> Iterator[Reason]:
    """Yield why no own metric is better, where none is that counts.

    The gain of a metric that stands for another counts only where it is known to do so, and that
    of a KPI only when its time has come.
    """
    own = [one for one in found.metrics if one.role is MetricRole.OWN and one.metric not in early]
    green = {one.metric: one for one in own if one.color is Color.GREEN}
    doubts = {name: rung for name in green if (rung := _doubt(name, found.ladder)) is not None}
    if len(doubts) < len(green):
        return
    hopes = [one for one in own if one.metric not in green and one.gain.high > 0]
    is_final = bool(own) and not hopes and all(x.outcome is _FAIL for x in doubts.values())
    outcome = _FAIL if is_final else _OPEN
    for name, rung in doubts.items():
        code = "proxy_refuted" if rung.outcome is _FAIL else "proxy_open"
        yield _because(outcome, code, name, rung.target, green[name].owner)
    if hopes or not green:
        yield _because(outcome, "no_gain" if is_final else "no_gain_open", asked.team)


def _doubt(name: str, ladder: Sequence[Rung]) -> Rung | None:
    """Return the first rung on the way up that is not shown to hold."""
    rungs = {rung.metric: rung for rung in ladder}
    while name in rungs:
        if rungs[name].outcome is not Outcome.PASS:
            return rungs[name]
        name = rungs[name].target
    return None


def _of_cell(asked: ReleaseQuestion, cell: IsolationCell) -> Reason:
    """Return what a cell of the isolation matrix says against the release."""
    code = "leak_open" if cell.outcome is _OPEN else "leaks"
    if cell.is_own:
        code = "blind" if cell.outcome is _FAIL else "blind_open"
    owner = _owner(asked, cell.metric_team)
    return _because(cell.outcome, code, cell.component, cell.metric, owner)


def _load_statistics() -> None:
    try:
        import numpy
        import scipy.stats
        import statsmodels.stats.multitest
        import ville  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"Judging a release needs {error.name}, which is not installed.",
            needs="steptime[verify-model]",
        ) from error
    del numpy, scipy, statsmodels
