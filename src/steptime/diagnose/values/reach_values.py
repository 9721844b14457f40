"""The values that compare operators with the machine, and divide the time of a step.

They are frozen and survive JSON. A `Roofline` has a point for each class of operators under the
roofs of the machine; a `Waterfall` cuts the measured step into parts that sum to it, each with the
numbers behind it. `diagnose` computes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_UNEXPLAINED = 0.10
"""The least share of a step that the rules report; a larger unexplained share may hide one."""

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
"""The parts of a step, from the machine's purpose to what nothing explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """What one device of the machine reaches, as the run could use it.

    Attributes:
        device: `cpu`, or `cuda:0`.
        flops_per_s: measured ceiling of products by type, with all threads [FLOP/s].
        run_flops_per_s: the same ceiling with the threads of the run [FLOP/s].
        bytes_per_s: bandwidth of memory, with the threads of the run [bytes/s].
        cache_bytes_per_s: bandwidth of the fastest cache [bytes/s].
        peak_flops_per_s: dense peak of the datasheet, or the user's own, by type [FLOP/s]; empty
            where there is none.
        given_types: types whose peak the user gave (`steptime run --peak`).
        part: name of the device in its datasheet.
        num_threads: threads of the measurement of the ceilings.
        run_threads: threads of the run.
        measured_unix_s: when the ceilings were measured [s since 1970].
        is_contended: whether others were busy during that measurement; None where not known.
    """

    device: str
    flops_per_s: Mapping[str, float]
    run_flops_per_s: Mapping[str, float]
    bytes_per_s: float | None = None
    cache_bytes_per_s: float | None = None
    peak_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    given_types: tuple[str, ...] = ()
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
        time_s: time in its operators in one step [s]; None where it is not known.
        fraction: share of the time of all operators.
        intensity: FLOP per byte; elements count as FLOP where nothing is multiplied.
        dtype: the type of most of its work.
        flops_per_s, bytes_per_s: the rates that it reached.
        roof: the roof that binds, `compute` or `memory`; None where none is known.
        roof_flops_per_s: rate that the lower roof allows at this intensity [FLOP/s].
        position: the rate that it reached, as a fraction of that roof; above 1, the roof is too
            low, or caches helped.
        headroom_s: how much shorter a step would be if the class reached the roof [s].
        missing: why there is no position, as a machine word.
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
        points: the classes, with the most time first.
        missing: why there are no points, or no roofs.
    """

    roofs: Roofs | None = None
    points: tuple[RooflinePoint, ...] = ()
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A number from which a part is computed.

    Attributes:
        name: what the number is, as a machine word.
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
        terms: the numbers in the formula.
        classes: time by class of operators, the largest first, if it has any.
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
        ratio: the rate that it reached over the roof.
        fraction: its share of the step.
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
        begins_at: what `arithmetic` is computed by, `datasheet`, `given` (the user's own
            peak) or `ceiling`.
        dtype: the type in which the arithmetic would be fastest.
        parts: the parts that are not zero, and always `unexplained`.
        exceeded: classes that beat a roof, which is then too low.
        is_conclusive: whether at most a tenth of the step is unexplained, and no roof was beaten.
        lacking: signals whose absence leaves time unexplained, as machine words.
        missing: why there are no parts at all, as a machine word.
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
        """Return the time of these parts together [s]; a missing part took no time."""
        return math.fsum(part.time_s for part in self.parts if part.name in names)

    def fraction_of(self, *names: str) -> float:
        """Return the share of the step that these parts take together."""
        return self.time_of(*names) / self.step_time_s if self.step_time_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Both views of what a run reaches of its machine."""

    roofline: Roofline
    waterfall: Waterfall
