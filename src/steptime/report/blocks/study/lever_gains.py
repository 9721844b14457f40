"""Finds what each lever of the recipe gave, and draws it as a waterfall from 1 to the recipe.

In: a Study. Out: blocks. Each step of it is the trial that timed the lever beside those above it.
The last row is the proof, which has repeats of its own: what the steps do not explain of it is a
row, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from rich.text import Text

from steptime.core.interval import Interval
from steptime.core.units import format_count, format_percent, format_seconds, format_speedup
from steptime.report.blocks.values import Bar, Block, Cell, Labeled, TableBlock
from steptime.report.words.study import study_words as words
from steptime.tune.values.study_values import Applied, State, Study, Trial

_UNTIMED = ("observe", "quality")
_MAX_ORDERED = 5
"""Of more levers than that, only the order of the recipe is looked at."""

_LEAST = 0.005
"""A rest below half a percent of the baseline's time is not worth a row."""


Part = tuple[State, Interval | None]
"""Levers that came on together, and their speedup where it was timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverStep:
    """One step of the way: `added` came on, and the time went from `before` to `after`.

    Times are fractions of the baseline's. `speedup` is None for what no trial timed by itself.
    """

    added: State
    before: float
    after: float
    speedup: Interval | None


def gains_of(study: Study) -> tuple[LeverStep, ...]:
    """Return what each lever gave where a trial timed it, in the order that is known best.

    Trials that timed a lever over the others may know it better than those that timed it alone;
    where all are known as well, the order is the recipe's. Levers that came on together
    are one step. Those that no trial told from the others, and the difference between the trials
    and the proof, are in the last one, which ends at the proof.
    """
    if study.speedup is None or not study.recipe:
        return ()
    time, gains = 1.0, list[LeverStep]()
    left: list[Applied] = []
    for added, speedup in min(_ways(study), key=_doubt_of):
        if speedup is None:
            left += added
            continue
        gains.append(
            LeverStep(added=added, before=time, after=time / speedup.estimate, speedup=speedup)
        )
        time = gains[-1].after
    end = 1 / study.speedup.estimate
    if left or abs(end - time) >= _LEAST:
        gains.append(LeverStep(added=tuple(left), before=time, after=end, speedup=None))
    return tuple(gains)


def _ways(study: Study) -> Iterator[tuple[Part, ...]]:
    """Yield ways from nothing to the recipe, that in its own order first."""
    recipe = study.recipe
    trials = [
        trial
        for trial in study.trials
        if trial.kind not in _UNTIMED
        and trial.speedup is not None
        and all(applied in recipe for applied in (*trial.state, *trial.reference))
    ]
    orders = permutations(recipe) if len(recipe) <= _MAX_ORDERED else [recipe]
    return (tuple(_timed(order, trials)) for order in orders)


def _doubt_of(way: Sequence[Part]) -> tuple[int, float]:
    """Return how many levers no trial timed, and how wide the intervals of the others are."""
    found = [speedup for _, speedup in way if speedup is not None]
    width = math.fsum(math.log(one.high / one.low) if one.low > 0 else math.inf for one in found)
    return sum(len(added) for added, speedup in way if speedup is None), round(width, 9)


def _timed(recipe: State, trials: Sequence[Trial]) -> Iterator[Part]:
    """Yield parts of the recipe, each with its speedup over the parts before, or without one.

    A lever that was not timed on top of those before it may have been taken out of the whole.
    """
    begun = 0
    while begun < len(recipe):
        end, found = _next_part(recipe, trials, begun)
        yield recipe[begun:end], found
        begun = end


def _next_part(recipe: State, trials: Sequence[Trial], begun: int) -> tuple[int, Interval | None]:
    """Return where the next part of the recipe ends, and its speedup: of as few as possible."""
    alone = _speedup_of(trials, recipe[: begun + 1], recipe[:begun])
    if alone is None:
        alone = _taken_out(recipe, trials, recipe[begun])
    if alone is not None:
        return begun + 1, alone
    for end in range(begun + 2, len(recipe) + 1):
        found = _speedup_of(trials, recipe[:end], recipe[:begun])
        if found is not None:
            return end, found
    return begun + 1, None


def _speedup_of(trials: Sequence[Trial], state: State, reference: State) -> Interval | None:
    """Return the speedup of a state over another; of several trials that of the most pairs."""
    found = [
        trial.speedup
        for trial in trials
        if trial.speedup is not None
        and is_same(trial.state, state)
        and is_same(trial.reference, reference)
    ]
    return max(found, key=lambda one: one.n, default=None)


def _taken_out(recipe: State, trials: Sequence[Trial], applied: Applied) -> Interval | None:
    """Return what is lost where this lever alone is taken out of the recipe."""
    rest = tuple(one for one in recipe if one != applied)
    if (found := _speedup_of(trials, recipe, rest)) is not None:
        return found
    lost = _speedup_of(trials, rest, recipe)
    if lost is None or lost.low <= 0:
        return None
    return Interval(estimate=1 / lost.estimate, low=1 / lost.high, high=1 / lost.low, n=lost.n)


def is_same(one: State, other: State) -> bool:
    """Return whether the same levers are on with the same settings, in any order."""
    return len(one) == len(other) and all(applied in other for applied in one)


def gain_table(study: Study) -> list[Block]:
    """Show the way from the command as written to the recipe; nothing without a recipe."""
    gains = gains_of(study)
    if not gains or study.speedup is None:
        return []
    longest = max(1.0, *(gain.after for gain in gains), *map(_slowest, gains))
    proven = study.speedup
    reach = (1 / proven.high / longest, 1 / proven.low / longest)
    whole = Bar([("whole", 1 / proven.estimate / longest)], reach=reach)
    recipe = Text("the recipe, proven in new repeats", style="bold")
    rows: list[list[Cell]] = [
        ["as written", Bar([("whole", 1 / longest)]), _time(1.0, study), *_told(None)],
        *(_row(gain, longest, study) for gain in gains),
        [recipe, whole, _time(1 / proven.estimate, study), *_told(proven)],
    ]
    heading = ["", "step time", "", "speedup", "95 % interval", "n"]
    said = "Each bar begins where the one above it ended; the thin line is its 95 % interval."
    return [
        TableBlock(heading, rows, 2, "Waterfall of levers", "gains"),
        Labeled("", said, style="dim"),
    ]


def _row(gain: LeverStep, longest: float, study: Study) -> list[Cell]:
    low, high = sorted((gain.before, gain.after))
    reach = None
    if gain.speedup is not None:
        reach = (gain.before / gain.speedup.high / longest, _slowest(gain) / longest)
    kind = "gain" if gain.after <= gain.before else "loss"
    kind = kind if gain.speedup is not None else f"{kind} untold"
    drawn = Bar([(kind, (high - low) / longest)], low / longest, reach=reach)
    told = _told(gain.speedup)
    if gain.speedup is None:
        told[0] = format_speedup(gain.before / gain.after)
    return [_name(gain), drawn, _time(gain.after, study), *told]


def _told(speedup: Interval | None) -> list[str]:
    """Return the cells of a speedup; all are empty where there is none."""
    if speedup is None:
        return ["", "", ""]
    low, high = format_speedup(speedup.low)[:-1], format_speedup(speedup.high)[:-1]
    return [format_speedup(speedup.estimate), f"{low} to {high}", format_count(speedup.n)]


def _slowest(gain: LeverStep) -> float:
    """Return the longest time that the interval of a step allows."""
    if gain.speedup is None or gain.speedup.low <= 0:
        return gain.after
    return gain.before / gain.speedup.low


def _name(gain: LeverStep) -> Text:
    if not gain.added:
        return Text("difference between these trials and the proof", style="dim")
    name = Text.assemble((words.describe_state(gain.added), "bold"))
    return name if gain.speedup is not None else name.append(" not timed by itself", style="dim")


def _time(fraction: float, study: Study) -> str:
    """Return the time of a step; without the baseline's, its fraction of that."""
    if study.baseline_step_s is None:
        return format_percent(fraction)
    return format_seconds(study.baseline_step_s * fraction)
