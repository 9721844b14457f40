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
    """How the command ended."""

    state: RunState
    exit_code: int | None = None
    signal: int | None = None
