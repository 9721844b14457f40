"""Asks for pairs of processes that take turns: kept ones find what helps, fresh ones prove it.

In: a `Lab` and comparisons. Out: their series, longer, and what pairs cost.
"""

from __future__ import annotations

import math

from steptime.tune.search.bench import ProcessRequest
from steptime.tune.search.lab import Lab
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.pairs import MIN_PAIRS
from steptime.tune.search.rounds.live_groups import COMPILE
from steptime.tune.search.search_notes import number
from steptime.tune.values.study_values import State


def turns(lab: Lab, reference: State, state: State, num_pairs: int) -> bool:
    """See that the state was compared with the reference in `num_pairs` pairs of processes.

    Returns:
        False where the time left did not allow it.
    """
    series = lab.known.between(reference, state)
    due = num_pairs - series.asked
    if due <= 0 or series.is_over:
        return True
    kept_s = lab.ledger.left_s - lab.ledger.available()
    if not lab.ledger.is_released:  # what is found so must be confirmed so
        kept_s = max(kept_s, lab.judgement_s(state) + lab.ledger.pairs(MIN_PAIRS))
    most_s, cost_s = lab.ledger.left_s - kept_s, pairs_s(lab, series, due)
    if not lab.ledger.affords(cost_s) or cost_s > most_s:
        return False
    series.is_kept = _may_be_kept(lab, state)
    turns_into(lab, series, due, most_s=most_s)
    lab.write_down("process", series)
    lab.report()
    return True


def pairs_s(lab: Lab, series: ComparisonSeries, num_pairs: int) -> float:
    """Predicted cost of so many pairs more, in search of what helps [s]."""
    if _may_be_kept(lab, series.state):
        return lab.process.kept_cost_s(series, num_pairs)
    return lab.ledger.pairs(num_pairs)


def num_pairs_left(lab: Lab, series: ComparisonSeries | None = None) -> int:
    """How many pairs of a comparison fit into what may be spent now; of any by default."""
    known = ComparisonSeries(state=(), reference=()) if series is None else series
    starts_s = pairs_s(lab, known, 0)
    one_s = max(1e-9, pairs_s(lab, known, 1) - starts_s)
    return max(0, math.floor((lab.ledger.available() - starts_s) / one_s))


def _may_be_kept(lab: Lab, state: State) -> bool:
    """Whether two processes may run in turns: not where a new one each time compiles again."""
    is_compiled = any(one.name == COMPILE for one in state)
    return lab.baseline is not None and lab.baseline.may_keep_two and not is_compiled


def turns_into(lab: Lab, series: ComparisonSeries, num_pairs: int, *, most_s: float) -> None:
    """Ask for pairs of processes and take them in."""
    request = ProcessRequest(
        reference=series.reference,
        candidate=series.state,
        num_pairs=num_pairs,
        most_s=number(most_s),
        is_kept=series.is_kept,
    )
    num_starts = lab.process.num_starts(series)
    lab.process.forget()
    result = lab.bench.compare_processes(request)
    spent_s = lab.ledger.spend(lab.bench.time_left_s())
    num_got = max((len(arm.log_ratios) for arm in result.arms), default=0)
    if not series.is_kept:
        _learn_pairs(lab, series, spent_s, num_got or num_pairs)
    elif result.ending.is_well:
        lab.ledger.learn_kept_pairs(spent_s, num_got or num_pairs, num_starts=num_starts)
        lab.process.keep(series)
    lab.note_end(result.ending)
    series.asked += num_got if result.ending.is_well else num_pairs
    for arm in result.arms:
        series.take(arm, result)
    if lab.yardstick.take_between(result):
        lab.notes.note_floors(lab.yardstick.floors, lab.yardstick.num_same)


def _learn_pairs(lab: Lab, series: ComparisonSeries, spent_s: float, num_pairs: int) -> None:
    compile_s = lab.known.compile_s(series.state)
    if compile_s <= 0:
        lab.ledger.learn_pairs(spent_s, num_pairs)
        return
    is_first = not series.asked and not lab.known.was_compiled(series.state)
    lab.ledger.learn_compiling_pairs(spent_s, num_pairs, compile_s, is_first=is_first)
