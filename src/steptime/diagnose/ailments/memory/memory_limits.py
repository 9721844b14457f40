"""Ailments of memory: the run runs out of it, waits for it, or takes more with each step."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.core.process_end import RunState
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts, without
from steptime.diagnose.ailments.scale import SCALE, Threshold, severity_of
from steptime.diagnose.ailments.signals import (
    count,
    make_finding,
    median_step_s,
    share,
    size,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement, RankSummary
from steptime.measure.values.observations import MemoryUse, ScriptError

FULL_FRACTION = Threshold(
    name="FULL_FRACTION",
    value=0.9,
    why="a kernel that kills leaves no exception; so near the limit, too little memory is likely",
)
MIN_SWAP_BYTES_PER_S = Threshold(
    name="MIN_SWAP_BYTES_PER_S",
    value=1 << 20,
    why="below 1 MiB per second the machine tidies up, and nothing waits for it",
)
MIN_MAJOR_FAULTS = Threshold(
    name="MIN_MAJOR_FAULTS", value=1, why="less than one a step is start-up"
)
MAJOR_FAULT_S = Threshold(name="MAJOR_FAULT_S", value=1e-4, why="one read from a solid-state disk")
MIN_GROWTH_BYTES = Threshold(
    name="MIN_GROWTH_BYTES", value=16 << 20, why="one arena of the allocator, a cache that fills"
)
MIN_GROWTH_FRACTION = Threshold(
    name="MIN_GROWTH_FRACTION",
    value=0.05,
    why="of what was there at first: resident memory wobbles by some per cent",
)
MIN_GROWTH_STEPS = Threshold(
    name="MIN_GROWTH_STEPS",
    value=30,
    why="caches and the allocator's arenas fill over some tens of steps",
)
MIN_CERTAIN_FRACTION = Threshold(
    name="MIN_CERTAIN_FRACTION",
    value=0.5,
    why="a slope whose interval begins below half of it is as likely a wobble as a trend",
)
FULL_WITHIN = Threshold(
    name="FULL_WITHIN",
    value=10,
    why="times the steps seen: runs are that much longer than what was seen of them",
)

_KEPT = ("kept_graph", "kept_tensors")
"""Codes of lines that keep a result of each step: the likely place of a growth."""

_KILLED_CODE = 128 + signal.SIGKILL
"""The exit code of a shell or a launcher whose child was killed."""


def find_out_of_memory(measurement: Measurement) -> Finding | None:
    """MEMORY_CAPACITY_BOUND: a process of the run ran out of memory and died."""
    error = next((error for error in measurement.errors if error.is_memory), None)
    host = measurement.host
    num_kills = (host.num_oom_kills or 0) if host else 0
    has_failed = measurement.end.state in (RunState.FAILED, RunState.KILLED)
    if error is None and not (has_failed and (num_kills or _was_killed_full(measurement))):
        return None
    use = _largest(measurement)
    num_updates = error.num_updates if error else measurement.num_optimizer_updates
    found = make_finding(
        OUT_OF_MEMORY,
        severity=Severity.CRITICAL,
        evidence=(
            count("updates_done", num_updates),
            *size("requested", error.requested_bytes if error else None),
            *size("resident", use.last_bytes if use else None),
            *size("memory_limit", use.limit_bytes if use else None),
            *((count("num_oom_kills", num_kills),) if num_kills else ()),
        ),
    )
    where = error.where if error else None
    return replace(found, where=where, where_text=_phase_of(error))


def _phase_of(error: ScriptError | None) -> str | None:
    return None if error is None or error.phase is None else f"in {error.phase}"


def _was_killed_full(measurement: Measurement) -> bool:
    """Return whether SIGKILL, as from the kernel, ended it while a rank held nearly all memory."""
    end, use = measurement.end, _largest(measurement)
    is_killed = end.signal == signal.SIGKILL or end.exit_code == _KILLED_CODE
    if not is_killed or use is None or use.limit_bytes is None:
        return False
    return use.last_bytes >= FULL_FRACTION.value * use.limit_bytes


def _largest(measurement: Measurement) -> MemoryUse | None:
    uses = [rank.host_memory for rank in measurement.ranks if rank.host_memory is not None]
    return max(uses, key=lambda use: use.last_bytes, default=None)


def find_swapping(measurement: Measurement) -> Finding | None:
    """MEMORY_CAPACITY_BOUND: memory is read back from swap while the steps run."""
    host, step_s = measurement.host, median_step_s(measurement)
    swap_in = (host.swap_in_bytes_per_s or 0.0) if host else 0.0
    uses = [rank.host_memory for rank in measurement.ranks if rank.host_memory is not None]
    faults = max((use.major_faults_per_step or 0.0 for use in uses), default=0.0)
    if not step_s or swap_in < MIN_SWAP_BYTES_PER_S.value or faults < MIN_MAJOR_FAULTS.value:
        return None
    fraction = min(faults * MAJOR_FAULT_S.value / step_s, 1.0)
    severity = severity_of(fraction)
    return make_finding(
        SWAPPING,
        severity=Severity.CRITICAL if severity is Severity.CRITICAL else Severity.WARNING,
        evidence=(
            share("swapping", fraction),
            *size("swap_in", swap_in),
            count("major_faults", max(1, round(faults))),
        ),
        fraction=fraction,
    )


def find_leak(measurement: Measurement) -> Finding | None:
    """No bottleneck yet: resident memory grows with the steps."""
    return _find_growth(measurement, LEAK, lambda rank: rank.host_memory)


def find_device_leak(measurement: Measurement) -> Finding | None:
    """No bottleneck yet: memory allocated on the device grows with the steps."""
    return _find_growth(measurement, DEVICE_LEAK, lambda rank: rank.device_memory)


def _find_growth(
    measurement: Measurement, ailment: Ailment, use_of: Callable[[RankSummary], MemoryUse | None]
) -> Finding | None:
    uses = [use for use in map(use_of, measurement.ranks) if use and use.slope_bytes_per_step]
    use = max(uses, key=_slope, default=None)
    num_steps = measurement.steady.num_steps if measurement.steady else 0
    if use is None or num_steps < MIN_GROWTH_STEPS.value or not _is_certain(use):
        return None
    growth = _slope(use) * num_steps
    if growth < max(MIN_GROWTH_BYTES.value, MIN_GROWTH_FRACTION.value * use.first_bytes):
        return None
    steps_left = _steps_left(use)
    is_soon = steps_left < FULL_WITHIN.value * measurement.num_steps
    found = make_finding(
        ailment,
        severity=Severity.CRITICAL if is_soon else Severity.WARNING,
        evidence=(*_growth_evidence(use, growth), *_left_evidence(steps_left)),
    )
    kept = next((item for item in measurement.suspicions if item.code in _KEPT), None)
    return found if kept is None else replace(found, where=kept.where, where_text=kept.text)


def _is_certain(use: MemoryUse) -> bool:
    slope = use.slope_bytes_per_step
    if slope is None or slope.low <= 0:
        return False
    return slope.low >= MIN_CERTAIN_FRACTION.value * slope.estimate


def _slope(use: MemoryUse) -> float:
    return use.slope_bytes_per_step.estimate if use.slope_bytes_per_step else -math.inf


def _growth_evidence(use: MemoryUse, growth: float) -> tuple[Evidence, ...]:
    slope = use.slope_bytes_per_step
    return (
        *size("slope", slope.estimate if slope else None),
        *size("slope_low", slope.low if slope else None),
        *size("slope_high", slope.high if slope else None),
        *size("growth", growth),
        *size("resident", use.last_bytes),
        *size("memory_limit", use.limit_bytes),
    )


def _steps_left(use: MemoryUse) -> float:
    """Return the steps until memory is full at this slope; infinite where the limit is unknown."""
    if use.limit_bytes is None:
        return math.inf
    return max(0.0, use.limit_bytes - use.last_bytes) / _slope(use)


def _left_evidence(steps_left: float) -> tuple[Evidence, ...]:
    return (count("steps_left", steps_left),) if math.isfinite(steps_left) else ()


_OF_GROWTH = (
    *(MIN_GROWTH_BYTES, MIN_GROWTH_FRACTION, MIN_GROWTH_STEPS, MIN_CERTAIN_FRACTION, FULL_WITHIN),
)
_LOOK_AT_THE_LOOP = (
    "Find out what the loop keeps: losses with their graph (use .item() or .detach()), or lists "
    "that grow."
)
OUT_OF_MEMORY = Ailment(
    kind=BottleneckKind.MEMORY_CAPACITY_BOUND,
    cause="out_of_memory",
    what="a process of the run ran out of memory and died",
    needs="how it ended",
    rule=find_out_of_memory,
    asked=Asked.ALWAYS,
    thresholds=(FULL_FRACTION,),
    sentence="a process of the run ran out of memory and died, after {updates_done} updates.",
    remedy="Make the batch smaller, or accumulate gradients over smaller ones.",
    levers=(),  # a study begins with the unchanged command, which dies
    when_contended=by_facts("A process died of it, whoever else was there."),
)
SWAPPING = Ailment(
    kind=BottleneckKind.MEMORY_CAPACITY_BOUND,
    cause="swapping",
    what="memory is read back from swap",
    needs="swap of the machine, page faults",
    rule=find_swapping,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_SWAP_BYTES_PER_S, MIN_MAJOR_FAULTS, MAJOR_FAULT_S),
    sentence="memory is read back from swap: {major_faults} page faults per step take {swapping} "
    "of its time.",
    removal=without("the swapping"),
    remedy="Give the run less to hold, or the machine more memory.",
    levers=(
        *("activation_checkpointing", "selective_checkpointing", "micro_batches"),
        *("optimizer_in_backward", "no_foreach", "autocast", "allocator", "offload_activations"),
        *("low_memory_states", "return_freed_memory"),
    ),
    when_contended=by_facts(
        "The page faults of the run itself are counted; a step that others make longer lowers the "
        "share."
    ),
)
LEAK = Ailment(
    cause="leak",
    what="resident memory grows with the steps",
    needs="memory of a rank",
    rule=find_leak,
    asked=Asked.ENOUGH_STEPS,
    thresholds=_OF_GROWTH,
    title="memory leak",
    sentence="resident memory grows by {slope} per step (95 % interval {slope_low} to "
    "{slope_high}) and is now at {resident}. It grew by {growth} in the steps that count.",
    remedy=_LOOK_AT_THE_LOOP,
    when_contended=by_facts("It goes by bytes over steps, and not by time."),
)
DEVICE_LEAK = Ailment(
    cause="device_leak",
    what="allocated memory on the device grows with the steps",
    needs="memory of a device",
    rule=find_device_leak,
    asked=Asked.ENOUGH_STEPS,
    thresholds=_OF_GROWTH,
    title="memory leak",
    sentence="memory allocated on the device grows by {slope} per step (95 % interval {slope_low} "
    "to {slope_high}) and is now at {resident}. It grew by {growth} in the steps that count.",
    remedy=_LOOK_AT_THE_LOOP,
    when_contended=by_facts("It goes by bytes over steps, and not by time."),
)
AILMENTS = (OUT_OF_MEMORY, SWAPPING, LEAK, DEVICE_LEAK)
