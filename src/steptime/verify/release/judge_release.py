"""Decides whether a model may ship, and lists everything that keeps it from shipping.

In: a `ReleaseQuestion`. Out: a `ReleaseVerdict`. It ships where an own metric is better, no other
own one is worse, those of colleagues stay still, and all checks pass. A FAIL means that it must
not, whatever more rows would say; all else is not yet, with the cheapest rows that decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steptime.errors import MissingExtraError
from steptime.verify.release.data_needs import cheapest_rows
from steptime.verify.release.erosion import erosion_totals
from steptime.verify.release.isolation import isolation_matrix
from steptime.verify.release.metric_results import metric_results
from steptime.verify.release.proxy import judge_rung
from steptime.verify.release.release_question import (
    MetricExperiment,
    ReleaseMetric,
    ReleaseQuestion,
)
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import (
    Color,
    ErosionTotal,
    IsolationCell,
    MetricKind,
    MetricResult,
    MetricRole,
    Reason,
    ReleaseVerdict,
    Rung,
)

_FAIL, _OPEN = Outcome.FAIL, Outcome.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class _Found:
    """What the decision is made of."""

    metrics: tuple[MetricResult, ...]
    ladder: tuple[Rung, ...]
    isolation: tuple[IsolationCell, ...]
    erosion: tuple[ErosionTotal, ...]


def judge_release(asked: ReleaseQuestion) -> ReleaseVerdict:
    """Return the decision.

    Raises:
        MissingExtraError: the extra `verify-model` is not installed.
    """
    _load_statistics()
    by_name = {metric.name: metric for metric in asked.metrics}
    ladder = tuple(
        judge_rung(
            one, by_name[one.proxy_for], _experiments_of(one, asked), threshold=asked.threshold
        )
        for one in asked.metrics
        if one.proxy_for is not None
    )
    found = _Found(
        metric_results(asked),
        ladder,
        isolation_matrix(asked.teams, asked.metrics, asked.experiments),
        erosion_totals(asked),
    )
    early = _early_kpis(asked, ladder)
    reasons = tuple(_reasons(asked, found, early))
    outcomes = {reason.outcome for reason in reasons}
    outcome = next((one for one in (_FAIL, _OPEN) if one in outcomes), Outcome.PASS)
    needs = (
        cheapest_rows(asked, found.metrics, found.isolation, reasons) if outcome is _OPEN else ()
    )
    costs = [one.cost for one in needs if one.cost is not None]
    return ReleaseVerdict(
        release=asked.release,
        team=asked.team,
        owner=next(team.owner for team in asked.teams if team.name == asked.team),
        outcome=outcome,
        reasons=reasons,
        needs=needs,
        cost=sum(costs) if needs and len(costs) == len(needs) else None,
        currency=asked.currency,
        metrics=found.metrics,
        ladder=ladder,
        isolation=found.isolation,
        checks=asked.checks,
        erosion=found.erosion,
        first_reference=asked.ledger[0].reference if asked.ledger else None,
        notes=(*asked.notes, *([] if found.isolation else ["no_isolation"])),
    )


def _experiments_of(metric: ReleaseMetric, asked: ReleaseQuestion) -> list[MetricExperiment]:
    """Return the experiments that tell of a metric: those on components of others do not."""
    others = {x for team in asked.teams if team.name != metric.team for x in team.components}
    return [one for one in asked.experiments if one.component not in others]


def _early_kpis(asked: ReleaseQuestion, ladder: Sequence[Rung]) -> Mapping[str, float]:
    """Return the metrics that were read before their lag, with the lag."""
    read = {one.name: one.read_after for one in asked.metrics}
    lags = dict[str, float]()
    for rung in ladder:
        after = read.get(rung.target)
        if rung.lag is not None and after is not None and after < rung.lag:
            lags[rung.target] = max(rung.lag, lags.get(rung.target, 0.0))
    return lags


def _reasons(asked: ReleaseQuestion, found: _Found, early: Mapping[str, float]) -> Iterator[Reason]:
    yield from _of_metrics(asked, found, early)
    yield from _of_own_gain(asked, found, early)
    for cell in found.isolation:
        if asked.team in (cell.component_team, cell.metric_team):
            yield from _of_cell(cell, asked)
    for check in asked.checks:
        if check.outcome is not Outcome.PASS:
            code = "check_failed" if check.outcome is _FAIL else "check_open"
            yield Reason(code=code, outcome=check.outcome, subject=check.name, other=check.detail)
    for total in found.erosion:
        if total.outcome is _FAIL:
            yield Reason(code="erosion", outcome=_FAIL, subject=total.metric)


def _of_metrics(
    asked: ReleaseQuestion, found: _Found, early: Mapping[str, float]
) -> Iterator[Reason]:
    """Yield what metrics say that do not do what is required of them."""
    known = {one.metric for one in found.metrics}
    for metric in asked.metrics:
        if metric.table is not None and metric.name not in known:
            yield Reason(code="not_measured", outcome=_OPEN, subject=metric.name)
    for one in found.metrics:
        about = {"subject": one.metric, "owner": one.owner}
        is_colleague = one.role is MetricRole.COLLEAGUE
        if one.metric in early:
            after = f"{early[one.metric]:g}"
            yield Reason(code="kpi_too_early", outcome=_OPEN, other=after, **about)  # type: ignore[arg-type]
        elif one.outcome is _FAIL:
            code = "colleague_moved" if is_colleague else "own_worse"
            yield Reason(code=code, outcome=_FAIL, **about)  # type: ignore[arg-type]
            for below in _green_below(asked, found, one):
                owner = below.owner
                yield Reason(
                    code="acceptance_at_fault",
                    outcome=_FAIL,
                    subject=below.metric,
                    other=one.metric,
                    owner=owner,
                )
        elif one.outcome is _OPEN:
            code = "colleague_open" if is_colleague else "own_open"
            yield Reason(code=code, outcome=_OPEN, **about)  # type: ignore[arg-type]


def _green_below(
    asked: ReleaseQuestion, found: _Found, top: MetricResult
) -> Iterator[MetricResult]:
    """Yield the acceptance metrics that are green below a red KPI of the ladder."""
    if top.kind is not MetricKind.KPI:
        return
    above = {one.name: one.proxy_for for one in asked.metrics}
    for one in found.metrics:
        if one.kind is not MetricKind.ACCEPTANCE or one.color is not Color.GREEN:
            continue
        name: str | None = one.metric
        while name is not None and name != top.metric:
            name = above.get(name)
        if name is not None:
            yield one


def _of_own_gain(
    asked: ReleaseQuestion, found: _Found, early: Mapping[str, float]
) -> Iterator[Reason]:
    """Yield why no own metric is better, where none is that counts.

    The gain of a metric that stands for another counts only where it is known to do so, and that
    of a KPI only when its time has come.
    """
    own = [one for one in found.metrics if one.role is MetricRole.OWN and one.metric not in early]
    green = [one for one in own if one.color is Color.GREEN]
    doubts = {
        rung.metric: rung
        for rung in found.ladder
        if rung.outcome is not Outcome.PASS and rung.metric in {one.metric for one in green}
    }
    if any(one.metric not in doubts for one in green):
        return
    hopes = [one for one in own if one.color is not Color.GREEN and one.gain.high > 0]
    is_refuted = all(rung.outcome is _FAIL for rung in doubts.values())
    is_final = bool(own) and not hopes and is_refuted
    owners = {one.metric: one.owner for one in green}
    for name, rung in doubts.items():
        yield Reason(
            code="proxy_refuted" if rung.outcome is _FAIL else "proxy_open",
            outcome=_FAIL if is_final else _OPEN,
            subject=name,
            other=rung.target,
            owner=owners[name],
        )
    if hopes or not green:
        code = "no_gain" if is_final else "no_gain_open"
        yield Reason(code=code, outcome=_FAIL if is_final else _OPEN, subject=asked.team)


def _of_cell(cell: IsolationCell, asked: ReleaseQuestion) -> Iterator[Reason]:
    """Yield what a cell of the isolation matrix says against the release."""
    if cell.outcome is Outcome.PASS:
        return
    code = "leak_open" if cell.outcome is _OPEN else "leaks"
    if cell.is_own:
        code = "blind" if cell.outcome is _FAIL else "blind_open"
    owner = next(team.owner for team in asked.teams if team.name == cell.metric_team)
    yield Reason(
        code=code, outcome=cell.outcome, subject=cell.component, other=cell.metric, owner=owner
    )


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
