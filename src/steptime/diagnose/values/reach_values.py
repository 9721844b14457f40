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
    "process_wait",
    "rollout",
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
class SizeRate:
    """How fast products of one size are.

    Attributes:
        dtype: the type that is multiplied.
        flops: work of one product [FLOP].
        num_threads: threads at work on it; None on a device.
        flops_per_s: the rate [FLOP/s].
    """

    dtype: str
    flops: float
    num_threads: int | None
    flops_per_s: float


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
        memory_set_bytes: size of what one operator moves from which no cache holds it.
        sizes: how the rate of products depends on their size.
        doubts: why a roof is provisional, by its type, or `memory` or `cache`; a firm one is not in
            it. `threads` means that so many threads were not measured; for the other words see
            `CeilingState`.
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
    memory_set_bytes: int | None = None
    sizes: tuple[SizeRate, ...] = ()
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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
class Gain:
    """How much shorter a step would become if the cause of a part were removed.

    Attributes:
        low_s, high_s: between these two, on the clock of the waterfall [s]; below zero, the step
            would become longer.
        formula: how they are computed, in words that name the terms.
        terms: the numbers in the formula.
    """

    low_s: float
    high_s: float
    formula: str
    terms: tuple[Term, ...] = ()


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
        gain: what removing its cause would give; None where that is not known, or where a roof
            behind it is provisional.
    """

    name: str
    time_s: float
    formula: str
    terms: tuple[Term, ...] = ()
    classes: Mapping[str, float] = field(default_factory=dict)
    fraction: float | None = None
    gain: Gain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A class that was faster than a roof allows, so that the roof is too low.

    Attributes:
        name: the class of operators.
        roof: `compute`, `memory` or `cache`.
        ratio: the rate that it reached over the roof.
        fraction: its share of the step.
        ceiling: the ceiling that it beat: a type, `memory` or `cache`.
        is_proof: it can only be because the ceiling is too low; a convolution may need less
            arithmetic than is counted.
    """

    name: str
    roof: str
    ratio: float
    fraction: float
    ceiling: str | None = None
    is_proof: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The step in parts, which sum to it.

    Attributes:
        step_time_s: the median step of the steady window, on `clock` [s].
        clock: `wall`, or `cpu`: the CPU time of the process. All parts are on this clock.
        wall_s: the median step in wall time [s].
        waits: with `cpu`, by phase, the time in which it waited and needed no core, in wall time;
            it is not in the parts [s].
        begins_at: what `arithmetic` is computed by, `datasheet`, `given` (the user's own
            peak) or `ceiling`.
        dtype: the type in which the arithmetic would be fastest.
        parts: the parts that are not zero, and always `unexplained`.
        exceeded: classes that beat a roof, which is then too low.
        provisional: the roofs behind the parts that are provisional: types, and `memory`.
        is_conclusive: whether at most a tenth of the step is unexplained, no roof was beaten, and
            none is provisional.
        lacking: signals whose absence leaves time unexplained, as machine words.
        missing: why there are no parts at all, as a machine word.
    """

    step_time_s: float | None = None
    clock: str = "wall"
    wall_s: float | None = None
    waits: Mapping[str, float] = field(default_factory=dict)
    begins_at: str | None = None
    dtype: str | None = None
    parts: tuple[WaterfallPart, ...] = ()
    exceeded: tuple[Exceeded, ...] = ()
    provisional: tuple[str, ...] = ()
    is_conclusive: bool = False
    lacking: tuple[str, ...] = ()
    missing: str | None = None

    def time_of(self, *names: str) -> float:
        """Return the time of these parts together [s]; a missing part took no time."""
        return math.fsum(part.time_s for part in self.parts if part.name in names)

    def fraction_of(self, *names: str) -> float:
        """Return the share of the step that these parts take together."""
        return self.time_of(*names) / self.step_time_s if self.step_time_s else 0.0

    def wall_fraction_of(self, *names: str) -> float:
        """Return their share of the step's wall time; by CPU time it is at least so much."""
        whole_s = self.wall_s or self.step_time_s
        return self.time_of(*names) / whole_s if whole_s else 0.0

    def gain_of(self, name: str) -> Gain | None:
        """Return what removing the cause of a part would give; None if that is not known."""
        return next((part.gain for part in self.parts if part.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Both views of what a run reaches of its machine."""

    roofline: Roofline
    waterfall: Waterfall
