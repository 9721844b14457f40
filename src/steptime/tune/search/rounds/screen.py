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
from steptime.tune.search.lab import Lab
from steptime.tune.search.order import Offer
from steptime.tune.search.proof.comparison_series import ComparisonSeries
from steptime.tune.search.proof.pairs import (
    MIN_PAIRS,
    Worth,
    half_width,
    interval,
    pairs_for,
    to_speedup,
)
from steptime.tune.search.search_notes import label, number, numbers_of
from steptime.tune.values.study_values import Applied, State

NOISE_ROUNDS = 12
"""Rounds of the A/A at first, and then at a time; with fewer, no lever is judged."""

MAX_NOISE_ROUNDS = 200
"""More would find effects below 2 %, which drift alone makes on a shared machine."""

NOISE_SHARE = 0.15
"""Of the search's time that the A/A may take to become precise."""

NOISE_CEILING = 0.15
"""Of the budget: before a lever was tried, the A/A takes no more, however slow the script is."""

NOISE_MOST = 0.3
"""Of the budget, for all of the A/A: where it hides what was seen, it goes on at the end."""

WANTED_HALF_WIDTH = 0.02
"""Of log ratios, for A/A and for levers: an effect of 5 % can then be seen."""

FIRST_ROUNDS = 8
"""Rounds of the first rung; each further rung has twice as many."""

MAX_ROUNDS = 128
"""Rounds a lever gets at most while it is tried: four doublings."""

ENOUGH_ROUNDS = 32
"""After so many, a lever whose median lies below the noise is not measured more precisely."""

GLANCE_SHARE = 0.35
"""Of the search's time that a first look at each lever may take; where it takes more, steps are so
slow that the levers are tried together unseen."""

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


def calibrate(lab: Lab) -> bool:
    """Compare the command with itself in one process; note its noise floors.

    Where steps are so slow that the ceiling leaves room for too few rounds, nothing is measured
    now: the A/A takes part while levers are tried.

    Returns:
        False where nothing can be compared in one process: the levers are then compared between
        processes, and their noise is that of the processes with one state.
    """
    lab.phase = "live"
    began_s = lab.ledger.left_s
    ceiling_s = NOISE_CEILING * lab.ledger.budget_s
    allowed_s = min(ceiling_s, NOISE_SHARE * (began_s - lab.ledger.reserve_s))
    series = lab.known.live((), ())
    due = NOISE_ROUNDS
    if lab.ledger.blocks(2 * NOISE_ROUNDS, num_starts=1) > ceiling_s:
        return True
    lab.noise(due, most_s=ceiling_s)
    while series.asked >= due and not series.is_over:
        # By what rounds cost here: a script that is soon over is started again for each few.
        left_s = allowed_s - (began_s - lab.ledger.left_s)
        fitting = math.floor(left_s / lab.ledger.blocks(2, num_starts=0))
        most = min(MAX_NOISE_ROUNDS, due + max(0, fitting))
        found = interval(series.wall)
        if found is None or half_width(found) <= WANTED_HALF_WIDTH or due >= most:
            break
        due = min(most, max(due + NOISE_ROUNDS, pairs_for(found, WANTED_HALF_WIDTH)))
        lab.noise(due, most_s=left_s)
    if lab.yardstick.is_live:
        lab.notes.note_floors(lab.yardstick.floors, lab.yardstick.num_same)
    return can_be_live(lab)


def can_be_live(lab: Lab) -> bool:
    """Whether states can be compared in one process, as far as the A/A says; note where not."""
    series = lab.known.live((), ())
    if series.is_over:
        lab.notes.choose("no_noise_floor", reason=series.ending.word, n=len(series.wall))
    return not series.is_over


def sharpen_noise(lab: Lab) -> bool:
    """Ask for twice as many rounds of the A/A, where its floor hides what was seen.

    Returns:
        Whether more is known now.
    """
    series = lab.known.live((), ())
    most_s = min(NOISE_MOST * lab.ledger.budget_s - lab.noise_s, lab.ledger.available())
    due = max(NOISE_ROUNDS, 2 * series.asked)
    fitting = math.floor(most_s / max(1e-9, lab.ledger.blocks(2, num_starts=0)))
    due = min(due, series.asked + fitting)
    least = MIN_PAIRS if lab.yardstick.is_live else max(1, MIN_PAIRS - series.asked)
    if not lab.is_live or series.is_over or due < series.asked + least:
        return False
    before = len(series.wall)
    lab.noise(due, most_s=most_s)
    if lab.yardstick.is_live:
        lab.notes.note_floors(lab.yardstick.floors, lab.yardstick.num_same)
    return len(series.wall) > before


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
    is_clear = lab.worth(series) is not Worth.UNCLEAR
    return is_clear or is_small or half_width(found) <= WANTED_HALF_WIDTH


def glance(
    lab: Lab, offers: Sequence[Offer], *, fixed: State, banned: Sequence[Applied]
) -> list[Champion] | None:
    """The first rung alone: of each live lever its best setting, largest gain first.

    None where steps are so slow that this would take too much of the search's time.
    """
    lab.phase = "live"
    arms = [_arms(lab, one, fixed, banned) for one in offers]
    states = [one.state for group in arms for one in group]
    if not _may_glance(lab, len(states)):
        return None
    if not lab.yardstick.is_live:
        states = [fixed, *states]
    lab.live(fixed, states, FIRST_ROUNDS, keep=lab.keep)
    for offer, group in zip(offers, arms, strict=True):
        _halve(lab, offer.name, group)
    found = [_champion(lab, group, group) for group in arms]
    return sorted((one for one in found if one is not None), key=lambda one: -one.gain)


def live_s(lab: Lab, offers: Sequence[Offer]) -> float:
    """What it takes to find the best of live levers [s]: a look at each, all together, and apart.

    Where steps are so slow that there is no look, there is time for all together alone.
    """
    num_states = sum(len(one.settings) for one in offers)
    num_blocks = (FIRST_ROUNDS + 2 * NOISE_ROUNDS) * (num_states + 1)
    if not _may_glance(lab, num_states):
        num_blocks = 2 * MIN_PAIRS
    return lab.ledger.blocks(num_blocks, num_starts=1)


def _may_glance(lab: Lab, num_states: int) -> bool:
    cost_s = lab.ledger.blocks(FIRST_ROUNDS * (num_states + 1), num_starts=1)
    return cost_s <= GLANCE_SHARE * (lab.ledger.budget_s - lab.ledger.reserve_s)


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
        states = [one.state for one in alive]
        if alive and not lab.yardstick.is_live:
            states = [fixed, *states]
        if alive and not lab.live(fixed, states, due, keep=share):
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


def _arms(
    lab: Lab, offer: Offer, fixed: State, banned: Sequence[Applied]
) -> list[ComparisonSeries]:
    """A comparison with the reference for each setting that is still allowed."""
    states = [(*fixed, one) for one in offer.settings if one not in banned]
    return [lab.known.live(fixed, state) for state in states]


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
    applied, what = series.state[-1], lab.worth(series) or Worth.UNCLEAR
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
    known = lab.known
    compiling_s = known.compile_s(series.state) - known.compile_s(series.reference)
    one_off_s = series.start_s if series.is_between else compiling_s
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
    phase = "process" if series.is_between else "live"
    lab.notes.explain(phase, series.state, series.reference, "not_earned", facts)
    return False
