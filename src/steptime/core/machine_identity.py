"""Which machine something was measured on, as far as that decides what is fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdentity:
    """A machine as runs, ceilings and recipes remember it; None means "not observed".

    It says which machine it was, not how busy it was and not how much of it a process may use:
    that changes from run to run, and is read again each time.

    Attributes:
        hostname_hash: of the machine's name, so that the name itself is kept nowhere; None in a
            recipe, which people hand on.
        cpu: the processor's model.
        num_cores: logical cores of the whole machine.
        memory_bytes: of the whole machine.
        memory_limit_bytes: of the control group, where one limits the memory.
    """

    hostname_hash: str | None = None
    cpu: str | None = None
    num_cores: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
