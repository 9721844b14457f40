"""How long the whole loop takes: from the first step to the last, with what lies between them.

In: the updates of a trial's first rank. Out: a `LoopPart`, and the ratio of two of them over the
same updates. Evaluations and checkpoints come at certain updates: over the same ones, both sides
made the same of them. Where the end of an epoch was seen, the gaps between epochs are taken out and
counted at the rate at which they come, as a window seldom holds a whole number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from steptime.core.interval import Interval, mean_of
from steptime.core.stats import median
from steptime.measure.tried.trial_lines import TaggedUpdate
from steptime.measure.values.measurement import Measurement
from steptime.record.places import NS
from steptime.tune.search.bench import EpochGap

MIN_UPDATES = 3
"""Fewer say nothing of a loop; a comparison of steps needs as many."""

MOST_WARMUP = 0.25
"""Of the updates that a process showed: the rest of a pair's faster side must still be there."""

NUM_BLOCKS = 5
"""Of a loop, whose means are nearly independent."""

LEAST_EPOCH = 8
"""Updates from gap to gap at least; of shorter epochs each window holds many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPart:
    """The updates of a process: when each ended [s], and the index of the first that counts.

    Gaps between epochs are left out of `ends_s` where `gap_s` is theirs, by update [s].
    """

    first: int
    ends_s: tuple[float, ...]
    gap_s: float = 0.0


def updates_a_step(measurement: Measurement) -> float:
    """Return how many optimizer updates a step is made of; 1 at least."""
    return max(1.0, measurement.num_optimizer_updates / max(1, measurement.num_steps))


def find_epoch(updates: Sequence[TaggedUpdate], num_updates: float) -> EpochGap | None:
    """Return the epoch whose end was seen; None without one, or of fewer than 8 updates.

    Args:
        updates: of a process, from its first one on.
        num_updates: of a step.
    """
    ends_s = [one.end_ns * NS for one in updates if one.end_ns is not None]
    gaps = _gaps(updates)
    if len(ends_s) < len(updates) or not gaps or gaps[-1] < LEAST_EPOCH * len(gaps):
        return None
    num = sum(not one.is_early for one in updates[: gaps[-1]]) / len(gaps)
    num = max(num, len(updates) - gaps[-1])  # a finder of learning rates ends early, and once
    excess_s = _excess_s(ends_s, gaps)
    return EpochGap(num_steps=num / num_updates, gap_s=sum(excess_s) / len(gaps))


def _gaps(updates: Sequence[TaggedUpdate]) -> list[int]:
    """The places of updates that come after a gap; the first one has no beginning."""
    return [index for index, one in enumerate(updates) if one.is_after_gap and index > 0]


def _excess_s(ends_s: Sequence[float], gaps: Sequence[int]) -> list[float]:
    """What updates after a gap took longer than others do [s]."""
    if not gaps:
        return []
    usual_s = median([b - a for a, b in pairwise(ends_s)])
    return [max(0.0, ends_s[index] - ends_s[index - 1] - usual_s) for index in gaps]


def loop_part(
    updates: Sequence[TaggedUpdate],
    measurement: Measurement | None = None,
    num_warmup: int = 0,
    epoch: EpochGap | None = None,
) -> LoopPart | None:
    """Return the part of a loop that a process showed, after what it compiled at the beginning.

    The steps in which it warmed up are no part of it either, where the measurement tells them: a
    process that is over in seconds would count as much of them as a run of hours; nor are the first
    `num_warmup` updates, for which the process ran on. The gaps of an `epoch` count at its rate, by
    what they took here, or what they take as written where this process came to none.
    """
    ends_s = [one.end_ns * NS for one in updates if one.end_ns is not None]
    if len(ends_s) < len(updates) or not ends_s:
        return None
    early = range(len(updates) // 2)
    compiled = [index for index in early if updates[index].compile_ns > 0]
    first = max(compiled, default=0)
    steady = None if measurement is None else measurement.steady
    if measurement is not None and steady is not None:
        warmed_up = round(steady.first_step * updates_a_step(measurement))
        first = max(first, min(warmed_up, round(MOST_WARMUP * len(updates))))
    if num_warmup < len(updates):
        first = max(first, num_warmup)
    ends_s = _without_looks(ends_s, updates, first)
    if epoch is None or measurement is None:
        return LoopPart(first=first, ends_s=tuple(ends_s))
    found_s = _excess_s(ends_s, gaps := _gaps(updates))
    mean_s = sum(found_s) / len(found_s) if found_s else epoch.gap_s
    by_place = dict(zip(gaps, found_s, strict=True))
    gone_s = accumulate(by_place.get(place, 0.0) for place in range(len(ends_s)))
    ends_s = [end_s - late_s for end_s, late_s in zip(ends_s, gone_s, strict=True)]
    a_gap = epoch.num_steps * updates_a_step(measurement)
    return LoopPart(first=first, ends_s=tuple(ends_s), gap_s=mean_s / a_gap)


def _without_looks(
    ends_s: Sequence[float], updates: Sequence[TaggedUpdate], first: int
) -> list[float]:
    """Return when updates ended [s], without what Steptime's looks took from the first on.

    The looks come once, in a trial of seconds as in a run of hours. An update with a look that took
    longer than all without one counts as the median of those.
    """
    known = [one for one in updates[first:] if not one.is_disturbed]
    usual_s = [one.wall_ns * NS for one in known if one.wall_ns is not None]
    if len(usual_s) < MIN_UPDATES:
        return list(ends_s)
    most_s, middle_s, looked_s, out = max(usual_s), median(usual_s), 0.0, []
    for place, (one, end_s) in enumerate(zip(updates, ends_s, strict=True)):
        wall_s = (one.wall_ns or 0) * NS
        if place > first and one.is_disturbed and wall_s > most_s:
            looked_s += wall_s - middle_s
        out.append(end_s - looked_s)
    return out


def loop_step_s(part: LoopPart | None, num_updates: float) -> Interval | None:
    """Return the mean time of a step of so many updates [s], by blocks; None if it is too short."""
    if part is None or not is_long(part):
        return None
    ends_s = part.ends_s[part.first :]
    size = (len(ends_s) - 1) // NUM_BLOCKS
    cuts = ends_s[::size][: NUM_BLOCKS + 1]
    blocks_s = [((b - a) / size + part.gap_s) * num_updates for a, b in pairwise(cuts)]
    return mean_of(blocks_s)


def is_long(part: LoopPart) -> bool:
    """Return whether a part of a loop shows how long the loop takes."""
    return len(part.ends_s) - 1 - part.first >= NUM_BLOCKS * MIN_UPDATES


def mean_update_s(part: LoopPart) -> float:
    """Return the mean time from update to update of a loop [s]; it has two of them at least."""
    took_s = part.ends_s[-1] - part.ends_s[part.first]
    return took_s / (len(part.ends_s) - 1 - part.first) + part.gap_s


def loop_ratio(reference: LoopPart | None, candidate: LoopPart | None) -> float | None:
    """Return log(reference / candidate) of the time that both took for the same updates."""
    if reference is None or candidate is None:
        return None
    first = max(reference.first, candidate.first)
    last = min(len(reference.ends_s), len(candidate.ends_s)) - 1
    if last - first < MIN_UPDATES:
        return None
    num = last - first
    took_s = [it.ends_s[last] - it.ends_s[first] + num * it.gap_s for it in (reference, candidate)]
    return math.log(took_s[0] / took_s[1]) if min(took_s) > 0 else None
