"""Decides which processes train together: what is one training, and which of its starts counts.

In: a `Kin` for each process that stepped. Out: groups of their places, in the order of start. Ranks
share a process group, a launcher's job or the memory of their weights; each other process is a
training of its own. `guest/watchers/kinship.py` writes what is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MEMORY = "memory"
"""`group_source` of processes whose weights lie in the same memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """What shows with which others a process trains: a part of the first line of its file.

    Attributes:
        pid: its id.
        rank: its rank.
        t_unix_s: its start [s since 1970].
        ppid: its parent's id; None in a record of an older guest, which did not tell.
        group: a text that is equal in all ranks of a group; None where it shares nothing.
        group_source: `store`, `launcher` or `memory`.
        job: the id of torchrun's job, which a restart keeps.
        restart: how often torchrun had restarted it; None under another launcher.
        ended_unix_s: when its last update ended [s since 1970]; no first line tells that.
        num_updates: its updates, likewise.
    """

    pid: int
    rank: int
    t_unix_s: float
    ppid: int | None = None
    group: str | None = None
    group_source: str | None = None
    job: str | None = None
    restart: int | None = None
    ended_unix_s: float = 0.0
    num_updates: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGroup:
    """The processes of one training, as places in the list that was given.

    `starts` are the processes of each start: more than one where torchrun restarted the job.
    """

    starts: tuple[tuple[int, ...], ...]
    shown: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """Return the processes of all starts."""
        return tuple(place for start in self.starts for place in start)


class _Start:
    """Processes that train together from one start on, and when all of them were there."""

    def __init__(self, place: int, kin: Kin) -> None:
        self.first = kin
        self.places: list[int] = []
        self.ranks: set[int] = set()
        self.parents: set[int | None] = set()
        self.began_unix_s = self.last_began_unix_s = kin.t_unix_s
        self.ended_unix_s = self.first_ended_unix_s = kin.ended_unix_s
        self.num_updates = 0
        self.add(place, kin)

    def add(self, place: int, kin: Kin) -> None:
        self.places.append(place)
        self.ranks.add(kin.rank)
        self.parents.add(kin.ppid)
        self.began_unix_s = min(self.began_unix_s, kin.t_unix_s)
        self.last_began_unix_s = max(self.last_began_unix_s, kin.t_unix_s)
        self.ended_unix_s = max(self.ended_unix_s, kin.ended_unix_s)
        self.first_ended_unix_s = min(self.first_ended_unix_s, kin.ended_unix_s)
        self.num_updates = max(self.num_updates, kin.num_updates)

    def takes(self, kin: Kin) -> bool:
        """Return whether a process with the same `group` is one of these."""
        if kin.rank in self.ranks:
            return False
        if kin.group_source == MEMORY:
            return True
        # The same address serves two groups one after the other, but not at once.
        is_there = kin.t_unix_s <= self.first_ended_unix_s
        return is_there and self.last_began_unix_s <= kin.ended_unix_s

    def restarts(self, before: _Start) -> bool:
        """Return whether this is the same job of torchrun, after an earlier start."""
        restart, earlier = self.first.restart, before.first.restart
        if restart is None or earlier is None or self.began_unix_s <= before.ended_unix_s:
            return False
        if self.parents & before.parents:
            return True
        job = self.first.job
        return job is not None and job == before.first.job and restart > earlier


def group_kin(kins: Sequence[Kin]) -> tuple[TrainingGroup, ...]:
    """Return the trainings in the order of start; each process is in one of them.

    Of a job that was restarted the start with the most updates is shown, or else the last one.
    """
    starts: list[_Start] = []
    by_group: dict[tuple[str, int | None], list[_Start]] = {}
    for place in sorted(
        range(len(kins)), key=lambda place: (kins[place].t_unix_s, kins[place].pid)
    ):
        kin = kins[place]
        key = (_OLD if kin.ppid is None else kin.group or "", kin.restart)
        known = by_group.setdefault(key, []) if key[0] else []
        homes = [start for start in known if kin.ppid is None or start.takes(kin)]
        if homes:
            max(homes, key=lambda start: start.first.ppid == kin.ppid).add(place, kin)
            continue
        start = _Start(place, kin)
        starts.append(start)
        known.append(start)
    jobs: list[list[_Start]] = []
    for start in sorted(starts, key=lambda start: start.began_unix_s):
        may_be_again = start.first.restart is not None
        found = (job for job in jobs if may_be_again and start.restarts(job[-1]))
        job = next(found, None)
        if job is None:
            jobs.append([start])
        else:
            job.append(start)
    return tuple(_group(job) for job in jobs)


def _group(job: Sequence[_Start]) -> TrainingGroup:
    _, shown = max(enumerate(job), key=lambda one: (one[1].num_updates, one[0]))
    return TrainingGroup(
        starts=tuple(tuple(start.places) for start in job), shown=tuple(shown.places)
    )


_OLD = "an older guest did not tell"
