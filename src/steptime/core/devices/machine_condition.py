"""The state in which a machine is used: what an administrator or a launcher may change about it.

In: nothing. Out: a `MachineCondition`, and in what two of them differ. The machine itself is a
`MachineIdentity`; how busy others keep it is part of neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCondition:
    """A state of a machine; None and absent devices mean "not observed".

    Attributes:
        cpus: cores that the process may run on, as the kernel lists them.
        quota_cores: core-seconds a second that a control group allows; 0 where none limits them.
        governor: who sets the clock of the cores, such as `performance`.
        max_frequency_hz: the most that the clock of a core may be set to.
        is_boosting: whether cores may exceed their base clock.
        power_limits_w: what each GPU may draw, by its UUID.
        mig_modes: whether each GPU is divided into instances (MIG), by its UUID.
    """

    cpus: str | None = None
    quota_cores: float | None = None
    governor: str | None = None
    max_frequency_hz: float | None = None
    is_boosting: bool | None = None
    power_limits_w: Mapping[str, float] = field(default_factory=dict)
    mig_modes: Mapping[str, bool] = field(default_factory=dict)


def find_changes(before: MachineCondition, after: MachineCondition) -> tuple[str, ...]:
    """Return the names of what differs; what was not observed on one side does not count."""
    return tuple(
        one.name
        for one in fields(MachineCondition)
        if _differs(getattr(before, one.name), getattr(after, one.name))
    )


def _differs(before: object, after: object) -> bool:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return any(before[name] != after[name] for name in before.keys() & after.keys())
    return before is not None and after is not None and before != after
