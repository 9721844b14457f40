"""How a command ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RunState(str, Enum):
    """How the command of a run ended, as far as is known.

    Of a run that is `still_training` the command has ended, and a training that it started in the
    background has not.
    """

    RUNNING = "running"
    STILL_TRAINING = "still_training"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How the command ended.

    Attributes:
        state: how it ended, as far as is known.
        exit_code: its exit code; None where a signal ended it, or it was not seen. Where a
            training outlived the command, the exit code of the training is not known.
        signal: number of the signal that ended it; None where a training that outlived the
            command was cut short, because it is not known how.
    """

    state: RunState
    exit_code: int | None = None
    signal: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run is known to have ended, however it did."""
        return self.state in (RunState.FINISHED, RunState.FAILED, RunState.KILLED)
