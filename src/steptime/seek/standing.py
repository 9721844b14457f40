"""How the candidates stand: their times, how noisy these are, and who is before whom.

In: finished runs. Out: numbers. A run that did not reach the target is censored: its candidate has
no mean, and stands behind each one that always reached it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from steptime.seek.values.seek_values import Role, SeekEnd, SeekRun

SEARCHED = frozenset({Role.EXPLORE, Role.REPEAT})
"""Runs that the choice rests on; those over new seeds judge it."""
SD_UNKNOWN = 0.15
"""Spread of a log time from seed to seed where nothing has been repeated: with early steps as noisy
as these, 10 to 20 % are usual."""
SD_WEIGHT = 3.0
"""Runs that the usual spread counts for, so that two runs that happen to agree are not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One candidate by its runs.

    Attributes:
        candidate: its number.
        logs: log of each time to the target (num_reached,).
        num_missed: runs that did not reach it.
    """

    candidate: int
    logs: tuple[float, ...]
    num_missed: int

    @property
    def num_runs(self) -> int:
        """Return how many runs there are."""
        return len(self.logs) + self.num_missed

    @property
    def mean_log(self) -> float:
        """Return the mean log time; infinite where a run did not reach the target."""
        if self.num_missed or not self.logs:
            return math.inf
        return math.fsum(self.logs) / len(self.logs)

    @property
    def time_s(self) -> float | None:
        """Return the geometric mean of the times [s]; None where one is censored."""
        return math.exp(self.mean_log) if math.isfinite(self.mean_log) else None

    @property
    def order(self) -> tuple[float, float, int]:
        """Return what candidates are sorted by: who always reaches the target, then the time."""
        missed = self.num_missed / self.num_runs if self.num_runs else 1.0
        return missed, self.mean_log, self.candidate


def standings(runs: Sequence[SeekRun], *, roles: Collection[Role] = SEARCHED) -> list[Standing]:
    """Return how the candidates stand by runs of some roles, the best first."""
    logs: dict[int, list[float]] = {}
    missed: dict[int, int] = {}
    for run in runs:
        if run.role not in roles or run.end is SeekEnd.TIMED_OUT:
            continue  # what the budget cut off says nothing of the candidate
        logs.setdefault(run.candidate, [])
        if run.time_to_target_s is None:
            missed[run.candidate] = missed.get(run.candidate, 0) + 1
        else:
            logs[run.candidate].append(math.log(max(run.time_to_target_s, 1e-9)))
    found = [
        Standing(candidate=one, logs=tuple(values), num_missed=missed.get(one, 0))
        for one, values in logs.items()
    ]
    return sorted(found, key=lambda one: one.order)


def times_of(found: Sequence[Standing]) -> dict[int, float]:
    """Return the time of each candidate that always reached the target [s]."""
    return {one.candidate: one.time_s for one in found if one.time_s is not None}


def noise_of(found: Sequence[Standing]) -> float | None:
    """Return the standard deviation of a log time within a candidate; None without repeats."""
    repeated = [one.logs for one in found if len(one.logs) > 1]
    if not repeated:
        return None
    total, freedom = 0.0, 0
    for logs in repeated:
        middle = math.fsum(logs) / len(logs)
        total += math.fsum((value - middle) ** 2 for value in logs)
        freedom += len(logs) - 1
    return math.sqrt(total / freedom)


def planned_sd(found: Sequence[Standing]) -> float:
    """Return the spread that is planned with: what was seen, drawn towards the usual."""
    seen = noise_of(found)
    if seen is None:
        return SD_UNKNOWN
    freedom = sum(len(one.logs) - 1 for one in found if len(one.logs) > 1)
    weight = SD_WEIGHT + freedom
    return math.sqrt((SD_WEIGHT * SD_UNKNOWN**2 + freedom * seen**2) / weight)


def contenders(found: Sequence[Standing], *, sd: float, reach: float) -> list[Standing]:
    """Return those whose distance to the best is within their noise, the best first.

    Args:
        found: sorted, the best first.
        sd: spread of one log time.
        reach: how many standard errors of the difference are within the noise.
    """
    alive = [one for one in found if math.isfinite(one.mean_log)]
    if not alive:
        return []
    best = alive[0]
    return [
        one
        for one in alive
        if one.mean_log - best.mean_log
        <= reach * sd * math.sqrt(1 / len(one.logs) + 1 / len(best.logs))
    ]


def parameters_of(runs: Sequence[SeekRun]) -> dict[int, Mapping[str, str]]:
    """Return the parameters of each candidate."""
    return {run.candidate: run.parameters for run in runs}
