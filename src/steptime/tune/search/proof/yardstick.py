"""What may judge a comparison here: wall or CPU time, in which pairs, and beyond which noise floor.

In: series of comparisons, and the A/A. Out: intervals, floors and worths. Wall time judges where
others left the machine alone, and live blocks always. Beside busy neighbors CPU time judges the
levers that declare it, and wall time the pairs in which a neighbor can only have hidden a gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from steptime.core.interval import Interval
from steptime.levers.base import Facts, Lever
from steptime.tune.search.bench import ComparisonResult
from steptime.tune.search.proof.comparison_series import (
    ONE_START,
    TAKEN_CORES,
    ComparisonSeries,
)
from steptime.tune.search.proof.pairs import (
    MIN_FLOOR,
    MIN_PAIRS,
    Worth,
    bias_of,
    floor_of,
    interval,
    middle,
    worth,
)
from steptime.tune.search.search_notes import key_of

QUIET_FRACTION = 0.05
"""Of the cores: others that took less did not decide a comparison between processes."""

MIN_QUIET_CORES = 0.1
"""On a small machine: below it, wall times of a quiet and of this machine agreed."""

MAY_WAIT = "fetch"
"""The phase that may wait for a disk, which CPU time does not see."""

INPUT_PHASES = frozenset({"fetch", "collate", "input_wait"})
"""Where a loader has workers, their time is in other processes than the one that is counted, and
they share the cores with operators."""


class Judged(Enum):
    """By what a comparison is judged."""

    WALL = "wall"
    """All of its pairs, by the time that one waits for."""
    CPU = "cpu"
    """All of its pairs, by CPU time."""
    QUIET = "quiet"
    """The pairs beside which others left the machine alone."""
    FAIR = "fair"
    """Those, and the pairs beside which others had no less of the machine with the candidate."""
    NOTHING = "nothing"
    """It cannot be told here."""


class Yardstick:
    """The levers' declarations, the facts, and the noise that was measured so far."""

    def __init__(self, levers: Mapping[str, Lever]) -> None:
        self.floors: dict[bool, float] = {}
        self._biases: dict[bool, float] = {}
        self.num_same = 0
        self.facts = Facts(torch_version="")
        self._levers = levers
        self._same: tuple[list[float], list[float]] = ([], [])
        self._is_live = False

    # -- the noise

    def take_live(self, series: ComparisonSeries) -> None:
        """Take the noise floors from an A/A in one process, by wall and by CPU time."""
        self._is_live = self._note(series.wall, series.cpu) or self._is_live

    def take_between(self, result: ComparisonResult) -> bool:
        """Where there is no such A/A: from processes that nothing but the moment tells apart.

        Returns:
            Whether floors are known now that were not before.
        """
        self._same[0].extend(result.same)
        self._same[1].extend(result.same_cpu)
        was_known = bool(self.floors)
        return not self._is_live and self._note(*self._same) and not was_known

    @property
    def is_live(self) -> bool:
        """Whether the floors are from an A/A in one process."""
        return self._is_live

    def _note(self, wall: Sequence[float], cpu: Sequence[float]) -> bool:
        found = interval(wall)
        if found is None:
            return False
        self.num_same = found.n
        for is_cpu, same in ((False, found), (True, interval(cpu))):
            if same is not None:
                self.floors[is_cpu], self._biases[is_cpu] = floor_of(same), bias_of(same)
        return True

    @property
    def least_floor(self) -> float:
        """The smallest noise floor that is known; the least one there is before that."""
        return min(self.floors.values(), default=MIN_FLOOR)

    # -- one comparison

    def judged_by(self, series: ComparisonSeries) -> Judged:
        """By what the comparison is judged."""
        if self.is_quiet(series.others_cores):
            return Judged.WALL
        if self._allows_cpu(series):
            return Judged.CPU
        if not series.is_between:
            return Judged.WALL
        if len(series.quiet(self.quiet_cores)) >= MIN_PAIRS:
            return Judged.QUIET
        levers = self._differing(series)
        is_hidden_only = all(one.judged_beside_others for one in levers)
        if levers and is_hidden_only and len(series.fair(self.quiet_cores)) >= MIN_PAIRS:
            return Judged.FAIR
        return Judged.NOTHING

    def log_ratios(self, series: ComparisonSeries) -> list[float]:
        """What judges it; all by wall time where nothing may, to say what was seen."""
        by = self.judged_by(series)
        if by is Judged.CPU:
            return series.cpu
        if by is Judged.QUIET:
            return series.quiet(self.quiet_cores)
        return series.fair(self.quiet_cores) if by is Judged.FAIR else series.wall

    def log_speedup(self, series: ComparisonSeries) -> Interval | None:
        """Its log speedup with interval, by what judges it; None with too few pairs for one."""
        return interval(self.log_ratios(series), error=series.error)

    def middle(self, series: ComparisonSeries) -> float | None:
        """The median of its log ratios, however few."""
        return middle(self.log_ratios(series))

    def floor_for(self, series: ComparisonSeries) -> float:
        """The noise floor of the time that judges it."""
        return self._least(series, self.floors)

    def bias_for(self, series: ComparisonSeries) -> float:
        """The bias of the time that judges it: what the A/A shows for certain."""
        return self._least(series, self._biases)

    def _least(self, series: ComparisonSeries, known: Mapping[bool, float]) -> float:
        by = self.judged_by(series)
        least = known.get(by is Judged.CPU, known.get(False, MIN_FLOOR))
        if series.is_kept:
            least = max(least, ONE_START)
        return max(least, TAKEN_CORES) if by is Judged.FAIR else least

    def floor_that_judged(
        self, proof: ComparisonSeries | None, tried: Sequence[ComparisonSeries]
    ) -> float | None:
        """The noise floor by which the proof was judged, else most of what was tried."""
        if not self.floors:
            return None
        used = [self.floor_for(one) for one in tried] if proof is None else [self.floor_for(proof)]
        return max(used, key=used.count) if used else min(self.floors.values())

    def worth(self, series: ComparisonSeries) -> Worth | None:
        """What its interval says; None without one. Where it cannot be told, it is unclear."""
        found = self.log_speedup(series)
        if found is None:
            return None
        what = worth(found, self.floor_for(series), bias=self.bias_for(series))
        is_told = self.can_tell(series) and (what is Worth.GAIN or self.can_deny(series))
        return what if is_told else Worth.UNCLEAR

    def can_tell(self, series: ComparisonSeries) -> bool:
        """Whether anything may judge it here."""
        return self.judged_by(series) is not Judged.NOTHING

    def may_tell(self, series: ComparisonSeries) -> bool:
        """Whether more pairs may tell something: it is told already, or some pair of it counts."""
        if self.can_tell(series):
            return True
        is_hidden_only = all(one.judged_beside_others for one in self._differing(series))
        limit = self.quiet_cores
        return bool(series.fair(limit) if is_hidden_only else series.quiet(limit))

    def can_deny(self, series: ComparisonSeries) -> bool:
        """Whether it may be said that nothing is gained, too.

        Not where a neighbor can have hidden the gain, nor by CPU time where it is the waiting that
        the lever may save.
        """
        by = self.judged_by(series)
        if by is Judged.CPU:
            return not any(MAY_WAIT in one.phases for one in self._differing(series))
        return by in (Judged.WALL, Judged.QUIET)

    # -- the load

    @property
    def quiet_cores(self) -> float:
        """What others may take so that the machine counts as quiet."""
        return max(MIN_QUIET_CORES, QUIET_FRACTION * self.facts.num_cores)

    def is_quiet(self, others_cores: float | None) -> bool:
        """Whether others left the machine alone; not where that was not observed."""
        return others_cores is not None and others_cores <= self.quiet_cores

    def _allows_cpu(self, series: ComparisonSeries) -> bool:
        """Whether all that differs declares that CPU time may judge it, and here it may.

        Never on an accelerator, whose work is not in the process's CPU time, and not for reading
        that workers do.
        """
        if self.facts.device != "cpu" or not series.cpu:
            return False
        loaders = self.facts.loaders
        has_workers = loaders is None or any(loader.num_workers for loader in loaders)
        return all(
            one.judged_by_cpu_time and not (has_workers and INPUT_PHASES & set(one.phases))
            for one in self._differing(series)
        )

    def _differing(self, series: ComparisonSeries) -> list[Lever]:
        """The levers in which candidate and reference differ."""
        own, reference = set(key_of(series.state)), set(key_of(series.reference))
        return [self._levers[name] for name in sorted({name for name, _ in own ^ reference})]
