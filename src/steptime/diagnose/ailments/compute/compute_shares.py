"""Divides the arithmetic of a step by time: products, other operators, the optimizer.

In: a Measurement with the count of a step. Out: shares of a step. FLOPs say nothing of what has no
product: an optimizer, a dropout, a lookup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.own_share import MAX_STRETCH
from steptime.diagnose.ailments.signals import (
    COMPUTE_PHASES,
    compute_device_s,
    cpu_fraction_of,
    fraction_of,
    is_on_device,
    median_step_s,
    phase_of,
    share,
)
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.operator_time import TimedOperator, time_of
from steptime.measure.values.model.work import Count

OF_PHASES = ("gradient_processing", "optimizer")
"""Parts that are phases of their own, which no count of operators divides."""

_OF_MODEL = ("products", "elementwise", "random_numbers", "lookups")
PARTS = (*_OF_MODEL, *OF_PHASES)

_OF_CLASS: Mapping[str, str] = {
    **dict.fromkeys(("matmul", "convolution", "attention", "recurrent"), "products"),
    **dict.fromkeys(("embedding", "sparse"), "lookups"),
    "view": "view",
    "communication": "communication",
}
"""The part of each class of operators; the others work on single values. A view and communication
are no arithmetic, and so no part."""

_MODEL_PHASES = ("forward", "loss", "forward_and_loss", "backward")

_RANDOM = (
    *("bernoulli", "native_dropout", "rand", "rand_like", "randn", "randn_like", "normal"),
    *("uniform", "exponential", "randint", "randperm", "random", "rrelu_with_noise"),
)
_WORTH_NAMING = 0.01


def compute_share(measurement: Measurement) -> float | None:
    """Return the share of the compute phases in a step; on a device by its own clock only.

    Where ranks exchange gradients, the backward waits for others: then it is what operators took.
    """
    if not is_on_device(measurement):
        of_phases = math.fsum(_awake(measurement, name) for name in COMPUTE_PHASES)
        parts = parts_of_step(measurement) if len(measurement.ranks) > 1 else {}
        is_known = not parts.keys().isdisjoint(_OF_MODEL)
        return min(of_phases, math.fsum(parts.values())) if is_known else of_phases
    device_s, step_s = compute_device_s(measurement), median_step_s(measurement)
    return None if device_s is None or not step_s else device_s / step_s


def _awake(measurement: Measurement, name: str) -> float:
    """Return the share of a phase in a step, without what no core was used for: the script slept.

    Other programs stretch it `MAX_STRETCH` times at most.
    """
    fraction, phase = fraction_of(measurement, name) or 0.0, phase_of(measurement, name)
    if phase is None or phase.cpu_median_s is None or not phase.median_s:
        return fraction
    return fraction * min(1.0, MAX_STRETCH.value * phase.cpu_median_s / phase.median_s)


def parts_of_step(measurement: Measurement) -> dict[str, float]:
    """Return the share of a step of each of `PARTS`; of phases alone without a count.

    Of the model's parts all are there, or none; of the phases those that are worth naming, and the
    optimizer beside the model's parts.
    """
    of_phases = {name: _phase_share(measurement, name) for name in OF_PHASES}
    of_model = _parts_of_model(measurement)
    kept = ("optimizer",) if of_model else ()
    return of_model | {
        name: value for name, value in of_phases.items() if value >= _WORTH_NAMING or name in kept
    }


def parts_evidence(parts: Mapping[str, float]) -> tuple[Evidence, ...]:
    """Return the shares as evidence, in the order of `PARTS`."""
    return tuple(share(name, parts[name]) for name in PARTS if name in parts)


def largest_of(count: Count | None, part: str) -> TimedOperator | None:
    """Return the operator of a part that takes most of its time."""
    found = () if count is None else count.operators
    inside = [one for one in found if part_of(one) == part]
    return max(inside, key=time_of, default=None)


def part_of(one: TimedOperator) -> str:
    """Return the part that an operator belongs to."""
    name = one.name.rpartition(".")[2].strip("_").removesuffix("_backward")
    return "random_numbers" if name in _RANDOM else _OF_CLASS.get(one.kind, "elementwise")


def share_of_operators(measurement: Measurement, time_s: float, total_s: float) -> float:
    """Return the share of a step of some operators of the model; zero where that is not known.

    Args:
        measurement: of the run.
        time_s: what they took in an update whose operators were timed [s].
        total_s: what all operators of the model took in that update [s].
    """
    count = measurement.count
    if count is None or total_s <= 0:
        return 0.0
    return _operator_share(measurement, count, total_s) * time_s / total_s


def _parts_of_model(measurement: Measurement) -> dict[str, float]:
    """Return the shares of the forward and the backward; empty where operators were not timed.

    Operators divide their phases; they take no more of a step than they were timed at, for a phase
    that sleeps is no arithmetic.
    """
    count = measurement.count
    if count is None or not count.operators:
        return {}
    sums = dict.fromkeys(_OF_MODEL, 0.0)
    for one in count.classes:
        part = _OF_CLASS.get(one.name, "elementwise")
        if part in sums:
            sums[part] += time_of(one)
    for row in count.operators:  # those that draw numbers have no class of their own
        if part_of(row) == "random_numbers":
            of_class = _OF_CLASS.get(row.kind, "elementwise")
            moved_s = min(time_of(row), sums[of_class])
            sums[of_class] -= moved_s
            sums["random_numbers"] += moved_s
    total_s = math.fsum(sums.values())
    whole = _operator_share(measurement, count, total_s)
    return {name: whole * value_s / total_s for name, value_s in sums.items()} if whole else {}


def _operator_share(measurement: Measurement, count: Count, total_s: float) -> float:
    """Return the share of a step in the operators of the model; zero if they explain little.

    CPU time is compared with CPU time, and wall time with wall time: others make a phase longer;
    with several ranks, waiting does too.
    But where operators have less than a tenth of their phases, the script slept.
    """
    phases = math.fsum(_phase_share(measurement, name) for name in _MODEL_PHASES)
    step_s = median_step_s(measurement)
    if not step_s or total_s * MAX_STRETCH.value < phases * step_s:
        return 0.0
    on_cpu_clock = count.clock == "cpu" and not is_on_device(measurement)
    if not on_cpu_clock or len(measurement.ranks) > 1:
        return min(phases, total_s / step_s)
    found = (phase_of(measurement, name) for name in _MODEL_PHASES)
    core_s = math.fsum(phase.cpu_median_s or 0.0 for phase in found if phase is not None)
    return phases * min(1.0, total_s / core_s) if core_s > 0 else 0.0


def _phase_share(measurement: Measurement, name: str) -> float:
    if not is_on_device(measurement):
        fraction, of_cpu = fraction_of(measurement, name), cpu_fraction_of(measurement, name)
        # A phase that slept, or lost its core in a few steps, is no more arithmetic for it.
        of_own = name in OF_PHASES and of_cpu is not None
        return min(fraction or 0.0, of_cpu or 0.0) if of_own else fraction or 0.0
    phase, step_s = phase_of(measurement, name), median_step_s(measurement)
    device_s = None if phase is None else phase.device_median_s
    return device_s / step_s if device_s and step_s else 0.0
