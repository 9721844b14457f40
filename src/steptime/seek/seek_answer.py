"""Puts the runs of a search together: the answer, the frontier, and what each parameter does.

In: all runs and what was asked. Out: a `SeekAnswer`. The same runs give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import quantiles

from steptime.seek.new_seeds import LOOKS, judge_new_seeds
from steptime.seek.pace import is_as_good, rule_for, would_take_s
from steptime.seek.standing import noise_of, parameters_of, standings, times_of
from steptime.seek.values.seek_values import (
    EffectGroup,
    NewSeedCheck,
    ParameterEffect,
    QualityPoint,
    Role,
    SeekAnswer,
    SeekEnd,
    SeekQuestion,
    SeekRun,
    SoughtCandidate,
    SoughtParameter,
)

MOST_GROUPS = 4
"""Groups of a range's values: more would hold too few candidates each."""
LEAST_FOR_A_SHARE = 8


def answer_of(
    question: SeekQuestion, runs: Sequence[SeekRun], *, num_machines: int = 1
) -> SeekAnswer:
    """Return what the runs say.

    Args:
        question: what was asked.
        runs: all that were made.
        num_machines: how many were made at a time.
    """
    check, holds, reason = judge_new_seeds(question, runs)
    candidates = _candidates(question, runs)
    best = candidates[0].candidate if candidates and candidates[0].num_reached else None
    if check is not None:
        best = check.candidate
        candidates.sort(key=lambda one: one.candidate != best)
    parameters = parameters_of(runs)
    return SeekAnswer(
        best=None if best is None else parameters[best],
        time_to_target_s=_time_of(runs, best, check),
        holds=holds,
        reason=reason,
        target=question.target,
        is_better_down=question.is_better_down,
        num_trials=len(parameters),
        num_runs=len(runs),
        num_pruned=sum(run.end is SeekEnd.PRUNED for run in runs),
        num_censored=sum(run.is_censored for run in runs),
        num_failed=sum(run.end is SeekEnd.FAILED for run in runs),
        spent_s=math.fsum(run.seconds for run in runs) / num_machines,
        budget_s=question.budget_s,
        noise_fraction=noise_of(standings(runs, roles=frozenset(Role))),
        new_seeds=check,
        candidates=tuple(candidates),
        frontier=_frontier(question, runs),
        effects=_effects(question, runs),
        machines=tuple(sorted({run.machine for run in runs if run.machine is not None})),
    )


def _time_of(runs: Sequence[SeekRun], best: int | None, check: NewSeedCheck | None) -> float | None:
    """Return the time of the best: over new seeds, which nothing was chosen by, if three are."""
    are_enough = check is not None and check.num_runs >= LOOKS[0]
    roles = {Role.NEW_SEED} if are_enough else frozenset(Role)
    found = standings(runs, roles=roles)
    return next((one.time_s for one in found if one.candidate == best), None)


def _candidates(question: SeekQuestion, runs: Sequence[SeekRun]) -> list[SoughtCandidate]:
    """Return each candidate; the best first, those that never reached the target by quality."""
    parameters = parameters_of(runs)
    down = question.is_better_down
    values: dict[int, float] = {}
    for run in runs:
        value = run.best_value(is_better_down=down)
        known = values.get(run.candidate)
        if value is not None and (known is None or is_as_good(value, known, is_better_down=down)):
            values[run.candidate] = value
    found = standings(runs, roles=frozenset(Role))
    listed = [
        SoughtCandidate(
            candidate=one.candidate,
            parameters=parameters[one.candidate],
            num_runs=one.num_runs,
            num_reached=len(one.logs),
            time_to_target_s=one.time_s,
            best_value=values.get(one.candidate),
        )
        for one in found
    ]
    places = {one.candidate: place for place, one in enumerate(found)}
    sign = 1 if down else -1

    def order(one: SoughtCandidate) -> tuple[bool, float]:
        if one.num_reached:
            return False, places[one.candidate]
        return True, math.inf if one.best_value is None else sign * one.best_value

    return sorted(listed, key=order)


def _frontier(question: SeekQuestion, runs: Sequence[SeekRun]) -> tuple[QualityPoint, ...]:
    """Return the points that no run was as good as sooner."""
    points = sorted(
        (at_s, value, run.candidate)
        for run in runs
        for at_s, value in zip(run.at_s, run.values, strict=True)
        if math.isfinite(value)
    )
    kept: list[QualityPoint] = []
    for at_s, value, candidate in points:
        if not kept or not is_as_good(
            kept[-1].value, value, is_better_down=question.is_better_down
        ):
            kept.append(QualityPoint(at_s=at_s, value=value, candidate=candidate))
    return tuple(kept)


def _effects(question: SeekQuestion, runs: Sequence[SeekRun]) -> tuple[ParameterEffect, ...]:
    """Return what each parameter does, over the first run of each candidate."""
    times = times_of(standings(runs))
    rule = rule_for(
        runs, times, limit_s=math.inf, target=question.target, down=question.is_better_down
    )
    first = [
        (run.parameters, math.log(max(would_take_s(run, rule), 1e-9)))
        for run in runs
        if run.role is Role.EXPLORE and run.end is not SeekEnd.FAILED and run.values
    ]
    if len(first) < 2:
        return ()
    return tuple(_effect(one, first) for one in question.parameters)


def _effect(
    parameter: SoughtParameter, first: Sequence[tuple[Mapping[str, str], float]]
) -> ParameterEffect:
    pairs = [(values[parameter.name], log) for values, log in first]
    groups = [group for group in _grouped(parameter, pairs) if group]
    logs = [log for _, log in pairs]
    middle = math.fsum(logs) / len(logs)
    total = math.fsum((log - middle) ** 2 for log in logs)
    between = math.fsum(len(g) * (_mean(g) - middle) ** 2 for g in groups)
    share = between / total if total > 0 and len(pairs) >= LEAST_FOR_A_SHARE else None
    return ParameterEffect(
        name=parameter.name,
        share=share,
        groups=tuple(
            EffectGroup(low=g[0][0], high=g[-1][0], time_s=math.exp(_mean(g)), n=len(g))
            for g in groups
        ),
    )


def _mean(group: Sequence[tuple[str, float]]) -> float:
    return math.fsum(log for _, log in group) / len(group)


def _grouped(
    parameter: SoughtParameter, pairs: Sequence[tuple[str, float]]
) -> list[list[tuple[str, float]]]:
    """Return the values in groups: one a choice, or quarters of a range's values."""
    if parameter.choices:
        return [[pair for pair in pairs if pair[0] == text] for text in parameter.choices]
    ranked = sorted(pairs, key=lambda pair: float(pair[0]))
    number = min(MOST_GROUPS, len(ranked) // 2)
    if number < 2:
        return [list(ranked)]
    cuts = [-math.inf, *quantiles([float(t) for t, _ in ranked], n=number), math.inf]
    return [
        [pair for pair in ranked if low < float(pair[0]) <= high] for low, high in pairwise(cuts)
    ]
