"""The processes of a command that go on after it has returned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ProcessState(str, Enum):
    """What is known of a process that outlived its command."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlivingProcess:
    """A process that still existed when the command had returned.

    Attributes:
        pid: its id, on its machine.
        state: whether it still runs; that of a process on another machine is not known here,
            unless its last line is on disk.
        is_training: whether it uses torch.
        num_steps: number of its steps so far.
        name: the words of its command; None where they are not known.
        host: name of its machine; None where it is the machine of whoever looked.
    """

    pid: int
    state: ProcessState
    is_training: bool
    num_steps: int = 0
    name: str | None = None
    host: str | None = None
