"""How a command ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RunState(str, Enum):
    """How the command of a run ended, as far as is known."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How the command ended.

    Attributes:
        state: how it ended, as far as is known.
        exit_code: its exit code; None where a signal ended it, or nobody saw the end.
        signal: number of the signal that ended it.
    """

    state: RunState
    exit_code: int | None = None
    signal: int | None = None
