"""Rules on memory: the run died for want of it, waits for it, or takes more with each step."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

from steptime.core.evidence import Evidence
from steptime.core.process_end import RunState
from steptime.diagnose.ailments.signals import (
    count,
    make_finding,
    median_step_s,
    severity_of,
    share,
    size,
)
from steptime.diagnose.ailments.thresholds import (
    FULL_FRACTION,
    FULL_WITHIN,
    MAJOR_FAULT_S,
    MIN_CERTAIN_FRACTION,
    MIN_GROWTH_BYTES,
    MIN_GROWTH_FRACTION,
    MIN_GROWTH_STEPS,
    MIN_MAJOR_FAULTS,
    MIN_SWAP_BYTES_PER_S,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement, RankSummary
from steptime.measure.values.observations import MemoryUse, ScriptError

_KILLED_CODE = 128 + signal.SIGKILL
"""What a shell or a launcher ends with when its child was killed."""


def find_out_of_memory(measurement: Measurement) -> Finding | None:
    """MEMORY_CAPACITY_BOUND: a process of the run died for want of memory."""
    error = next((error for error in measurement.errors if error.is_memory), None)
    host = measurement.host
    num_kills = (host.num_oom_kills or 0) if host else 0
    has_failed = measurement.end.state in (RunState.FAILED, RunState.KILLED)
    if error is None and not (has_failed and (num_kills or _was_killed_full(measurement))):
        return None
    use = _largest(measurement)
    num_updates = error.num_updates if error else measurement.num_optimizer_updates
    return Finding(
        kind=BottleneckKind.MEMORY_CAPACITY_BOUND,
        cause="out_of_memory",
        severity=Severity.CRITICAL,
        evidence=(
            count("updates_done", num_updates),
            *size("requested", error.requested_bytes if error else None),
            *size("resident", use.last_bytes if use else None),
            *size("memory_limit", use.limit_bytes if use else None),
            *((count("num_oom_kills", num_kills),) if num_kills else ()),
        ),
        where=error.where if error else None,
        where_text=_phase_of(error),
    )


def _phase_of(error: ScriptError | None) -> str | None:
    return None if error is None or error.phase is None else f"in {error.phase}"


def _was_killed_full(measurement: Measurement) -> bool:
    """Killed by SIGKILL, as the kernel does, when a rank held nearly all there was."""
    end, use = measurement.end, _largest(measurement)
    is_killed = end.signal == signal.SIGKILL or end.exit_code == _KILLED_CODE
    if not is_killed or use is None or use.limit_bytes is None:
        return False
    return use.last_bytes >= FULL_FRACTION * use.limit_bytes


def _largest(measurement: Measurement) -> MemoryUse | None:
    uses = [rank.host_memory for rank in measurement.ranks if rank.host_memory is not None]
    return max(uses, key=lambda use: use.last_bytes, default=None)


def find_swapping(measurement: Measurement) -> Finding | None:
    """MEMORY_CAPACITY_BOUND: memory is read back from swap while the steps run."""
    host, step_s = measurement.host, median_step_s(measurement)
    swap_in = (host.swap_in_bytes_per_s or 0.0) if host else 0.0
    uses = [rank.host_memory for rank in measurement.ranks if rank.host_memory is not None]
    faults = max((use.major_faults_per_step or 0.0 for use in uses), default=0.0)
    if not step_s or swap_in < MIN_SWAP_BYTES_PER_S or faults < MIN_MAJOR_FAULTS:
        return None
    fraction = min(faults * MAJOR_FAULT_S / step_s, 1.0)
    severity = severity_of(fraction)
    return make_finding(
        BottleneckKind.MEMORY_CAPACITY_BOUND,
        "swapping",
        severity=Severity.CRITICAL if severity is Severity.CRITICAL else Severity.WARNING,
        evidence=(
            share("swapping", fraction),
            *size("swap_in", swap_in),
            count("major_faults", faults),
        ),
        fraction=fraction,
    )


def find_leak(measurement: Measurement) -> Finding | None:
    """No bottleneck yet: resident memory grows with the steps."""
    return _find_growth(measurement, "leak", lambda rank: rank.host_memory)


def find_device_leak(measurement: Measurement) -> Finding | None:
    """No bottleneck yet: memory allocated on the device grows with the steps."""
    return _find_growth(measurement, "device_leak", lambda rank: rank.device_memory)


def _find_growth(
    measurement: Measurement, cause: str, use_of: Callable[[RankSummary], MemoryUse | None]
) -> Finding | None:
    uses = [use for use in map(use_of, measurement.ranks) if use and use.slope_bytes_per_step]
    use = max(uses, key=_slope, default=None)
    num_steps = measurement.steady.num_steps if measurement.steady else 0
    if use is None or num_steps < MIN_GROWTH_STEPS or not _is_certain(use):
        return None
    growth = _slope(use) * num_steps
    if growth < max(MIN_GROWTH_BYTES, MIN_GROWTH_FRACTION * use.first_bytes):
        return None
    steps_left = _steps_left(use)
    is_soon = steps_left < FULL_WITHIN * measurement.num_steps
    return make_finding(
        None,
        cause,
        severity=Severity.CRITICAL if is_soon else Severity.WARNING,
        evidence=(*_growth_evidence(use, growth), *_left_evidence(steps_left)),
    )


def _is_certain(use: MemoryUse) -> bool:
    slope = use.slope_bytes_per_step
    return (
        slope is not None and slope.low > 0 and slope.low >= MIN_CERTAIN_FRACTION * slope.estimate
    )


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
    """Steps until memory is full at this slope; infinite where the limit is unknown."""
    if use.limit_bytes is None:
        return math.inf
    return max(0.0, use.limit_bytes - use.last_bytes) / _slope(use)


def _left_evidence(steps_left: float) -> tuple[Evidence, ...]:
    return (count("steps_left", steps_left),) if math.isfinite(steps_left) else ()
