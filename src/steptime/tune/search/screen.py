"""Measures the study's own noise (A/A), then what each live lever gives alone (successive halving).

In: a `Lab` and live offers. Out: the noise floor, and the best setting of each lever with what is
known about it. Settings that cannot win get no more rounds; `combine` puts levers together.

Source: Karnin, Koren and Somekh, Almost Optimal Exploration in Multi-Armed Bandits (2013).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.tune.search.budget import break_even_steps, length_of_run
from steptime.tune.search.comparison_series import ComparisonSeries
from steptime.tune.search.lab import Lab
from steptime.tune.search.order import Offer
from steptime.tune.search.pairs import (
    MIN_PAIRS,
    Worth,
    floor_of,
    half_width,
    interval,
    pairs_for,
    to_speedup,
    worth,
)
from steptime.tune.search.search_notes import label, number, numbers_of
from steptime.tune.values.study_values import Applied, State

NOISE_ROUNDS = 12
"""Rounds of the A/A at first, and then at a time; with fewer, no lever is judged."""

MAX_NOISE_ROUNDS = 200
"""More would find effects below 2 %, which drift alone makes on a shared machine."""

NOISE_SHARE = 0.15
"""Of the search's time that the A/A may take."""

WANTED_HALF_WIDTH = 0.02
"""Of log ratios, for A/A and for levers: an effect of 5 % can then be seen."""

FIRST_ROUNDS = 8
"""Rounds of the first rung; each further rung has twice as many."""

MAX_ROUNDS = 128
"""Rounds a lever gets at most while it is tried: four doublings."""

ENOUGH_ROUNDS = 32
"""After so many, a lever whose median lies below the noise is not measured more precisely."""

KEEP_WHILE_ALONE = 0.4
"""Of the search's time, kept for combining; more where levers wait for processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The best setting of a live lever, alone; `rest` are its others, best first."""

    applied: Applied
    found: Interval
    worth: Worth
    rest: tuple[tuple[Applied, Interval], ...] = ()

    @property
    def gain(self) -> float:
        """Its log speedup."""
        return self.found.estimate


def calibrate(lab: Lab, *, fixed: State = ()) -> bool:
    """Compare the command with itself in one process; note its noise floors.

    Returns:
        False where that gave too few rounds: the levers are then compared between processes.
    """
    lab.phase = "live"
    began_s = lab.ledger.left_s
    allowed_s = NOISE_SHARE * (began_s - lab.ledger.reserve_s)
    series = lab.live_series(fixed, fixed)
    due = NOISE_ROUNDS
    while lab.live(fixed, [fixed], due) and not series.is_over:
        # By what rounds cost here: a script that is soon over is started again for each few.
        left_s = allowed_s - (began_s - lab.ledger.left_s)
        fitting = math.floor(left_s / lab.ledger.blocks(2, num_starts=0))
        most = min(MAX_NOISE_ROUNDS, due + max(0, fitting))
        found = interval(series.wall)
        if found is None or half_width(found) <= WANTED_HALF_WIDTH or due >= most:
            break
        due = min(most, max(due + NOISE_ROUNDS, pairs_for(found, WANTED_HALF_WIDTH)))
    return _note_floors(lab, series, series.ending.word)


def calibrate_between(lab: Lab) -> bool:
    """Compare the command with itself between processes; note its noise floors.

    Returns:
        False where that gave too few pairs.
    """
    lab.phase = "process"
    lab.turns((), (), MIN_PAIRS)
    series = lab.turns_series((), ())
    return _note_floors(lab, series, series.ending.word)


def _note_floors(lab: Lab, series: ComparisonSeries, reason: str) -> bool:
    """Take the noise floors from an A/A, by wall and by CPU time."""
    found = interval(series.wall)
    if series.is_over or found is None or found.n < MIN_PAIRS:
        lab.notes.choose("no_noise_floor", reason=reason, n=len(series.wall))
        return False
    lab.floors[False] = floor_of(found)
    by_cpu = interval(series.cpu)
    if by_cpu is not None and by_cpu.n >= MIN_PAIRS:
        lab.floors[True] = floor_of(by_cpu)
    words = {False: "wall", True: "cpu"}
    facts = {words[is_cpu]: number(floor) for is_cpu, floor in lab.floors.items()}
    lab.notes.choose("noise_floor", None, n=found.n, **facts)
    return True


def rungs(first: int = FIRST_ROUNDS) -> Iterator[int]:
    """Numbers of rounds: each twice the one before."""
    while first < MAX_ROUNDS:
        yield first
        first *= 2
    yield MAX_ROUNDS


def is_told(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether more rounds would say nothing new: it failed, is clear, or is known well enough."""
    found = lab.log_speedup(series)
    if series.is_over or found is None:
        return True
    if found.n < NOISE_ROUNDS:
        return False
    floor = lab.floor_for(series)
    is_small = found.n >= ENOUGH_ROUNDS and found.estimate <= math.log1p(floor)
    is_clear = worth(found, floor) is not Worth.UNCLEAR
    return is_clear or is_small or half_width(found) <= WANTED_HALF_WIDTH


def screen(
    lab: Lab, offers: Sequence[Offer], *, fixed: State, banned: Sequence[Applied]
) -> list[Champion]:
    """Of each live lever its best setting, those with the largest gain first."""
    lab.phase = "live"
    arms = {one.name: _arms(lab, one, fixed, banned) for one in offers}
    for due in rungs():
        alive = [one for group in arms.values() for one in group]
        if due > FIRST_ROUNDS:
            told = [group[0] for group in arms.values() if len(group) == 1]
            alive = [one for one in alive if one not in told or not is_told(lab, one)]
        share = KEEP_WHILE_ALONE + lab.keep / 2 if due > FIRST_ROUNDS else lab.keep
        if alive and not lab.live(fixed, [one.state for one in alive], due, keep=share):
            lab.notes.choose("out_of_time", phase="live", rounds=due)
            if due == FIRST_ROUNDS:
                _ask_one_by_one(lab, [one for one in alive if not one.asked])
            break
        arms = {name: _halve(lab, name, group) for name, group in arms.items()}
    everything = [_arms(lab, one, fixed, banned) for one in offers]
    champions = [
        _champion(lab, group, every) for group, every in zip(arms.values(), everything, strict=True)
    ]
    found = [one for one in champions if one is not None]
    return sorted(found, key=lambda one: -one.gain)


def _ask_one_by_one(lab: Lab, rest: Sequence[ComparisonSeries]) -> None:
    """Where all together are too dear, the first of them at least, for as long as time lasts."""
    for one in rest:
        lab.live(one.reference, [one.state], MIN_PAIRS)


def sharpen(lab: Lab, offers: Sequence[Offer], *, fixed: State, least: float) -> bool:
    """Ask on about the most promising lever, where none is known to help.

    Among eight pairs a single outlier hides any gain.

    Args:
        least: log speedup in the middle that is worth it.

    Returns:
        Whether more is known now.
    """
    groups = [_arms(lab, one, fixed, ()) for one in offers]
    ranked = _ranked(lab, [one for group in groups for one in group])
    if not ranked or any(worth(q, lab.floor_for(one)) is Worth.GAIN for one, q in ranked):
        return False
    series, found = ranked[0]
    if found.estimate < least or is_told(lab, series):
        return False
    due = max(NOISE_ROUNDS, min(2 * series.asked, ENOUGH_ROUNDS))
    return due > series.asked and lab.live(fixed, [series.state], due)


def _arms(
    lab: Lab, offer: Offer, fixed: State, banned: Sequence[Applied]
) -> list[ComparisonSeries]:
    """A comparison with the reference for each setting that is still allowed."""
    states = [(*fixed, one) for one in offer.settings if one not in banned]
    return [lab.live_series(fixed, state) for state in states]


def _ranked(lab: Lab, group: Sequence[ComparisonSeries]) -> list[tuple[ComparisonSeries, Interval]]:
    """The comparisons that did not fail, largest gain first."""
    known = [(one, None if one.is_over else lab.log_speedup(one)) for one in group]
    found = [(one, gain) for one, gain in known if gain is not None]
    return sorted(found, key=lambda it: -it[1].estimate)


def _halve(lab: Lab, name: str, group: Sequence[ComparisonSeries]) -> list[ComparisonSeries]:
    """The better half of a lever's settings, less those that cannot win any more."""
    ranked = _ranked(lab, group)
    best_low = max((found.low for _, found in ranked), default=0.0)
    kept = [one for one, found in ranked if found.high >= best_low]
    kept = kept[: math.ceil(len(ranked) / 2)]
    for one, found in ranked:
        if one not in kept:
            reason = "pruned" if found.high < best_low else "halved"
            lab.notes.explain("live", one.state, one.reference, reason)
            lab.notes.choose(reason, name, state=label(one.state[-1]))
    return kept


def _champion(
    lab: Lab, group: Sequence[ComparisonSeries], every: Sequence[ComparisonSeries]
) -> Champion | None:
    """The best setting that is left of a lever, with what it is worth, and the others."""
    ranked = [(one, found) for one, found in _ranked(lab, group) if found.n >= MIN_PAIRS]
    if not ranked:
        return None
    (series, found), *slower = ranked
    for one, _ in slower:
        lab.notes.explain("live", one.state, one.reference, "halved")
    applied, what = series.state[-1], worth(found, lab.floor_for(series))
    is_gain = what is Worth.GAIN
    lab.notes.explain("live", series.state, series.reference, None if is_gain else what.value)
    lab.notes.choose("alone", applied.name, worth=what.value, **numbers_of(to_speedup(found)))
    if is_gain and not earns(lab, series, found.estimate):
        return None
    rest = [(one.state[-1], other) for one, other in _ranked(lab, every) if one is not series]
    return Champion(applied=applied, found=found, worth=what, rest=tuple(rest))


def earns(lab: Lab, series: ComparisonSeries, gain: float) -> bool:
    """Whether the gain over the reference earns the one-off cost within the run's length."""
    step_s = series.reference_step_s or lab.step_s
    one_off_s = lab.compile_s(series.state) - lab.compile_s(series.reference)
    if step_s is None or one_off_s <= 0:
        return True
    length = length_of_run(lab.options.run_steps, lab.options.budget_s, step_s)
    needed = break_even_steps(one_off_s, step_s, gain)
    facts = {
        "one_off_s": number(one_off_s),
        "steps": number(needed),
        "run_steps": length,
        "is_assumed": lab.options.run_steps is None,
    }
    name = series.state[-1].name
    if needed <= length:
        lab.notes.choose("earned", name, **facts)
        return True
    lab.notes.choose("not_earned", name, **facts)
    lab.notes.explain("live", series.state, series.reference, "not_earned", facts)
    return False
