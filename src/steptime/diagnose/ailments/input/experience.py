"""Rules on what a training has no loader for: it makes it itself, or other processes send it.

Each rule takes a Measurement and gives a Finding, or None where it does not apply; the rows below
have the words. docs/explanation/diagnosis.md explains both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from steptime.core.printable import printable
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_cpu_time, without
from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.own_share import own_phase
from steptime.diagnose.ailments.scale import SCALE, severity_of
from steptime.diagnose.ailments.signals import fraction_of, make_finding, phase_evidence, site_of
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import AwaitedProcess


def find_rollout(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: what the updates train on is made in between, by acting or generating."""
    fraction = fraction_of(measurement, "rollout")
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    return make_finding(
        ROLLOUT,
        severity=severity,
        evidence=phase_evidence(measurement, "rollout"),
        fraction=fraction,
        site=site_of(measurement, "rollout"),
        missing=missing_beside_phases(measurement),
    )


def find_process_wait(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the step waits for what another process sends, or for its end."""
    fraction = fraction_of(measurement, "process_wait")
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    found = make_finding(
        PROCESS_WAIT,
        severity=severity,
        evidence=phase_evidence(measurement, "process_wait"),
        fraction=fraction,
        site=site_of(measurement, "process_wait"),
        missing=missing_beside_phases(measurement),
    )
    awaited = [one for rank in measurement.ranks[:1] for one in rank.awaited]
    return replace(found, names={"process": _describe(awaited)})


def _describe(awaited: Sequence[AwaitedProcess]) -> str:
    """Say which process was waited for most, and how many more may have been."""
    if not awaited:
        return "another process"
    first = awaited[0]
    words = printable(first.command or first.address or first.name or "")
    name = f" {printable(first.name)}" if first.name and first.name not in words else ""
    if first.pid is not None:
        words = f"process {first.pid}{name}" + (f" ({words})" if words else "")
    return words + (f" or {len(awaited) - 1} more" if len(awaited) > 1 else "")


ROLLOUT = Ailment(
    kind=BottleneckKind.INPUT_BOUND,
    cause="rollout",
    what="the script acts in environments, or generates, between its updates",
    needs="`rollout`",
    rule=find_rollout,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="what the updates train on is made between them, by acting in environments or by "
    "generating, which takes {rollout} of all steps' time.",
    removal=without("the rollouts"),
    remedy="Step several environments at once, in processes of their own (a vector environment); "
    "generate for all prompts in one batch, with a cache of keys and values; act under "
    "torch.inference_mode(), and compile the model that acts.",
    when_contended=by_cpu_time(
        "What others may have taken of the rollout and of all other phases is taken away: an "
        "environment that waits keeps its time.",
        partial(own_phase, name="rollout"),
    ),
)
PROCESS_WAIT = Ailment(
    kind=BottleneckKind.INPUT_BOUND,
    cause="process_wait",
    what="the step waits for another process: a queue, a pipe, a socket, or its end",
    needs="`process_wait`",
    rule=find_process_wait,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="steps wait for {process}, which takes {process_wait} of their time.",
    removal=without("that wait"),
    remedy="Let what is awaited run ahead of the step: a longer queue, more such processes, fewer "
    "and larger messages; or do that work in the workers of a DataLoader.",
    when_contended=by_cpu_time(
        "What others may have taken of the wait and of all other phases is taken away: a wait for "
        "a process that lost its core is not told from one for a slow process.",
        partial(own_phase, name="process_wait"),
    ),
)
AILMENTS = (ROLLOUT, PROCESS_WAIT)
