"""Decides whether a model may ship, and lists everything that keeps it from shipping.

In: a `ReleaseQuestion`. Out: a `ReleaseVerdict`. It ships where an own metric is better, no other
own one is worse, those of colleagues stay still, and all checks pass. A FAIL means that it must
not, whatever more rows would say; all else is not yet, with the cheapest rows that decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from steptime.verify.release.isolation import isolation_matrix
from steptime.verify.release.metric_results import erosion_totals, metric_results
from steptime.verify.release.proxy import judge_rung
from steptime.verify.release.release_question import (
    EXPERIMENTS,
    ReleaseFile,
    ReleaseQuestion,
)
from steptime.verify.release.still import num_more, worst
from steptime.verify.values import Outcome
from steptime.verify.values.release_verdict import (
    Color,
    DataNeed,
    MetricKind,
    MetricResult,
    Reason,
    ReleaseVerdict,
    Rung,
)

_FAIL, _OPEN = Outcome.FAIL, Outcome.INCONCLUSIVE
Need: TypeAlias = tuple[str | None, int | None]
"""A table, and the rows there that decide."""


def judge_release(asked: ReleaseQuestion) -> ReleaseVerdict:
    """Return the decision; it needs the libraries of the extra `verify-model`."""
    file = asked.file
    found = ReleaseVerdict(
        release=file.release,
        team=file.team,
        owner=file.owner_of(file.team) or "",
        outcome=Outcome.PASS,
        currency=file.currency,
        metrics=tuple(metric_results(asked)),
        ladder=tuple(_ladder(asked)),
        isolation=tuple(isolation_matrix(file.teams, file.metrics, asked.experiments)),
        checks=asked.checks,
        erosion=tuple(erosion_totals(asked)),
        first_reference=asked.ledger[0].reference if asked.ledger else None,
    )
    early = _early_kpis(file, found.ladder)
    reasons = [*_of_metrics(asked, found, early), *_of_isolation(file, found), *_of_checks(found)]
    reasons += _of_own_gain(file, found, early, _rows(reasons))
    reasons.sort(key=lambda one: one.outcome is not _FAIL)
    outcome = worst(one.outcome for one in reasons)
    needs = tuple(_needs(file, reasons)) if outcome is _OPEN else ()
    return replace(found, outcome=outcome, reasons=tuple(reasons), needs=needs)


# -- the ladder


def _ladder(asked: ReleaseQuestion) -> Iterator[Rung]:
    table = asked.file.experiments
    by_name = {metric.name: metric for metric in asked.file.metrics}
    for one in asked.file.metrics:
        if one.proxy_for is not None:
            # Experiments on components of other teams do not tell of a metric.
            others = {x for team in asked.file.teams if team.name != one.team
                      for x in team.components}  # fmt: skip
            yield judge_rung(
                one,
                by_name[one.proxy_for],
                [found for found in asked.experiments if found.component not in others],
                noise=0.0 if table is None else table.noise_correlation,
                threshold=0.5 if table is None else table.threshold,
            )


def _early_kpis(file: ReleaseFile, ladder: Sequence[Rung]) -> Mapping[str, float]:
    """Return the metrics that were read before their lag, with the lag."""
    read = {one.name: one.read_after for one in file.metrics if one.read_after is not None}
    lags = sorted((rung.lag, rung.target) for rung in ladder if rung.lag is not None)
    return {name: lag for lag, name in lags if read.get(name, lag) < lag}


def _above(name: str, ladder: Sequence[Rung]) -> Iterator[Rung]:
    """Yield the rungs on the way up from a metric."""
    rungs = {rung.metric: rung for rung in ladder}
    while name in rungs:
        yield rungs[name]
        name = rungs[name].target


# -- reasons


def _because(
    outcome: Outcome,
    code: str,
    subject: str,
    *,
    other: str | None = None,
    owner: str | None = None,
    need: Need = (None, None),
) -> Reason:
    return Reason(
        code=code,
        outcome=outcome,
        subject=subject,
        other=other,
        owner=owner,
        table=need[0],
        num_more=need[1] if outcome is _OPEN else None,
    )


def _of_metrics(
    asked: ReleaseQuestion, found: ReleaseVerdict, early: Mapping[str, float]
) -> Iterator[Reason]:
    """Yield what metrics say that do not do what is required of them."""
    for metric in asked.file.metrics:
        if metric.name in asked.missing:
            need = (metric.table, asked.missing[metric.name])
            owner = asked.file.owner_of(metric.team)
            yield _because(_OPEN, "not_measured", metric.name, owner=owner, need=need)
    for one in found.metrics:
        name, owner = one.metric, one.owner
        if name in early:
            yield _because(_OPEN, "kpi_too_early", name, other=f"{early[name]:g}", owner=owner)
        elif one.outcome is not Outcome.PASS:
            is_colleague, mean = one.team not in (None, found.team), one.gain.estimate
            distance = one.margin - abs(mean) if is_colleague else one.margin + mean
            rows = num_more(one.gain, distance, num_tests=len(found.metrics))
            code = "colleague_moved" if is_colleague else "own_worse"
            yield _because(one.outcome, code, name, owner=owner, need=(one.table, rows))
        if name not in early and one.outcome is _FAIL and one.kind is MetricKind.KPI:
            for below in _green_below(found, name):
                fault = "acceptance_at_fault"
                yield _because(_FAIL, fault, below.metric, other=name, owner=below.owner)


def _green_below(found: ReleaseVerdict, kpi: str) -> Iterator[MetricResult]:
    """Yield the acceptance metrics that are green below a KPI of the ladder."""
    for one in found.metrics:
        is_green = one.kind is MetricKind.ACCEPTANCE and one.color is Color.GREEN
        if is_green and kpi in {rung.target for rung in _above(one.metric, found.ladder)}:
            yield one


def _of_isolation(file: ReleaseFile, found: ReleaseVerdict) -> Iterator[Reason]:
    """Yield the cells that speak against the release: of its components, or of its metrics."""
    for cell in found.isolation:
        concerns = file.team in (cell.component_team, cell.metric_team)
        if concerns and cell.outcome is not Outcome.PASS:
            is_own = cell.component_team == cell.metric_team
            distance = cell.margin - abs(cell.gain.estimate)
            rows = num_more(cell.gain, distance, num_tests=len(found.isolation))
            yield _because(
                cell.outcome,
                "blind" if is_own else "leak",
                cell.metric,
                other=cell.component,
                owner=file.owner_of(cell.metric_team),
                need=(EXPERIMENTS, None if is_own else rows),
            )


def _of_checks(found: ReleaseVerdict) -> Iterator[Reason]:
    for check in found.checks:
        if check.outcome is not Outcome.PASS:
            yield _because(check.outcome, "check", check.name, other=check.detail)
    for total in found.erosion:
        if total.outcome is _FAIL:
            yield _because(_FAIL, "erosion", total.metric)


def _of_own_gain(
    file: ReleaseFile, found: ReleaseVerdict, early: Mapping[str, float], planned: Mapping[str, int]
) -> Iterator[Reason]:
    """Yield why no own metric is better, where none is that counts.

    The gain of a metric that stands for another counts only where it is known to do so, and that
    of a KPI only when its time has come. `planned` are the rows that other reasons need, by table.
    """
    own = [one for one in found.metrics if one.team == file.team and one.metric not in early]
    green = [one for one in own if one.color is Color.GREEN]
    doubts = [(one, rung) for one in green if (rung := _doubt(one.metric, found.ladder))]
    if len(doubts) < len(green):
        return
    others = [one for one in own if one not in green]
    hopes = [one for one in others if one.gain.high > 0]
    refuted = all(rung.outcome is _FAIL for _, rung in doubts)
    outcome = _FAIL if own and not hopes and refuted else _OPEN
    for one, rung in doubts:
        code = "proxy_refuted" if rung.outcome is _FAIL else "proxy_open"
        yield _because(outcome, code, one.metric, other=rung.target, owner=one.owner)
    if hopes or not green:
        needs = _cheapest(file, others, planned) if outcome is _OPEN else {}
        for name, need in needs.items() or [(file.team, (None, None))]:
            yield _because(outcome, "no_gain", name, other=file.team, need=need)


def _doubt(name: str, ladder: Sequence[Rung]) -> Rung | None:
    """Return the first rung on the way up that is not shown to hold."""
    return next((x for x in _above(name, ladder) if x.outcome is not Outcome.PASS), None)


# -- rows


def _cheapest(
    file: ReleaseFile, own: Sequence[MetricResult], planned: Mapping[str, int]
) -> dict[str, Need]:
    """Return the rows by metric that show a gain at the least cost, or else that all are losses."""
    rows = {one.metric: num_more(one.gain, one.gain.estimate, num_tests=len(own)) for one in own}

    def cost(one: MetricResult) -> tuple[float, int]:
        num = rows[one.metric] or 0
        added = max(0, num - planned.get(one.table, 0))
        return added * (file.price_of(one.table) or 0.0), num

    known = [one for one in own if rows[one.metric] is not None]
    better = [one for one in known if one.gain.estimate > 0]
    chosen = [min(better, key=cost)] if better else known
    return {one.metric: (one.table, rows[one.metric]) for one in chosen}


def _rows(reasons: Iterable[Reason]) -> dict[str, int]:
    """Return how many rows each table needs: those of the reason that takes most."""
    found = dict[str, int]()
    for one in reasons:
        if one.table is not None and one.num_more is not None:
            found[one.table] = max(one.num_more, found.get(one.table, 0))
    return found


def _needs(file: ReleaseFile, reasons: Sequence[Reason]) -> Iterator[DataNeed]:
    """Yield the rows that decide, if the effects are as they were seen; power 80 % in all."""
    for table, rows in _rows(reasons).items():
        price = file.price_of(table)
        served = [one.subject for one in reasons if one.table == table and one.num_more]
        yield DataNeed(
            table=table,
            metrics=tuple(dict.fromkeys(served)),
            num_more=rows,
            cost=None if price is None else rows * price,
        )
