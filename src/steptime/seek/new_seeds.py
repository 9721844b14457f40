"""Judges the winner over seeds that took no part in the choice, beside a rival.

In: the runs. Out: a `NewSeedCheck` and whether the winner holds. The choice of the best of many
noisy times finds lucky ones; only new seeds tell. It is judged after 3, 5 and 10 runs of each with
the level of three looks together, by Welch's interval of the log times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from steptime.seek.standing import standings
from steptime.seek.values.seek_values import NewSeedCheck, Role, SeekEnd, SeekQuestion, SeekRun
from steptime.verify.convergence.statistics import LOOK_LEVELS, gain_of

LOOKS = (3, 5, 10)
MARGIN_LOG = math.log(1.1)
"""A winner that is at most this much slower than its rival is as good: 10 % of the time are
less than what another machine or another day changes."""


def pair_of(question: SeekQuestion, runs: Sequence[SeekRun]) -> tuple[int, ...] | None:
    """Return the winner of the search, and its rival if there is one; None without a winner."""
    found = [one for one in standings(runs) if one.logs]
    if not found:
        return None
    winner = found[0].candidate
    if question.default is not None and winner != 0:
        return winner, 0
    others = [one.candidate for one in found[1:]]
    return (winner, others[0]) if others else (winner,)


def judge_new_seeds(
    question: SeekQuestion, runs: Sequence[SeekRun]
) -> tuple[NewSeedCheck | None, bool | None, str | None]:
    """Return the comparison, whether the winner holds, and the reason where it does not."""
    pair = pair_of(question, runs)
    if pair is None:
        return None, None, "target_not_reached"
    fresh = {one: _fresh_of(runs, one) for one in pair}
    winner, rival = pair[0], pair[1] if len(pair) > 1 else None
    told = {run.is_censored for run in runs if run.candidate == rival and _tells(run)}
    # One that never reached the target has the longest runs: nothing waits for the last of them.
    n = len(fresh[winner]) if told == {True} else min(map(len, fresh.values()))
    if not n:
        return None, None, "no_new_seeds"
    check = _counted(question, winner, rival, {one: own[:n] for one, own in fresh.items()})
    if n >= LOOKS[0] and _are_the_same_twice(runs, pair):
        return check, None, "seeds_change_nothing"
    if n < LOOKS[0]:
        return check, None, "too_few_new_seeds"
    swapped = _swapped(check)
    if check.num_reached < n:
        if rival is not None and check.num_rival_reached == n and 2 * check.num_reached < n:
            return swapped, True, None
        missed = "winner_missed_target" if 2 * check.num_reached < n else "winner_missed_once"
        return check, (False if 2 * check.num_reached < n else None), missed
    if rival is None or check.num_rival_reached < n or check.low is None or check.high is None:
        return check, True, None  # the rival does not always get there
    if math.log(check.low) > -MARGIN_LOG:
        return check, True, None
    if math.log(check.high) < 0:
        return swapped, True, None
    return check, None, "too_close_to_tell"


def is_settled(question: SeekQuestion, runs: Sequence[SeekRun]) -> bool:
    """Return whether more new seeds would change nothing."""
    _, holds, reason = judge_new_seeds(question, runs)
    return holds is not None or reason == "seeds_change_nothing"


def _tells(run: SeekRun) -> bool:
    return run.end is not SeekEnd.TIMED_OUT


def _fresh_of(runs: Sequence[SeekRun], candidate: int) -> list[SeekRun]:
    mine = (run for run in runs if run.candidate == candidate and run.role is Role.NEW_SEED)
    return sorted(filter(_tells, mine), key=lambda run: run.seed)


def _counted(
    question: SeekQuestion, winner: int, rival: int | None, fresh: dict[int, list[SeekRun]]
) -> NewSeedCheck:
    """Return the numbers of both, and the interval where each run reached the target."""
    times = {
        one: [math.log(r.time_to_target_s) for r in own if r.time_to_target_s is not None]
        for one, own in fresh.items()
    }
    n = len(fresh[winner])
    check = NewSeedCheck(
        candidate=winner,
        rival=rival,
        is_rival_default=rival == 0 and question.default is not None,
        num_runs=n,
        num_reached=len(times[winner]),
        num_rival_reached=0 if rival is None else len(times[rival]),
    )
    if rival is None or n < 2 or min(check.num_reached, check.num_rival_reached) < n:
        return check
    # A larger gain is better: the negative log of the time.
    gain = gain_of([-t for t in times[rival]], [-t for t in times[winner]])
    low, high = gain.ends(LOOK_LEVELS[len(LOOKS)])
    speedup, low, high = (math.exp(value) for value in (gain.mean, low, high))
    return replace(check, speedup=speedup, low=low, high=high)


def _swapped(check: NewSeedCheck) -> NewSeedCheck:
    """Return the comparison with the rival as the winner."""
    if check.rival is None:
        return check
    turned = (check.speedup, check.high, check.low)
    speedup, low, high = (None if value is None else 1 / value for value in turned)
    return replace(
        check,
        candidate=check.rival,
        rival=check.candidate,
        is_rival_default=False,
        num_reached=check.num_rival_reached,
        num_rival_reached=check.num_reached,
        speedup=speedup,
        low=low,
        high=high,
        are_replaced=True,
    )


def _are_the_same_twice(runs: Sequence[SeekRun], pair: Sequence[int]) -> bool:
    """Return whether all runs of the winner said the same numbers, whatever their seed was."""
    curves = {run.values for run in runs if run.candidate == pair[0] and run.values}
    count = sum(run.candidate == pair[0] and bool(run.values) for run in runs)
    return count > 1 and len(curves) == 1
