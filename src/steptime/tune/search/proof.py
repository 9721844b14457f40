"""Proves the best state: first its quality, then its speedup in fresh repeats.

In: a `Lab` and a way to build the best state without what was refused. Out: what was found. Where a
state is refused, its levers are judged alone to find the culprits, and the search continues without
them. Only the fresh repeats make the claim: the measurements that chose the state would flatter it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.tune.search.budget import break_even_steps
from steptime.tune.search.comparison_series import ComparisonSeries
from steptime.tune.search.lab import COMPILE, Lab
from steptime.tune.search.pairs import MIN_PAIRS, Worth, pairs_for, to_speedup, worth
from steptime.tune.search.search_notes import Found, label, names_of, number, numbers_of
from steptime.tune.search.turns import can_tell
from steptime.tune.values.study_values import (
    Applied,
    State,
    StudyOutcome,
)
from steptime.verify.values import Outcome

EFFECT = 0.10
"""The effect that a study is to find: where noise hides it, the study is too noisy to tell."""

LEAST_TOLD = 2
"""Times the noise floor: a lever's interval is about as wide as that of the A/A, and its lower
end must lie above the floor."""

HIDING = frozenset({"not_confirmed", "too_few_repeats", "cannot_tell", "repeats_disagree"})
"""Reasons of a confirmation that leave an effect possible, if its interval does."""

CONFIRM_STARTS = 3
"""Fresh processes of a live confirmation: what one process happens to be like is not claimed."""

STARTS_SHARE = 0.25
"""Of the time left that these starts may take; else there are fewer."""

CONFIRM_ROUNDS = 24
"""Rounds of a live confirmation at least, where time allows."""

MIN_CONFIRM_ROUNDS = 12
"""With fewer, nothing is claimed."""

MAX_CONFIRM_ROUNDS = 240
"""More does not make a claim truer: drift is the limit then."""

MAX_CONFIRM_PAIRS = 12
"""Pairs of processes of a confirmation at most."""

CONFIRM_HALF_WIDTH = 0.02
"""Of log ratios, wanted of the claim."""

OVERTIME = 0.1
"""Of the budget: what is judged as good already is confirmed beyond it rather than thrown away."""

MAX_ATTEMPTS = 2
"""Confirmations in a study: each is a chance for luck."""

Build = Callable[["Refused"], State]
"""The best state, its gain noted in the lab, without what was refused."""


@dataclass(slots=True)
class Refused:
    """What quality refused: levers with these settings, and whole states."""

    levers: list[Applied] = field(default_factory=list)
    states: list[State] = field(default_factory=list)


def keep_for_proof(lab: Lab) -> None:
    """Keep the time that the proof of something live should take."""
    lab.ledger.keep_for_proof(_least_confirmation(lab, ()))


def prove(lab: Lab, build: Build) -> Found:
    """Judge and confirm the best state, and the next best where it is refused."""
    refused = Refused()
    attempts_left = MAX_ATTEMPTS
    while state := _first_that_trains_as_well(lab, build, refused):
        series = _confirm(lab, state)
        if series is not None and _is_faster(lab, series):
            lab.notes.choose("confirmed", None, state=names_of(state), **_numbers(lab, series))
            return _faster(lab, state, series)
        attempts_left -= 1
        if not attempts_left or not _leave_processes_out(lab, state, refused):
            break
    return _nothing(lab)


def _first_that_trains_as_well(lab: Lab, build: Build, refused: Refused) -> State:
    """The best state whose quality passes; the empty one where there is none, or no time."""
    state = build(refused)
    while state:
        lab.phase = "quality"
        if lab.is_judged(state) or _affords(lab, state, lab.ledger.judgement()):
            verdict = lab.judge(state)
            if verdict.outcome is Outcome.PASS:
                return state
            lab.notes.choose("refused", state=names_of(state), outcome=verdict.outcome.value)
            lab.notes.explain("quality", state, (), _word(verdict.outcome))
            if not _find_culprits(lab, state, verdict.outcome, refused):
                return ()
        else:
            _run_out(lab, state, "quality")
            if not _leave_processes_out(lab, state, refused):
                return ()
        lower_reserve(lab, state)
        state = build(refused)
    return ()


def _leave_processes_out(lab: Lab, state: State, refused: Refused) -> bool:
    """Go on with the live levers alone, which one process can confirm; False if none are left."""
    fixed, live = lab.fixed_of(state), lab.live_of(state)
    if not fixed or not live:
        return False
    lab.notes.choose("live_levers_alone", state=names_of(live), without=names_of(fixed))
    refused.levers += fixed
    return True


def _find_culprits(lab: Lab, state: State, outcome: Outcome, refused: Refused) -> bool:
    """Refuse the levers that do not pass alone, or the last one's company where all do.

    Returns:
        False where there was no time to find out.
    """
    if len(state) == 1:
        _refuse(lab, state[0], outcome, refused)
        return True
    num_before = len(refused.levers)
    for one in state:
        if not lab.is_judged((one,)) and not _affords(lab, (one,), lab.ledger.judgement()):
            _run_out(lab, (one,), "quality")
            return len(refused.levers) > num_before
        alone = lab.judge((one,)).outcome
        if alone is not Outcome.PASS:
            lab.notes.explain("quality", (one,), (), _word(alone))
            _refuse(lab, one, alone, refused)
    if len(refused.levers) == num_before:
        lab.notes.choose("harmful_together", state[-1].name, state=names_of(state))
        refused.states.append(state)
    return True


def _refuse(lab: Lab, one: Applied, outcome: Outcome, refused: Refused) -> None:
    """Leave a lever with its settings out from now on."""
    lab.notes.choose(_word(outcome), one.name, state=label(one))
    refused.levers.append(one)


def _word(outcome: Outcome) -> str:
    """Why a judged state is not kept."""
    return "harmful" if outcome is Outcome.FAIL else "quality_undecided"


def lower_reserve(lab: Lab, state: State) -> None:
    """From now on only what a judgement and the shortest confirmation need is kept back."""
    needed_s = lab.ledger.judgement() + _least_confirmation(lab, state)
    lab.ledger.reserve_s = min(lab.ledger.reserve_s, needed_s)


def _least_confirmation(lab: Lab, state: State) -> float:
    """Cost of the shortest confirmation of a state [s]."""
    if not _is_confirmed_live(lab, state):
        return lab.ledger.pairs(MIN_PAIRS)
    return lab.ledger.blocks(2 * MIN_CONFIRM_ROUNDS, num_starts=1)


def _is_confirmed_live(lab: Lab, state: State) -> bool:
    """Whether all of a state can be switched in one process."""
    return lab.is_live and not lab.fixed_of(state)


def _run_out(lab: Lab, state: State, phase: str) -> None:
    """Note that there is no time to prove a state."""
    lab.has_run_out = True
    lab.notes.choose("out_of_time", phase=phase, state=names_of(state))


def _affords(lab: Lab, state: State, cost_s: float) -> bool:
    """Whether there is time for something and the state's shortest confirmation after it."""
    needed_s = cost_s + _least_confirmation(lab, state)
    return not lab.is_interrupted and lab.ledger.left_s >= needed_s


# -- confirmation


def _confirm(lab: Lab, state: State) -> ComparisonSeries | None:
    """Compare with the command as written, afresh; None where there was no time.

    How much is measured is fixed before it begins: going on until it looks well would be luck.
    """
    lab.phase = "confirm"
    if not _affords(lab, state, -OVERTIME * lab.ledger.budget_s):
        _run_out(lab, state, "confirm")
        return None
    is_live = _is_confirmed_live(lab, state)
    lab.ledger.reserve_s = 0.0
    series = _confirm_live(lab, state) if is_live else _confirm_in_turns(lab, state)
    lab.notes.try_out("confirm", state, ending=series.ending, found=lab.log_speedup(series))
    lab.report()
    return series


def _confirm_live(lab: Lab, state: State) -> ComparisonSeries:
    """Alternating blocks in fresh processes."""
    start_s = lab.ledger.startup_s + lab.compile_s(state)
    left_s = lab.ledger.left_s
    num_starts = max(1, min(CONFIRM_STARTS, int(STARTS_SHARE * left_s / max(1e-9, start_s))))
    num_fitting = int((left_s - num_starts * start_s) / lab.ledger.blocks(2, num_starts=0))
    most = max(MIN_CONFIRM_ROUNDS, min(MAX_CONFIRM_ROUNDS, num_fitting))
    rounds = math.ceil(min(most, max(CONFIRM_ROUNDS, _wanted(lab, state))) / num_starts)
    series = ComparisonSeries(state=state, reference=())
    for _ in range(num_starts):
        part = lab.live_afresh(state, rounds)
        _join(series, part)
        if series.is_over or lab.is_interrupted:
            break
        middle = lab.log_speedup(part)
        if middle is None or middle.estimate <= 0:
            series.ending = replace(series.ending, reason="repeats_disagree")
    return series


def _wanted(lab: Lab, state: State) -> int:
    """Rounds for the wanted half width, by the noise of the A/A."""
    same = lab.log_speedup(lab.live_series((), ()))
    return CONFIRM_ROUNDS if same is None else pairs_for(same, CONFIRM_HALF_WIDTH)


def _join(series: ComparisonSeries, part: ComparisonSeries) -> None:
    """Take one repeat into the whole."""
    series.add(part.wall, part.cpu, part.others_cores)
    series.asked += part.asked
    series.ending = replace(part.ending, reason=part.ending.reason or series.ending.reason)
    series.compile_s = max(series.compile_s, part.compile_s)
    series.reference_step_s = part.reference_step_s or series.reference_step_s


def _confirm_in_turns(lab: Lab, state: State) -> ComparisonSeries:
    """Processes with and without the state, in turns."""
    series = ComparisonSeries(state=state, reference=())
    num_pairs = max(MIN_PAIRS, min(MAX_CONFIRM_PAIRS, lab.ledger.num_pairs_left()))
    lab.turns_into(series, num_pairs)
    return series


def _is_faster(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether the confirmation's interval lies above 1 by more than the noise; note why not."""
    reason = _doubt(lab, series)
    if reason is None:
        return True
    facts = _numbers(lab, series)
    lab.notes.explain("confirm", series.state, (), reason, facts)
    lab.notes.choose("not_confirmed", None, reason=reason, state=names_of(series.state), **facts)
    return False


def _doubt(lab: Lab, series: ComparisonSeries) -> str | None:
    """Why a confirmation confirms nothing; None where it does."""
    is_in_one_process = _is_confirmed_live(lab, series.state)
    found = lab.log_speedup(series)
    if lab.is_interrupted:
        return "interrupted"
    if series.is_over:
        return series.ending.word
    if found is None or found.n < (MIN_CONFIRM_ROUNDS if is_in_one_process else MIN_PAIRS):
        return "too_few_repeats"
    if not is_in_one_process and not can_tell(lab, series):
        return "cannot_tell"
    is_above = found.low > math.log1p(lab.floor_for(series))
    return series.ending.reason if is_above else "not_confirmed"


def _numbers(lab: Lab, series: ComparisonSeries) -> dict[str, Fact]:
    """The confirmation's numbers as facts."""
    found = lab.log_speedup(series)
    numbers = {} if found is None else numbers_of(to_speedup(found))
    by = "cpu" if lab.is_by_cpu(series) else "wall"
    return numbers | {"noise_floor": number(lab.floor_for(series)), "judged_by": by}


# -- endings


def _faster(lab: Lab, state: State, series: ComparisonSeries) -> Found:
    """The study found something, and proved it."""
    found = lab.log_speedup(series)
    assert found is not None
    one_off_s = max(series.compile_s, lab.compile_s(state))
    has_cost = any(one.name == COMPILE for one in state) and one_off_s > 0
    steps = None
    if has_cost and lab.step_s is not None:
        steps = math.ceil(break_even_steps(one_off_s, lab.step_s, found.estimate))
    return lab.found(StudyOutcome.FASTER, recipe=state, proof=series, break_even_steps=steps)


def _nothing(lab: Lab) -> Found:
    """Nothing was proven: nothing helps, or an effect worth looking for could hide."""
    reason = too_noisy(lab)
    lab.best, lab.best_gain = (), None
    lab.notes.choose("ends", reason=reason or "nothing_helps")
    outcome = StudyOutcome.NOTHING_HELPS if reason is None else StudyOutcome.TOO_NOISY
    return lab.found(outcome, reason=reason)


def too_noisy(lab: Lab) -> str | None:
    """Why it could not be told whether something helps; None where it could.

    A confirmation hides an effect of 10 %, or there was no time for it; or the noise floor does; or
    each lever that was tried may give as much, for all that is known; or one seems to.
    """
    if lab.is_interrupted:
        return "interrupted"
    hidden = [
        trial.reason
        for trial in lab.notes.trials
        if trial.kind == "confirm" and trial.reason in HIDING and _could_help(trial.speedup)
    ]
    if hidden:
        return hidden[0]
    if lab.has_run_out:
        return "too_few_repeats"
    told = lab.compared_alone
    floor = min((lab.floor_for(one) for one in told), default=lab.floor)
    if LEAST_TOLD * floor >= EFFECT:
        return "noise_floor"
    hidden_ones = [one for one in told if _is_hidden(lab, one)]
    if told and (len(hidden_ones) == len(told) or any(_seems_to_help(lab, s) for s in hidden_ones)):
        return "undecided"
    return None


def _seems_to_help(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether the median shows an effect of the size that the study is to find."""
    found = lab.log_speedup(series)
    return found is not None and found.estimate >= math.log1p(EFFECT)


def _could_help(speedup: Interval | None) -> bool:
    """Whether an effect of the size that the study is to find is possible."""
    return speedup is not None and speedup.high > 1 + EFFECT


def _is_hidden(lab: Lab, series: ComparisonSeries) -> bool:
    """Whether a lever alone may give 10 % and it cannot be told."""
    found = lab.log_speedup(series)
    if found is None or not _could_help(to_speedup(found)):
        return False
    is_between = bool(lab.fixed_of(series.state)) or not lab.is_live
    is_untold = is_between and not can_tell(lab, series)
    return is_untold or worth(found, lab.floor_for(series)) is Worth.UNCLEAR
