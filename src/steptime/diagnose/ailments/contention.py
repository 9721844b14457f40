"""The rules on the machine: others on its cores, a quota of cores, a clock that heat holds down.

Where the kernel counts how long threads waited for a core, that decides: a busy core that the run
does not want costs it nothing.
"""

from __future__ import annotations

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts, by_nothing
from steptime.diagnose.ailments.own_share import MAX_STRETCH, stretch_of
from steptime.diagnose.ailments.scale import MIN_EXPLAINED, SCALE, Threshold, severity_of
from steptime.diagnose.ailments.signals import count, is_on_device, make_finding, share
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.machine_load import HostLoad
from steptime.measure.values.measurement import Measurement

MIN_IDLE_CORES = Threshold(
    name="MIN_IDLE_CORES",
    value=0.5,
    why="with half a core idle on average there was room for the job beside the others",
)


def find_contention(measurement: Measurement) -> Finding | None:
    """CONTENDED: other programs took cores; above info only if the job lost by it."""
    host = measurement.host
    fraction = host.others_cores / host.num_cores if host else None
    if host is None or fraction is None or severity_of(fraction) is None:
        return None
    lost = _lost(measurement, host)
    return make_finding(
        NEIGHBOR,
        severity=_severity(host, fraction, lost) or Severity.INFO,
        evidence=(
            share("others", fraction),
            Evidence(name="others_cores", value=host.others_cores, unit="cores"),
            Evidence(name="job_cores", value=host.job_cores, unit="cores"),
            count("num_cores", host.num_cores),
            count("num_samples", host.num_samples),
            *(() if lost is None else (share("lost", lost),)),
        ),
    )


def find_starved(measurement: Measurement) -> Finding | None:
    """Starved: the kernel stopped the run because its quota of cores was used up."""
    host = measurement.host
    if host is None or host.quota_cores is None or severity_of(host.stopped_fraction) is None:
        return None
    lost = _lost(measurement, host)
    return make_finding(
        STARVED,
        severity=severity_of(lost) or Severity.INFO,
        evidence=(
            share("stopped", host.stopped_fraction or 0.0),
            Evidence(name="quota_cores", value=host.quota_cores, unit="cores"),
            Evidence(name="job_cores", value=host.job_cores, unit="cores"),
            *(() if lost is None else (share("lost", lost),)),
        ),
    )


def find_throttled(measurement: Measurement) -> Finding | None:
    """Throttled: heat or the power supply held the clock of the run's device down."""
    throttled = None if measurement.host is None else measurement.host.throttled_fraction
    severity = severity_of(throttled)
    if throttled is None or severity is None:
        return None
    return make_finding(THROTTLED, severity=severity, evidence=(share("throttled", throttled),))


def _lost(measurement: Measurement, host: HostLoad) -> float | None:
    """Return the part of the time that the run lost, at most; None where it is not counted.

    Steps on the CPU that take no longer than their CPU time have lost nothing, whatever their
    process lost before and after them; steps that wait for workers lose what these lose. Where a
    core is taken away for long, but seldom, the mean step says so and not the median one.
    """
    lost = host.delayed_fraction
    stretch = stretch_of(measurement, measurement)
    is_own = measurement.workers is None and not is_on_device(measurement)
    if lost is None or stretch is None or not is_own:
        return lost
    return min(lost, 1 - 1 / max(stretch, _mean_stretch(measurement)))


def _mean_stretch(measurement: Measurement) -> float:
    """Return how many times its CPU time the mean step took; 1 where that is not known."""
    steady = measurement.steady
    if steady is None or steady.step_cpu_s is None or steady.mean_s is None:
        return 1.0
    cpu_s = steady.step_cpu_s.estimate
    return max(1.0, (steady.mean_of_all_s or steady.mean_s) / cpu_s) if cpu_s > 0 else 1.0


def _severity(host: HostLoad, fraction: float, lost: float | None) -> Severity | None:
    """Return how much others matter: by what the job lost, else by the cores that they took.

    What a job loses to its quota while cores are idle, it does not lose to others.
    """
    if (host.stopped_fraction or 0.0) >= MIN_EXPLAINED.value and not is_full(host):
        return Severity.INFO
    if lost is not None:
        return severity_of(lost)
    return severity_of(fraction) if is_full(host) else Severity.INFO


def is_full(host: HostLoad) -> bool:
    """Return whether the machine had less than half a core idle."""
    return host.num_cores - host.job_cores - host.others_cores < MIN_IDLE_CORES.value


def missing_beside_phases(measurement: Measurement, *more: str) -> tuple[str, ...]:
    """Return the missing signals that would make a finding on phases more exact."""
    return (*more, "host_load") if measurement.host is None else more


NEIGHBOR = Ailment(
    kind=BottleneckKind.CONTENDED,
    cause="neighbor",
    what="other programs took cores",
    needs="load of the machine; the kernel's count of waits for a core",
    rule=find_contention,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_IDLE_CORES, MAX_STRETCH, MIN_EXPLAINED),
    sentence="other programs kept {others_cores} of {num_cores} cores busy during the run. Trust "
    "the shares of a step more than its times.",
    explanation="A thread of the run waited for a core for {lost} of the time.",
    remedy="Train when the machine is quiet.",
    levers=("num_threads", "wait_policy"),
    when_contended=by_nothing("It is the neighbor itself."),
)
STARVED = Ailment(
    cause="starved",
    what="a quota of cores stopped the run",
    needs="the periods of the quota; the kernel's count of waits for a core",
    rule=find_starved,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    title="starved",
    sentence="a quota of {quota_cores} cores stopped the run in {stopped} of the quota's periods.",
    explanation="A thread of the run waited for a core for {lost} of the time.",
    remedy="Allow the command more cores, or compute with fewer threads.",
    levers=("num_threads",),
    when_contended=by_facts("The kernel counts the periods."),
)
THROTTLED = Ailment(
    cause="throttled",
    what="heat or the power supply held the device's clock down",
    needs="the reasons of the clock, of a GPU",
    rule=find_throttled,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    title="throttled",
    sentence="heat or the power supply held the device's clock down in {throttled} of the samples.",
    remedy="Cool the device, or mend its power supply.",
    when_contended=by_facts("The device tells it."),
)
AILMENTS = (NEIGHBOR, STARVED, THROTTLED)


def is_of_machine(finding: Finding) -> bool:
    """Return whether a finding is about the machine, so that the script cannot mend it."""
    others = (STARVED.cause, THROTTLED.cause)
    return finding.kind is NEIGHBOR.kind or (finding.kind is None and finding.cause in others)
