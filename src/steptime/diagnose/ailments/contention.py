"""The rule on the rest of the machine, and what makes other findings less certain."""

from __future__ import annotations

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_nothing
from steptime.diagnose.ailments.own_share import MAX_STRETCH
from steptime.diagnose.ailments.scale import SCALE, Threshold, severity_of
from steptime.diagnose.ailments.signals import count, make_finding, share
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import HostLoad, Measurement

MIN_IDLE_CORES = Threshold(
    name="MIN_IDLE_CORES",
    value=0.5,
    why="with half a core idle on average there was room for the job beside the others",
)


def find_contention(measurement: Measurement) -> Finding | None:
    """CONTENDED: other programs took cores; above info only if the job could have used them."""
    host = measurement.host
    fraction = host.others_cores / host.num_cores if host else None
    severity = severity_of(fraction)
    if host is None or fraction is None or severity is None:
        return None
    return make_finding(
        NEIGHBOR,
        severity=severity if _is_full(host) else Severity.INFO,
        evidence=(
            share("others", fraction),
            Evidence(name="others_cores", value=host.others_cores, unit="cores"),
            Evidence(name="job_cores", value=host.job_cores, unit="cores"),
            count("num_cores", host.num_cores),
            count("num_samples", host.num_samples),
        ),
    )


def _is_full(host: HostLoad) -> bool:
    return host.num_cores - host.job_cores - host.others_cores < MIN_IDLE_CORES.value


def missing_beside_phases(measurement: Measurement, *more: str) -> tuple[str, ...]:
    """Return the missing signals that would make a finding on phases more exact."""
    return (*more, "host_load") if measurement.host is None else more


NEIGHBOR = Ailment(
    kind=BottleneckKind.CONTENDED,
    cause="neighbor",
    what="other programs took cores",
    needs="load of the machine",
    rule=find_contention,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_IDLE_CORES, MAX_STRETCH),
    title=None,
    sentence="other programs kept {others_cores} of {num_cores} cores busy meanwhile.",
    explanation="Trust the shares of a step more than its times.",
    removal=None,
    remedy="Train when the machine is quiet.",
    levers=("num_threads", "wait_policy"),
    when_contended=by_nothing("It is the neighbor itself."),
)
AILMENTS = (NEIGHBOR,)
