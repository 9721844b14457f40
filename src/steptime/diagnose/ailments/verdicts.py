"""Ailments that close a diagnosis: nothing can be said, or nothing is wrong."""

from __future__ import annotations

import math
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import (
    Ailment,
    Asked,
    by_cpu_time,
    by_facts,
    by_nothing,
    by_same_load,
    without,
)
from steptime.diagnose.ailments.compute.compute_shares import (
    compute_share,
    parts_evidence,
    parts_of_step,
)
from steptime.diagnose.ailments.own_share import own_unattributed
from steptime.diagnose.ailments.scale import (
    CRITICAL_FRACTION,
    INFO_FRACTION,
    MIN_STEADY_STEPS,
    WARNING_FRACTION,
    Threshold,
)
from steptime.diagnose.ailments.signals import (
    at_longest_line,
    count,
    find_missing_signals,
    fraction_of,
    make_finding,
    phase_evidence,
    seconds,
    share,
    site_of,
)
from steptime.diagnose.ailments.waste.needless_work import growing_share, needless_share
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.wall_time import USEFUL

MAX_HALF_WIDTH = Threshold(
    name="MAX_HALF_WIDTH",
    value=WARNING_FRACTION.value,
    why="of the median, to one side: a change as large as the smallest warning must show",
)


MIN_AFTER_STEPS_S = Threshold(
    name="MIN_AFTER_STEPS_S",
    value=2.0,
    why="saving a model and a last evaluation take about as long",
)
MOST_OF_STEP = Threshold(
    name="MOST_OF_STEP",
    value=0.5,
    why="where nothing else stands out, cheaper arithmetic gives more than all else together",
)


def find_no_steps(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: no step was seen, or too few are left after warm-up."""
    num_steady = measurement.steady.num_steps if measurement.steady else 0
    if num_steady >= MIN_STEADY_STEPS.value:
        return None
    after = _after_steps(measurement)
    return make_finding(
        UNSEEN_UPDATES if after else TOO_FEW_STEPS if measurement.num_steps else NO_STEPS,
        severity=Severity.WARNING,
        evidence=(
            count("num_steps", measurement.num_steps),
            count("num_steady_steps", num_steady),
            count("min_steady_steps", MIN_STEADY_STEPS.value),
            *after,
        ),
    )


def _after_steps(measurement: Measurement) -> tuple[Evidence, ...]:
    """Return for how long the process went on after its last step, if that is most of its work."""
    wall = measurement.wall_time
    parts = {} if wall is None else {part.name: part.total_s for part in wall.parts}
    after_s = parts.get("after_steps", 0.0)
    stepped_s = math.fsum(parts.get(name, 0.0) for name in ("warmup", USEFUL))
    is_most = after_s >= MIN_AFTER_STEPS_S.value and after_s > stepped_s
    return (seconds("after_steps", after_s),) if is_most and measurement.num_steps else ()


def find_noise(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: step times scatter too much, in wall and in CPU time."""
    steady = measurement.steady
    times = (steady.step_time_s, steady.step_cpu_s) if steady else ()
    widths = [(q.high - q.low) / 2 / q.estimate for q in times if q is not None and q.estimate > 0]
    # Steps of several kinds widen the interval for a good reason.
    if (measurement.period or 1) > 1 or not widths or min(widths) <= MAX_HALF_WIDTH.value:
        return None
    names = ("step_time_half_width", "step_cpu_half_width")
    return make_finding(
        NOISE,
        severity=Severity.WARNING,
        evidence=[share(name, width) for name, width in zip(names, widths, strict=False)],
        missing=find_missing_signals(measurement),
    )


def find_unattributed(measurement: Measurement) -> Finding | None:
    """INCONCLUSIVE: most of what could be gained is in code that no marker explains."""
    other, prepare = fraction_of(measurement, "other"), measurement.prepare_fraction
    # Preparing a batch, a loop in it, or needless work has a name where it is a separate finding.
    loops = math.fsum(
        one.share_of_phase for one in measurement.python_loops if one.phase == "other"
    )
    needless = max(needless_share(measurement, "other"), growing_share(measurement))
    parts = (prepare or 0.0, min(1.0, loops) * (other or 0.0), needless)
    named = max((part for part in parts if part >= INFO_FRACTION.value), default=0.0)
    fraction = None if other is None else other - named
    if fraction is None or fraction < CRITICAL_FRACTION.value:
        return None
    found = make_finding(
        UNATTRIBUTED_TIME,
        severity=Severity.WARNING,
        evidence=(share("unattributed", fraction), *phase_evidence(measurement, "other")),
        fraction=fraction,
        site=site_of(measurement, "other"),
        missing=find_missing_signals(measurement),
    )
    return at_longest_line(found, measurement, ("other",))


def find_nothing(measurement: Measurement) -> Finding:
    """BALANCED: no rule fired; the finding lists what was missing."""
    compute, parts = compute_share(measurement), parts_of_step(measurement)
    is_most = compute is not None and compute >= MOST_OF_STEP.value
    evidence = (share("compute", compute or 0.0), *parts_evidence(parts)) if is_most else ()
    missing = find_missing_signals(measurement)
    return make_finding(BALANCED, severity=Severity.INFO, evidence=evidence, missing=missing)


NO_STEPS = Ailment(
    kind=BottleneckKind.INCONCLUSIVE,
    cause="no_steps",
    what="no step was seen",
    needs="",
    rule=find_no_steps,
    asked=Asked.APART,
    thresholds=(MIN_STEADY_STEPS,),
    sentence="no optimizer step was seen.",
    remedy="Make sure that the command trains until an optimizer of torch has stepped several "
    "times.",
    when_contended=by_facts("Steps are counted."),
)
TOO_FEW_STEPS = Ailment(
    kind=BottleneckKind.INCONCLUSIVE,
    cause="too_few_steps",
    what="too few steps are left after warm-up",
    needs="",
    rule=find_no_steps,
    asked=Asked.APART,
    thresholds=(MIN_STEADY_STEPS, MIN_AFTER_STEPS_S),
    sentence="too few steps are left after warm-up: {num_steady_steps} of the {min_steady_steps} "
    "that are needed.",
    remedy="Let it train for more steps.",
    when_contended=by_facts("Steps are counted."),
)
UNSEEN_UPDATES = replace(
    TOO_FEW_STEPS,
    cause="unseen_updates",
    what="too few steps were seen, and most of the work came after them",
    needs="the time after the last step",
    explanation="The process worked for {after_steps} after the last step that was seen: what a "
    "script derives and updates by hand cannot be seen.",
    remedy="Let an optimizer of torch make the updates, by its `step`.",
)
NOISE = Ailment(
    kind=BottleneckKind.INCONCLUSIVE,
    cause="noise",
    what="the step times scatter too much",
    needs="step time and its interval",
    rule=find_noise,
    asked=Asked.DOUBT,
    thresholds=(MAX_HALF_WIDTH,),
    sentence="the step times scatter so much that their median is known only to within "
    "{step_time_half_width}.",
    remedy="Let it train longer, or on a quieter machine.",
    when_contended=by_nothing("Other programs are the likeliest reason why times scatter."),
)
UNATTRIBUTED_TIME = Ailment(
    kind=BottleneckKind.INCONCLUSIVE,
    cause="unattributed_time",
    what="most of the step is in code that no marker explains",
    needs="`other`",
    rule=find_unattributed,
    asked=Asked.DOUBT,
    thresholds=(CRITICAL_FRACTION,),
    sentence="{unattributed} of a step is in Python code that no marker explains.",
    removal=without("that code"),
    remedy="Find out what the script does between forward, backward and optimizer.",
    when_contended=by_cpu_time(
        "What others may have taken of that code is taken away from it, and of all phases alike.",
        own_unattributed,
    ),
)
BALANCED = Ailment(
    kind=BottleneckKind.BALANCED,
    what="none of these",
    needs="",
    rule=find_nothing,
    asked=Asked.APART,
    thresholds=(MOST_OF_STEP,),
    sentence="no phase that was seen takes so much of a step that a remedy would pay.",
    explanation="Most of it is arithmetic, {compute}.",
    remedy="Arithmetic has {compute} of a step; make it cheaper (torch.compile, 16 bits if fast).",
    when_contended=by_same_load("All phases take longer, and their shares stay."),
)
AILMENTS = (NO_STEPS, TOO_FEW_STEPS, UNSEEN_UPDATES, NOISE, UNATTRIBUTED_TIME, BALANCED)
