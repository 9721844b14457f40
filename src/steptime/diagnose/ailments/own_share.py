"""Takes from the shares of a step what other programs may have added to them.

In: a Measurement of a run beside busy neighbors. Out: the shares that are the run's own. One fact
carries all of it: who wants no core loses none. A phase that used `c` seconds of a core and took
`w` lost at most `w - c` to others, and at most `c * (stretch - 1)`, where a thread that always
wants a core takes `stretch` times as long as alone. No share becomes larger than it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from steptime.core.stats import median
from steptime.diagnose.ailments.scale import (
    CRITICAL_FRACTION,
    INFO_FRACTION,
    WARNING_FRACTION,
    Threshold,
)
from steptime.diagnose.ailments.signals import (
    COMPUTE_PHASES,
    compute_device_s,
    fraction_of,
    is_on_device,
    median_step_s,
    phase_of,
)
from steptime.diagnose.values.finding import Finding
from steptime.measure.values.measurement import PHASES, Measurement, Phase, RankSummary

MAX_STRETCH = Threshold(
    name="MAX_STRETCH",
    value=10,
    why="nine busy threads of others for each core; a fair scheduler leaves a thread that wants "
    "less than its share its core",
)


def own_fraction(measurement: Measurement, name: str) -> float | None:
    """Return a phase's share of a step without what others may have taken; None if not known."""
    measured, kept = fraction_of(measurement, name), _kept_fractions(measurement)
    total = math.fsum(kept.values())
    if measured is None or name not in kept or total <= 0:
        return None
    return min(measured, kept[name] / total)


def waiting_fractions(measurement: Measurement) -> Mapping[str, float]:
    """Return the share of a step that each phase waited, at least: it had no core and wanted none.

    What others may have taken is left out, and so is what ran on a core.
    """
    found = {}
    for name, kept in _kept(measurement, measurement).items():
        phase = phase_of(measurement, name)
        core_s = None if phase is None else _core_s(phase, measurement)
        if phase is not None and phase.median_s and core_s is not None:
            waited = max(0.0, kept - core_s / phase.median_s)
            found[name] = waited * (phase.fraction or 0.0)
    return found


def _kept_fractions(measurement: Measurement) -> Mapping[str, float]:
    """Return what others did not take of each phase, as a share of the step as it was."""
    kept = _kept(measurement, measurement)
    return {name: part * (fraction_of(measurement, name) or 0.0) for name, part in kept.items()}


def _kept(holder: Measurement | RankSummary, measurement: Measurement) -> Mapping[str, float]:
    """Return the part of each phase that others did not take; none where CPU times are missing."""
    stretch = stretch_of(holder, measurement)
    if stretch is None:
        return {}
    phases = [phase for name in PHASES if (phase := phase_of(holder, name)) is not None]
    return {phase.name: _kept_part(phase, measurement, stretch) for phase in phases}


def _kept_part(phase: Phase, measurement: Measurement, stretch: float) -> float:
    wall_s, core_s = phase.median_s or 0.0, _core_s(phase, measurement)
    if wall_s <= 0 or core_s is None:
        return 1.0  # it takes no time in a usual step, or nobody knows: it stays as it is
    return 1 - max(0.0, min(wall_s - core_s, (stretch - 1) * core_s)) / wall_s


def _core_s(phase: Phase, measurement: Measurement) -> float | None:
    """Return how long a phase takes if its threads get their cores at once [s].

    Arithmetic on the CPU shares its CPU time among the threads of torch.
    """
    if phase.cpu_median_s is None:
        return None
    is_shared = phase.name in COMPUTE_PHASES and not is_on_device(measurement)
    threads = [rank.num_threads or 1 for rank in measurement.ranks] if is_shared else []
    return phase.cpu_median_s / max(threads, default=1)


def stretch_of(holder: Measurement | RankSummary, measurement: Measurement) -> float | None:
    """Return how many times as long as alone a thread took that always wanted a core, at most.

    Waiting makes a phase longer, too, so the least of the phases is the closest bound. Small phases
    may lie between two losses of the core; they do not count. It is None where CPU times are
    missing.
    """
    large = [
        phase
        for phase in holder.phases
        if phase.name in PHASES and (phase.fraction or 0.0) >= INFO_FRACTION.value
    ]
    cores = [(phase.median_s or 0.0, _core_s(phase, measurement)) for phase in large]
    known = [(wall_s, core_s) for wall_s, core_s in cores if core_s is not None]
    found = [wall_s / core_s for wall_s, core_s in known if core_s]
    return max(1.0, min([*found, MAX_STRETCH.value])) if known else None


# -- what rows judge by; the finding is the one that the row's rule gave


def own_phase(measurement: Measurement, finding: Finding, *, name: str) -> float | None:
    """Return the own share of a phase."""
    return own_fraction(measurement, name)


def own_wait(measurement: Measurement, finding: Finding) -> float | None:
    """Return how long a step would wait for its workers if all had their cores, as a share.

    The workers need their time without what others took of it, divided among them. A step waits
    for as much of that as it does not use itself.
    """
    workers, stretch = measurement.workers, stretch_of(measurement, measurement)
    step_s, measured = median_step_s(measurement), fraction_of(measurement, "input_wait")
    if workers is None or workers.cpu_s_per_batch is None or stretch is None:
        return None
    if not step_s or measured is None or workers.num_workers < 1:
        return None
    core_s = workers.cpu_s_per_batch
    wall_s = workers.fetch_s_per_batch + workers.collate_s_per_batch
    lost_s = max(0.0, min(wall_s - core_s, (stretch - 1) * core_s))
    batches = workers.num_batches / max(1, measurement.num_steps)
    needed_s = (wall_s - lost_s) * batches / workers.num_workers
    kept = _kept_fractions(measurement)
    used_s = step_s * math.fsum(kept[name] for name in kept if name != "input_wait")
    return min(measured, 1 - used_s / needed_s) if needed_s > used_s else None


def own_preprocessing(measurement: Measurement, finding: Finding) -> float | None:
    """Return the own share of what prepares a batch: its part of the phase `other`."""
    own, other = own_fraction(measurement, "other"), fraction_of(measurement, "other")
    prepare = measurement.prepare_fraction
    return None if own is None or prepare is None or not other else prepare * own / other


def own_launches(measurement: Measurement, finding: Finding) -> float | None:
    """Return the share in which a device would be idle if the host had its core all the time."""
    device_s = compute_device_s(measurement)
    phases = [phase_of(measurement, name) for name in COMPUTE_PHASES]
    core_s = math.fsum(p.cpu_median_s or 0.0 for p in phases if p is not None)
    if device_s is None or core_s <= device_s:
        return None
    measured = next((e.value for e in finding.evidence if e.name == "launches"), 0.0)
    return min(measured, 1 - device_s / core_s)


def own_sync(measurement: Measurement, finding: Finding) -> float | None:
    """Return the own share of the waits for the device, but not more than it was idle."""
    own = own_fraction(measurement, "sync")
    idle = next((e.value for e in finding.evidence if e.name == "idle"), None)
    return own if own is None or idle is None else min(own, idle)


def own_exchange(measurement: Measurement, finding: Finding) -> float | None:
    """Return the least share of CPU time that the exchange has in a rank.

    A wait for a rank that lost its core takes no CPU time; the exchange does.
    """
    shares = [_cpu_share(rank, "communication") for rank in measurement.ranks]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


def _cpu_share(rank: RankSummary, name: str) -> float | None:
    phase = phase_of(rank, name)
    total_s = math.fsum(p.cpu_median_s or 0.0 for p in rank.phases if p.name in PHASES)
    if phase is None or phase.cpu_median_s is None or total_s <= 0:
        return None
    return phase.cpu_median_s / total_s


def own_excess(measurement: Measurement, finding: Finding) -> float | None:
    """Return how much longer the late rank is in its phase than the others, as a share of its step.

    Each rank's time is without what others may have taken of it: one of them may have lost its core
    while the others had theirs.
    """
    late = next((e.value for e in finding.evidence if e.name == "late_rank"), None)
    times_s = {rank.rank: _own_times(rank, measurement) for rank in measurement.ranks}
    own = {} if late is None else times_s.pop(int(late), {})
    phase = finding.cause or ""
    others = [one[phase] for one in times_s.values() if phase in one]
    step_s = math.fsum(own.values())
    if phase not in own or not others or step_s <= 0:
        return None
    return (own[phase] - median(others)) / step_s


def _own_times(rank: RankSummary, measurement: Measurement) -> Mapping[str, float]:
    """Return the time of each phase of a rank without what others may have taken [s]."""
    kept = _kept(rank, measurement)
    found = {name: phase_of(rank, name) for name in kept}
    return {name: kept[name] * (p.median_s or 0.0) for name, p in found.items() if p is not None}


def own_arithmetic(measurement: Measurement, finding: Finding) -> float | None:
    """Return the share of the compute phases in a step's CPU time.

    It is None where these phases used a core for so little of their time that the script must have
    slept, and where neither they nor the part of them that the finding names decide.
    """
    named = {e.name: e.value for e in finding.evidence}
    if is_on_device(measurement):
        return named.get("compute")
    phases = [p for p in measurement.phases if p.name in PHASES and p.cpu_median_s is not None]
    total_s = math.fsum(p.cpu_median_s or 0.0 for p in phases)
    compute = [p for p in phases if p.name in COMPUTE_PHASES]
    core_s = math.fsum(p.cpu_median_s or 0.0 for p in compute)
    wall_s = math.fsum(p.median_s or 0.0 for p in compute)
    if total_s <= 0 or core_s * MAX_STRETCH.value < wall_s:
        return None
    share = core_s / total_s
    of_part = named.get(finding.cause or "", 0.0) / named.get("compute", 1.0) * share
    is_enough = share > 1 - WARNING_FRACTION.value or of_part >= CRITICAL_FRACTION.value
    return share if is_enough else None


def own_unattributed(measurement: Measurement, finding: Finding) -> float | None:
    """Return the own share of code without a name if it is large enough to be a verdict."""
    own, other = own_fraction(measurement, "other"), fraction_of(measurement, "other")
    measured = next((e.value for e in finding.evidence if e.name == "unattributed"), None)
    if own is None or not other or measured is None:
        return None
    share = measured * own / other
    return share if share >= CRITICAL_FRACTION.value else None
