"""Says which run comes next: a new candidate, one again, one over a new seed, or none.

In: the finished runs, those in progress, and what is asked. Out: a `NextRun`, or why none comes.
The same runs give the same answer, so a search that was killed goes on as if it had not been. Which
parameters a new candidate gets is the sampler's affair.

The budget has three parts: new candidates; the best of them again, over seeds, as long as noise
decides between them; then winner and rival over seeds that took no part in the choice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from steptime.seek.new_seeds import LOOKS, is_settled, pair_of
from steptime.seek.standing import Standing, contenders, planned_sd, standings
from steptime.seek.values.seek_values import Role, SeekEnd, SeekQuestion, SeekRun

EXPLORE_SHARE, REPEAT_SHARE = 0.5, 0.25
"""Shares of the budget; what is left is for the new seeds, and at least what they need."""
FIRST_SEED, NEW_SEED = 1, 1_001
"""Runs that the choice rests on have the seeds from 1 on, those that judge it from 1001 on."""
REACH = 2.0
"""Candidates closer than two standard errors are run again."""
SLOWER = 1.5
"""The chosen is the luckiest of many, and a run also starts and ends."""
MOST_REPEATS = 10
MOST_CONTENDERS = 6


class Stop(str, Enum):
    """Why no run comes next."""

    WAIT = "wait"
    """What is in progress decides."""
    BUDGET = "budget"
    DONE = "done"
    NO_TARGET = "no_target"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """A run that is to be made.

    Attributes:
        candidate: its number; None for a new one.
        seed: what its draws begin with.
        role: why.
    """

    candidate: int | None
    seed: int
    role: Role


def next_run(
    question: SeekQuestion,
    runs: Sequence[SeekRun],
    pending: Collection[NextRun] = (),
    *,
    num_machines: int = 1,
    is_exhausted: bool = False,
) -> NextRun | Stop:
    """Return the run that comes next, or why there is none.

    Args:
        question: what is asked.
        runs: the finished ones.
        pending: those in progress.
        num_machines: how many runs are made at a time.
        is_exhausted: there is no other candidate: all of a finite number were tried.
    """
    spent_s = math.fsum(run.seconds for run in runs) / num_machines
    if spent_s >= question.budget_s:
        return Stop.WAIT if pending else Stop.BUDGET
    found = standings(runs)
    roles = {*(run.role for run in runs), *(one.role for one in pending)}
    judges = Role.NEW_SEED in roles
    if not judges:
        if not is_exhausted and spent_s < _explored_until(question, found):
            return NextRun(candidate=None, seed=FIRST_SEED, role=Role.EXPLORE)
        again = _again(question, found, pending, spent_s)
        if again is not None:
            return again
        if pending:  # they may change who wins
            return Stop.WAIT
        if not is_exhausted and not any(one.logs for one in found):
            # Nothing has reached the target: the whole budget goes to finding what does.
            return NextRun(candidate=None, seed=FIRST_SEED, role=Role.EXPLORE)
    return _over_new_seeds(question, runs, pending)


def _explored_until(question: SeekQuestion, found: Sequence[Standing]) -> float:
    """Return until when new candidates are tried [s]: the new seeds keep what they need."""
    best = next((one.time_s for one in found if one.time_s is not None), None)
    if best is None:
        return question.budget_s
    reserve_s = min(_reserve_s(best), question.budget_s / 2)
    whole = EXPLORE_SHARE + REPEAT_SHARE
    left_s = min(whole * question.budget_s, question.budget_s - reserve_s)
    return EXPLORE_SHARE / whole * left_s


def _reserve_s(best_s: float) -> float:
    """Return what the first judgement over new seeds takes at least [s]."""
    return SLOWER * 2 * LOOKS[0] * best_s


def _again(
    question: SeekQuestion,
    found: Sequence[Standing],
    pending: Collection[NextRun],
    spent_s: float,
) -> NextRun | None:
    """Return another run of a candidate that noise keeps near the best; None where none is."""
    best = next((one.time_s for one in found if one.time_s is not None), None)
    share_s = (1 - EXPLORE_SHARE - REPEAT_SHARE) * question.budget_s
    if best is None or spent_s + max(_reserve_s(best), share_s) > question.budget_s:
        return None
    near = contenders(found, sd=planned_sd(found), reach=REACH)[:MOST_CONTENDERS]
    underway = [one.candidate for one in pending if one.role is Role.REPEAT]
    open_ = [
        (one.num_runs + underway.count(one.candidate), place, one)
        for place, one in enumerate(near)
        if one.num_runs + underway.count(one.candidate) < MOST_REPEATS
    ]
    if not open_ or (len(near) == 1 and near[0].num_runs + len(underway) > 1):
        return None  # it stands alone, and not by one lucky run
    runs_of, _, one = min(open_, key=lambda item: item[:2])
    return NextRun(candidate=one.candidate, seed=FIRST_SEED + runs_of, role=Role.REPEAT)


def _over_new_seeds(
    question: SeekQuestion, runs: Sequence[SeekRun], pending: Collection[NextRun]
) -> NextRun | Stop:
    """Return the next run of winner or rival: in turns, with the same new seeds."""
    pair = pair_of(question, runs)
    if pair is None:
        return Stop.WAIT if pending else Stop.NO_TARGET
    counts = {}
    for one in pair:
        made = [r for r in runs if r.candidate == one and r.role is Role.NEW_SEED]
        counts[one] = len([r for r in made if r.end is not SeekEnd.TIMED_OUT])
        counts[one] += sum(p.candidate == one and p.role is Role.NEW_SEED for p in pending)
    least = min(counts.values())
    if all(count == least for count in counts.values()) and least in LOOKS:
        if pending:
            return Stop.WAIT
        if least == LOOKS[-1] or is_settled(question, runs):
            return Stop.DONE
    # AB, BA, AB: a busy hour meets both.
    order = pair if least % 2 == 0 else pair[::-1]
    one = next(candidate for candidate in order if counts[candidate] == least)
    return NextRun(candidate=one, seed=NEW_SEED + least, role=Role.NEW_SEED)
