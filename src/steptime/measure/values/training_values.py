"""The value that says which training of a command a measurement is of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTraining:
    """One training of a command: a process that steps alone, or the ranks of one group.

    Attributes:
        number: its number in the order of start, from 1.
        num_trainings: how many trainings the command has started.
        command: the words that its first process was started with; empty where they are not
            known.
        pid: id of its first process, which is rank 0 where there is one.
        started_unix_s: start of its first process [s since 1970, UTC].
        last_update_unix_s: end of the last update that is on disk [s since 1970, UTC].
        lasted_s: time from the import of torch in its first process to its last update [s]; of
            several trainings, the report shows the one that lasted longest.
        beside: numbers of the trainings that stepped at the same time.
        num_restarts: how often its launcher started it again; the start with the most updates
            is measured.
    """

    number: int
    num_trainings: int
    command: tuple[str, ...]
    pid: int
    started_unix_s: float
    last_update_unix_s: float
    lasted_s: float
    beside: tuple[int, ...] = ()
    num_restarts: int = 0

    @property
    def is_alone(self) -> bool:
        """Return whether the command has no other training."""
        return self.num_trainings == 1
