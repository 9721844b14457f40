"""The time of a step's operators, by their name, by module, and by the line that calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class HasTimes(Protocol):
    """Something that was timed on the host, and on the device where there is one."""

    @property
    def time_s(self) -> float | None:
        """Time on the host [s]."""

    @property
    def device_time_s(self) -> float | None:
        """Time on the device [s]."""


def time_of(one: HasTimes) -> float:
    """Return the time on the device where it is known, else on the host; else zero [s]."""
    return (one.time_s if one.device_time_s is None else one.device_time_s) or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOperator:
    """All calls of one operator in the forward and the backward of a step.

    Attributes:
        name: name of the operator, such as `aten.addmm`.
        kind: its class, as in `ClassCount`.
        module: path of the module in which most of it ran; empty outside of modules.
        module_kind: the class of that module.
        num: how many ran.
        time_s: their time on the host [s]; None where they did not really run.
        device_time_s: time of their work on the device [s]; None where there is none.
    """

    name: str
    kind: str
    module: str = ""
    module_kind: str = ""
    num: int = 0
    time_s: float | None = None
    device_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModule:
    """Operators that ran in modules of one class, without the modules that these call.

    Attributes:
        name: path of the module of this class that has most of it; empty outside of modules.
        kind: the class of the modules; empty outside of modules.
        num: how many operators ran, those of the backward included.
        time_s: their time on the host [s]; None where they did not really run.
        device_time_s: time of their work on the device [s]; None where there is none.
    """

    name: str
    kind: str
    num: int = 0
    time_s: float | None = None
    device_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlace:
    """A line of the script from which long operators of one forward were called.

    Attributes:
        name: name of the operator, such as `aten.bernoulli_`.
        file: the file, relative to the command's folder where it lies below that folder.
        line: the line.
        num: how many took 50 µs or more there.
        time_s: their time [s].
        module: path of the module in which they ran; empty outside of modules.
    """

    name: str
    file: str
    line: int
    num: int
    time_s: float
    module: str = ""
