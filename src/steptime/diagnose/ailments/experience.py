"""Rules on what a training makes itself to train on, in the process that trains.

Each rule takes a Measurement and gives a Finding, or None where it does not apply; the rows below
have the words. docs/explanation/diagnosis.md explains both.
"""

from __future__ import annotations

from functools import partial

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_cpu_time, without
from steptime.diagnose.ailments.contention import missing_beside_phases
from steptime.diagnose.ailments.own_share import own_phase
from steptime.diagnose.ailments.scale import SCALE, severity_of
from steptime.diagnose.ailments.signals import fraction_of, make_finding, phase_evidence, site_of
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import Measurement


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


ROLLOUT = Ailment(
    kind=BottleneckKind.INPUT_BOUND,
    cause="rollout",
    what="the script acts in environments, or generates, between its updates",
    needs="`rollout`",
    rule=find_rollout,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    title=None,
    sentence="what the updates train on is made between them, by acting in environments or by "
    "generating, which takes {rollout} of all steps' time.",
    explanation=None,
    removal=without("the rollouts"),
    remedy="Step several environments at once, in processes of their own (a vector environment); "
    "generate for all prompts in one batch, with a cache of keys and values; act under "
    "torch.inference_mode(), and compile the model that acts.",
    levers=(),
    when_contended=by_cpu_time(
        "What others may have taken of the rollout and of all other phases is taken away: an "
        "environment that waits keeps its time.",
        partial(own_phase, name="rollout"),
    ),
)
AILMENTS = (ROLLOUT,)
