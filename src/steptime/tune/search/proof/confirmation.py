"""Confirms a state in fresh repeats: looks at it, and looks again while it is open.

In: a `Lab` and a state. Out: what its repeats say, and why they prove nothing yet. Only these data
make a claim: the measurements that chose the state would flatter it. How much a look measures is
fixed before it begins, and each further look must clear a stricter bar, so that all of them
together are wrong as seldom as one.
"""

from __future__ import annotations

import math

from steptime.core.note import Fact
from steptime.core.stats import values_for_interval
from steptime.tune.search.lab import Lab
from steptime.tune.search.proof.comparison_series import ComparisonSeries, Confirmation
from steptime.tune.search.proof.pairs import MIN_FLOOR, MIN_PAIRS, interval, pairs_for, to_speedup
from steptime.tune.search.proof.yardstick import Judged
from steptime.tune.search.rounds.process_turns import turns_into
from steptime.tune.search.rounds.screen import sharpen_noise
from steptime.tune.search.search_notes import key_of, names_of, number, numbers_of
from steptime.tune.values.study_values import State

FIRST_ERROR, LATER_ERROR = 0.032, 0.008
"""How often the interval of the first look may miss the truth; a quarter more for all later looks,
each of which gets half of what is left. With challengers that is one in twenty."""

CHALLENGE_SHARE = 0.25
"""Of these errors, for all states that are confirmed once one is proven: each has half of what is
left of it, so that the whole study is wrong as seldom as it says."""

MAX_ATTEMPTS = 2
"""States that a study tries to confirm with all of these errors: each is a chance for luck."""

BOLD_ERROR = 0.008
"""The same of the first look at a state that was put forward: it seemed the best of many, and
nothing said yet that it is better than chance."""

BOLD_STARTS = 2
"""Fresh processes of such a look at least: within one, blocks depend on each other."""

CONFIRM_STARTS = 3
"""Fresh processes of a live look: what one process happens to be like is not claimed."""

STARTS_SHARE = 0.25
"""Of the time left that these starts may take; else there are fewer."""

CONFIRM_ROUNDS = 24
"""Rounds of a live look at least, where time allows."""

MIN_CONFIRM_ROUNDS = 12
"""With fewer, nothing is claimed."""

MAX_CONFIRM_ROUNDS = 240
"""Rounds of the first look at most; a later one doubles what is there."""

MAX_CONFIRM_PAIRS = 12
"""Pairs of processes of the first look at most."""

CONFIRM_HALF_WIDTH = 0.02
"""Of log ratios, wanted of the claim."""

OVERTIME = 0.1
"""Of the budget: what is judged as good already is confirmed beyond it rather than thrown away."""

MAX_AGAINST = 1 / 6
"""Of the processes of a live confirmation: if more show no gain, its repeats disagree."""


def confirm(lab: Lab, state: State) -> Confirmation | None:
    """Compare with the command as written, afresh, until it is told or no time is left.

    Returns:
        What is known; None where there was no time for it.
    """
    lab.phase = "confirm"
    known = lab.confirmations.get(key_of(state))
    if known is None:
        if not affords(lab, state, -overtime_s(lab)):
            return None
        known = Confirmation(series=ComparisonSeries(state=state, reference=()))
        known.series.is_between = not is_confirmed_live(lab, state)
        known.share = _share(lab)
        lab.confirmations[key_of(state)] = known
        lab.ledger.reserve_s = 0.0
        look(lab, known)
    look_again(lab, known)
    return known


def look_again(lab: Lab, known: Confirmation) -> None:
    """Look again while it is open and time is left."""
    while doubt(lab, known) is not None and may_go_on(lab, known):
        if not (_hidden_by_noise(lab, known) and sharpen_noise(lab)) and not look(lab, known):
            break


def may_go_on(lab: Lab, known: Confirmation) -> bool:
    """Whether more repeats may still confirm it: it seems to give more than the noise."""
    series = known.series
    middle = lab.yardstick.middle(series)
    if series.is_over or lab.is_interrupted or middle is None:
        return False
    if not lab.yardstick.may_tell(series):
        return False
    return middle > _least_gain(lab, known) or _hidden_by_noise(lab, known)


def _least_gain(lab: Lab, known: Confirmation) -> float:
    """The log speedup that its interval must lie above: what is proven already, any gain shows."""
    return 0.0 if known.is_second else math.log1p(lab.floor_for(known.series))


def overtime_s(lab: Lab) -> float:
    """By how much a proof may overrun the budget [s]: not at all once something is proven."""
    return 0.0 if lab.is_proven else OVERTIME * lab.ledger.budget_s


def affords(lab: Lab, state: State, cost_s: float) -> bool:
    """Whether there is time for something and the state's shortest confirmation after it."""
    needed_s = cost_s + least_confirmation(lab, state)
    return not lab.is_interrupted and lab.ledger.left_s >= needed_s


def least_confirmation(lab: Lab, state: State) -> float:
    """Cost of the shortest confirmation of a state [s]; nothing where it was begun."""
    return 0.0 if key_of(state) in lab.confirmations else cheapest_proof(lab, state)


def cheapest_proof(lab: Lab, state: State) -> float:
    """The same of a state of its kind [s]."""
    if not is_confirmed_live(lab, state):
        return _pairs_s(lab, state, _least_pairs(lab, state))
    noise = 0 if lab.yardstick.floors else MIN_PAIRS
    num_blocks = 2 * (_least_rounds(lab, state) + noise)
    starts_s = _starting_s(lab, state, _least_starts(lab, state))
    return starts_s + lab.ledger.blocks(num_blocks, num_starts=0)


def between_s(lab: Lab, state: State) -> float:
    """What it takes at least to show a state between processes, whatever it consists of [s]."""
    return _pairs_s(lab, state, _least_pairs(lab, state))


def _compiling_s(lab: Lab, state: State, num_processes: int) -> float:
    """What so many processes with a state spend on compiling, the first one most [s]."""
    return lab.ledger.compilations(lab.known.compile_s(state), num_processes)


def _pairs_s(lab: Lab, state: State, num_pairs: int) -> float:
    """What so many pairs of processes take, where one of each pair has the state [s]."""
    return lab.ledger.pairs(num_pairs) + _compiling_s(lab, state, num_pairs)


def _starting_s(lab: Lab, state: State, num_processes: int) -> float:
    """What so many processes take until the state is compiled [s]."""
    return num_processes * lab.ledger.startup_s + _compiling_s(lab, state, num_processes)


def is_confirmed_live(lab: Lab, state: State) -> bool:
    """Whether all of a state can be switched in one process."""
    return lab.is_live and not lab.fixed_of(state)


def _is_bold(lab: Lab, state: State) -> bool:
    """Whether a look within few processes, whose blocks depend on each other, must show more."""
    return key_of(state) in lab.bold and is_confirmed_live(lab, state)


def _share(lab: Lab) -> float:
    """Of the errors, what the next state has: all, where it may be the first that is proven."""
    known = list(lab.confirmations.values())
    proven = [place for place, one in enumerate(known, start=1) if doubt(lab, one) is None]
    num_first = min([*proven, MAX_ATTEMPTS])
    return 1.0 if len(known) < num_first else CHALLENGE_SHARE / 2 ** (1 + len(known) - num_first)


def _first_error(lab: Lab, state: State) -> float:
    known = lab.confirmations.get(key_of(state))
    share = _share(lab) if known is None else known.share
    return (BOLD_ERROR if _is_bold(lab, state) else FIRST_ERROR) * share


def _least_rounds(lab: Lab, state: State) -> int:
    return CONFIRM_ROUNDS if _is_bold(lab, state) else MIN_CONFIRM_ROUNDS


def _least_starts(lab: Lab, state: State) -> int:
    return BOLD_STARTS if _is_bold(lab, state) else 1


def _least_pairs(lab: Lab, state: State) -> int:
    """Pairs of the shortest confirmation: one more where they must show their own noise, too."""
    carried = values_for_interval(_first_error(lab, state))
    return max(MIN_PAIRS, carried) + (0 if lab.yardstick.floors else 1)


def _hidden_by_noise(lab: Lab, known: Confirmation) -> bool:
    """Whether it is the A/A that knows too little: the gain is certain, and below its floor."""
    series, found = known.series, lab.log_speedup(known.series)
    if not lab.yardstick.floors:
        return not series.is_between
    if series.is_between and not lab.yardstick.is_live:
        return False
    if found is None:
        return False
    return math.log1p(MIN_FLOOR) < found.low <= _least_gain(lab, known)


# -- one look


def look(lab: Lab, known: Confirmation) -> bool:
    """Measure more, as much as was there before or all that fits; False where too little fits."""
    series = known.series
    first_error = _first_error(lab, series.state)
    error = first_error if not known.num_looks else known.share * LATER_ERROR / 2**known.num_looks
    least = values_for_interval(error) - len(series.wall) if known.num_looks else 0
    measure = _look_in_turns if series.is_between else _look_live
    if not measure(lab, known, least):
        return False
    known.num_looks += 1
    series.error = error
    lab.write_down("confirm", series)
    lab.report()
    return True


def _time_s(lab: Lab, known: Confirmation, least_s: float) -> float:
    """What a look may take, the first one a little more than is left [s].

    What quality needs is kept, where both fit, and what proves another state that was seen to be
    faster and as good, should this one fail.
    """
    left_s = lab.ledger.left_s + (0.0 if known.num_looks else overtime_s(lab))
    seen = lab.incumbent()
    proof_s = least_confirmation(lab, seen) if seen else 0.0
    for kept_s in (lab.judgement_s(known.series.state), proof_s):
        left_s -= kept_s if left_s >= kept_s + least_s else 0.0
    return left_s


def _look_live(lab: Lab, known: Confirmation, more: int) -> bool:
    """Alternating blocks in fresh processes; another look has so many rounds `more` at least."""
    state = known.series.state
    start_s = _starting_s(lab, state, 1)
    least, least_starts = _least_rounds(lab, state), _least_starts(lab, state)
    least_s = _starting_s(lab, state, least_starts) + lab.ledger.blocks(2 * least, num_starts=0)
    most_s = _time_s(lab, known, start_s if known.num_looks else least_s)
    left_s = min(most_s, lab.ledger.left_s)
    more_starts = range(CONFIRM_STARTS, least_starts, -1)
    short = [n for n in more_starts if _starting_s(lab, state, n) <= STARTS_SHARE * left_s]
    num_starts = max([*short, least_starts])
    blocks_s = left_s - _starting_s(lab, state, num_starts)
    fitting = int(blocks_s / lab.ledger.blocks(2, num_starts=0))
    if known.num_looks:
        due = _doubled(known, fitting)
        if due < max(MIN_PAIRS, more):
            return False
    else:
        due = min(max(least, min(MAX_CONFIRM_ROUNDS, fitting)), max(CONFIRM_ROUNDS, _wanted(lab)))
    rounds, until_s = math.ceil(due / num_starts), lab.ledger.left_s - most_s
    for _ in range(num_starts):
        part = lab.live_afresh(state, rounds, most_s=max(lab.ledger.left_s - until_s, start_s))
        slowed = _slowed(lab, part)
        fits = _time_s(lab, known, 0.0) >= between_s(lab, state)
        if slowed and fits and not known.series.asked:
            # Decided before its gain is looked at: what processes say is all that counts.
            known.series.is_between = True
            return _look_in_turns(lab, known, 0)
        part.take_off(slowed)
        known.series.join(part)
        if known.series.is_over or lab.is_interrupted:
            break
        middle = lab.yardstick.middle(part)
        known.num_starts += 1
        known.num_against += middle is None or middle <= 0
    return True


def _slowed(lab: Lab, part: ComparisonSeries) -> float:
    """By how much the command as written was slower in this process than by itself, as a log ratio.

    States that take turns in one process share its memory and its workers: what one of them leaves
    to the other may slow it down, and that is gone where the command runs with either alone. Where
    other programs took the cores, they may be why, and both states alike are slower by them.
    """
    steady = None if lab.baseline is None else lab.baseline.measurement.steady
    alone = None if steady is None else steady.step_time_s
    is_quiet = lab.yardstick.is_quiet(part.others_cores)
    if alone is None or part.reference_step_s is None or not is_quiet:
        return 0.0
    slowed = math.log(part.reference_step_s / alone.high)
    if slowed <= math.log1p(MIN_FLOOR):
        return 0.0
    speedup = number(math.exp(slowed))
    lab.notes.choose("slowed_beside", state=names_of(part.state), speedup=speedup)
    return slowed


def _doubled(known: Confirmation, fitting: int) -> int:
    """As much as is there, or all that fits where no third such look would."""
    before = len(known.series.wall)
    return before if fitting > 3 * before else fitting


def _wanted(lab: Lab) -> int:
    """Rounds for the wanted half width, by the noise of the A/A."""
    same = lab.log_speedup(lab.known.live((), ()))
    return CONFIRM_ROUNDS if same is None else pairs_for(same, CONFIRM_HALF_WIDTH)


def _look_in_turns(lab: Lab, known: Confirmation, more: int) -> bool:
    """Processes with and without the state, in turns; another look has `more` pairs at least."""
    if not known.num_looks:
        _first_turns(lab, known)
        return True
    one_s = _pairs_s(lab, known.series.state, 1)
    most_s = _time_s(lab, known, one_s)
    due = _doubled(known, _pairs_that_fit(lab, known, most_s))
    if due < max(1, more):
        return False
    turns_into(lab, known.series, due, most_s=max(most_s, one_s))
    return True


def _first_turns(lab: Lab, known: Confirmation) -> None:
    """The pairs of the first look, as many as fit.

    Of what compiles, the first one shows what compiling takes again. Where too few fit then, there
    are no more: what compiles is left out.
    """
    series, state = known.series, known.series.state
    least_pairs = _least_pairs(lab, state)
    most_s = _time_s(lab, known, _pairs_s(lab, state, least_pairs))
    until_s = lab.ledger.left_s - most_s
    if _compiling_s(lab, state, 1) > 0:
        turns_into(lab, series, 1 if lab.known.was_compiled(state) else 2, most_s=most_s)
        most_s = lab.ledger.left_s - until_s
        is_short = series.asked + _pairs_that_fit(lab, known, most_s) < least_pairs
        if is_short or series.is_over or lab.is_interrupted:
            return
    due = min(MAX_CONFIRM_PAIRS - series.asked, _pairs_that_fit(lab, known, most_s))
    due = max(least_pairs - series.asked, due)
    turns_into(lab, series, due, most_s=max(most_s, _pairs_s(lab, state, 1)))


def _pairs_that_fit(lab: Lab, known: Confirmation, most_s: float) -> int:
    """How many more pairs of processes take no longer [s]; the first one compiles."""
    state, done = known.series.state, known.series.asked
    first_s = _pairs_s(lab, state, done + 1) - _pairs_s(lab, state, done)
    next_s = _pairs_s(lab, state, 2) - _pairs_s(lab, state, 1)
    return max(0, 1 + math.floor((most_s - first_s) / max(1e-9, next_s)))


# -- what it says


def doubt(lab: Lab, known: Confirmation) -> str | None:
    """Why a confirmation confirms nothing; None where it does."""
    series = known.series
    found = lab.log_speedup(series)
    least = MIN_PAIRS if series.is_between else _least_rounds(lab, series.state)
    if lab.is_interrupted:
        return "interrupted"
    if series.is_over:
        return series.ending.word
    if not lab.yardstick.can_tell(series):
        return "cannot_tell"
    if found is None or found.n < least:
        return "too_few_repeats"
    if not lab.yardstick.floors:
        return "no_noise_floor"
    is_above = found.low > _least_gain(lab, known)
    if is_above and known.num_against > MAX_AGAINST * known.num_starts:
        return "repeats_disagree"
    loop = interval(series.loop)  # it is the loop's speedup that is claimed
    return None if is_above and (loop is None or loop.low > 0) else "not_confirmed"


def has_no_time(lab: Lab, known: Confirmation) -> bool:
    """Whether it was begun, and its shortest form takes longer than was thought."""
    return doubt(lab, known) == "too_few_repeats" and known.series.is_between


def is_faster(lab: Lab, known: Confirmation) -> bool:
    """Whether its interval lies above 1 by more than the noise; note why not."""
    series, reason = known.series, doubt(lab, known)
    if reason is None:
        return True
    facts = numbers(lab, series)
    lab.notes.explain("confirm", series.state, (), reason, facts)
    lab.notes.choose("not_confirmed", None, reason=reason, state=names_of(series.state), **facts)
    return False


def numbers(lab: Lab, series: ComparisonSeries) -> dict[str, Fact]:
    """The confirmation's numbers as facts."""
    found = lab.log_speedup(series)
    facts = {} if found is None else numbers_of(to_speedup(found))
    by = lab.yardstick.judged_by(series)
    if by is Judged.NOTHING:
        others = series.others_cores
        facts["others_cores"] = "unknown" if others is None else f"{others:.2g}"
    return facts | {"noise_floor": number(lab.floor_for(series)), "judged_by": by.value}
