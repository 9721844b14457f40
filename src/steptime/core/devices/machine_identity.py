"""Identifies the machine of a measurement, as far as the machine decides what is fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdentity:
    """A machine as runs, ceilings and recipes remember it; None means "not observed".

    It says which machine it was. How busy the machine was, and how much of it a process may use,
    changes from run to run, and is read again each time.

    Attributes:
        hostname_hash: hash of the machine's name, which a measurement does not need; None in a
            recipe, since people share recipes. The lines of processes have the name.
        cpu: model of the processor.
        num_cores: logical cores of the whole machine.
        memory_bytes: memory of the whole machine.
        memory_limit_bytes: limit of the control group, where one limits the memory.
    """

    hostname_hash: str | None = None
    cpu: str | None = None
    num_cores: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
