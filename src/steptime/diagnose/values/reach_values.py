"""What operators reach of what the machine can do, and where the time of a step went.

Frozen values that survive JSON. A `Roofline` has a point for each class of operators under the
roofs of the machine; a `Waterfall` cuts the measured step into parts that sum to it, each with
the numbers it was computed from. Who computes them is `diagnose`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_UNEXPLAINED = 0.10
"""Of a step: the least share that the rules report; with more a picture may hide a finding."""

PARTS = (
    "arithmetic",
    "ceiling",
    "precision",
    "threads",
    "recomputation",
    "shape",
    "bandwidth",
    "slow_operators",
    "device_operators",
    "launch",
    "loss",
    "input",
    "preprocessing",
    "copies",
    "communication",
    "sync",
    "gradient_processing",
    "optimizer",
    "script",
    "contention",
    "unexplained",
)
"""The parts of a step, from what the machine is there for to what nobody can name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """What one device of the machine reaches, as the run could use it.

    Attributes:
        device: `cpu`, or `cuda:0`.
        flops_per_s: measured ceiling of products by type, with all threads [FLOP/s].
        run_flops_per_s: the same with the threads of the run.
        bytes_per_s: of memory, with the threads of the run [bytes/s].
        cache_bytes_per_s: of the fastest cache.
        peak_flops_per_s: dense peak of the datasheet by type; empty where there is none.
        part: name of the device in its datasheet.
        num_threads: threads of the measurement of the ceilings.
        run_threads: threads of the run.
        measured_unix_s: when the ceilings were measured [s since 1970].
        is_contended: others were busy while it was measured; None where not known.
    """

    device: str
    flops_per_s: Mapping[str, float]
    run_flops_per_s: Mapping[str, float]
    bytes_per_s: float | None = None
    cache_bytes_per_s: float | None = None
    peak_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    part: str | None = None
    num_threads: int | None = None
    run_threads: int | None = None
    measured_unix_s: float | None = None
    is_contended: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One class of operators under the roofs.

    Attributes:
        name: the class of operators.
        time_s: in its operators, in one step [s]; None where that is not known.
        fraction: share of the time of all operators.
        intensity: FLOP a byte; elements count as FLOP where nothing is multiplied.
        dtype: the type that most of it is of.
        flops_per_s, bytes_per_s: what it reached.
        roof: which binds, `compute` or `memory`; None where none is known.
        roof_flops_per_s: what the lower roof allows at this intensity.
        position: what it reached of that roof, a fraction; above 1 the roof is too low, or caches
            helped.
        headroom_s: a step would be that much shorter if it reached the roof.
        missing: why there is no position, a machine word.
    """

    name: str
    time_s: float | None = None
    fraction: float | None = None
    intensity: float | None = None
    dtype: str | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    roof: str | None = None
    roof_flops_per_s: float | None = None
    position: float | None = None
    headroom_s: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The classes of operators under the roofs.

    Attributes:
        roofs: the roofs; None where no ceiling was measured.
        points: classes, those with most time first.
        missing: why there are no points, or no roofs.
    """

    roofs: Roofs | None = None
    points: tuple[RooflinePoint, ...] = ()
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A number that a part was computed from.

    Attributes:
        name: what it is, a machine word.
        value: the number, in `unit`.
        unit: `s`, `bytes`, `fraction`, `count`, `cores`, `x`, or the unit of a rate.
    """

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallPart:
    """A part of the step.

    Attributes:
        name: `arithmetic`, `ceiling`, `precision`, `threads`, `recomputation`, `shape`,
            `bandwidth`, `slow_operators`, `device_operators`, `launch`, `loss`, `input`,
            `preprocessing`, `copies`, `communication`, `sync`, `gradient_processing`,
            `optimizer`, `script`, `contention` or `unexplained`.
        time_s: time of the part [s], never negative.
        formula: how it is computed, in words that name the terms.
        terms: the numbers in it.
        classes: time by class of operators, the largest first, where it has such.
        fraction: its share of the step.
    """

    name: str
    time_s: float
    formula: str
    terms: tuple[Term, ...] = ()
    classes: Mapping[str, float] = field(default_factory=dict)
    fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A class that was faster than a roof allows, so that the roof is too low.

    Attributes:
        name: the class of operators.
        roof: `compute` or `cache`.
        ratio: what it reached over the roof.
        fraction: share of the step that it takes.
    """

    name: str
    roof: str
    ratio: float
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The step in parts, which sum to it.

    Attributes:
        step_time_s: the median step of the steady window [s].
        begins_at: `datasheet` or `ceiling`: what `arithmetic` is computed by.
        dtype: the type that the arithmetic could be done fastest in.
        parts: those that are not zero, and always `unexplained`.
        exceeded: classes that beat a roof, which is then too low.
        is_conclusive: at most a tenth of the step is unexplained, and no roof was beaten.
        lacking: signals whose absence left time unexplained, machine words.
        missing: why there are no parts at all, a machine word.
    """

    step_time_s: float | None = None
    begins_at: str | None = None
    dtype: str | None = None
    parts: tuple[WaterfallPart, ...] = ()
    exceeded: tuple[Exceeded, ...] = ()
    is_conclusive: bool = False
    lacking: tuple[str, ...] = ()
    missing: str | None = None

    def time_of(self, *names: str) -> float:
        """The time of parts together [s]; one that is not there took none."""
        return math.fsum(part.time_s for part in self.parts if part.name in names)

    def fraction_of(self, *names: str) -> float:
        """The share of the step of parts together."""
        return self.time_of(*names) / self.step_time_s if self.step_time_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Both views of what a run reaches of its machine."""

    roofline: Roofline
    waterfall: Waterfall
