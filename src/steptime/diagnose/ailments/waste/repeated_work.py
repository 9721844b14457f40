"""Ailments of work whose result was there before: frozen modules, and samples made again.

In: a Measurement with what comes again bit for bit. Out: findings with the share of a step and the
size of what would keep the results. What was not seen to come again is no finding.
"""

from __future__ import annotations

import math
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_same_load, without
from steptime.diagnose.ailments.scale import MIN_EXPLAINED, SCALE, severity_of
from steptime.diagnose.ailments.signals import (
    count,
    fraction_of,
    make_finding,
    median_step_s,
    seconds,
    share,
    site_of,
    worker_fraction,
)
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.spent_line import WorkAgain


def find_frozen(measurement: Measurement) -> Finding | None:
    """COMPUTE_BOUND: a frozen module computes again what it computed in an earlier epoch."""
    steady, step_s = measurement.steady, median_step_s(measurement)
    if steady is None or not step_s:
        return None
    mean_s = steady.mean_of_all_s or steady.mean_s or step_s
    modules = [one for one in measurement.repeats if one.what != "data_set"]
    shares = [(min(1.0, one.calls_per_step * one.s_per_call / mean_s), one) for one in modules]
    fraction, work = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    severity = severity_of(fraction)
    if severity is None or work is None:
        return None
    found = make_finding(
        FROZEN if work.what == "module" else FROZEN_PART,
        severity=severity,
        evidence=(share("frozen", fraction), *_evidence(work), seconds("call", work.s_per_call)),
        fraction=fraction,
    )
    names = {"module": work.name}
    return replace(found, where=work.where, where_text=work.text, names=names)


def find_same_samples(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the samples that steps wait for are the same in each epoch."""
    waits = fraction_of(measurement, "input_wait")
    work = next((one for one in measurement.repeats if one.what == "data_set"), None)
    if work is None or waits is None or severity_of(waits) is None:
        return None
    if work.name in IN_MEMORY and _own_share(measurement) < MIN_EXPLAINED.value * waits:
        return None  # rows that are there are taken, and nothing is made
    fetch, collate = (fraction_of(measurement, name) for name in ("fetch", "collate"))
    is_own = _own_share(measurement, ("collate",)) > 0
    made = (fetch or 0.0) + (0.0 if is_own else collate or 0.0)
    if not fetch and not collate:  # workers do both, beside the step
        needed = worker_fraction(measurement)
        made = waits if needed is None else min(waits, needed)
    if is_own and (collate or 0.0) > made:
        row, part = COLLATED_AGAIN, share("collate", collate or 0.0)
    else:
        row, part = SAME_SAMPLES, share("made", made)
    if severity_of(part.value) is None:
        return None
    found = make_finding(
        row,
        severity=Severity.INFO,  # the wait itself has a finding
        evidence=(part, *_evidence(work)),
        fraction=part.value,
    )
    return replace(found, names={"data_set": work.name})


IN_MEMORY = ("TensorDataset", "Tensor", "Subset", "ndarray", "list", "tuple", "dict")
"""Data sets that hold their samples; what makes batches of them may still be the script's own."""


_MAKING = ("input_wait", "fetch", "collate")


def _own_share(measurement: Measurement, parts: tuple[str, ...] = _MAKING) -> float:
    """Return the share of a step in the script's own code that makes samples and batches."""
    loop = site_of(measurement, "input_wait")
    lines = () if measurement.spent is None else measurement.spent.lines
    return math.fsum(
        line.fraction
        for line in lines
        if line.what in parts and (loop is None or line.place != loop.place)
    )


def _evidence(work: WorkAgain) -> tuple[Evidence, ...]:
    return (
        count("num_distinct", work.num_distinct),
        count("num_rows", work.num_rows),
        Evidence(name="kept", value=float(work.kept_bytes), unit="bytes"),
    )


_SAME_LOAD = by_same_load("Other programs make both the call and the whole step longer.")

FROZEN = Ailment(
    kind=BottleneckKind.COMPUTE_BOUND,
    cause="frozen_again",
    what="a frozen module computes the outputs of the same inputs again in each epoch",
    needs="calls of modules in evaluation mode, digests of their inputs (CPU)",
    rule=find_frozen,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="{module} never trains, and its inputs come again, bit for bit: {num_distinct} "
    "different ones among {num_rows}. Its calls take {frozen} of a step.",
    removal=without("these calls, whose outputs are known after one epoch,"),
    remedy="Compute its outputs once and train on them; all of them take {kept}.",
    levers=("frozen_cache",),
    when_contended=_SAME_LOAD,
)
FROZEN_PART = replace(
    FROZEN,
    cause="frozen_part_again",
    what="a frozen part of a model that trains computes the same outputs again in each epoch",
    needs="calls of frozen parts within the forward, digests of their inputs (CPU)",
    remedy="Compute its outputs once, before the training, and let the rest of the model begin "
    "with them; all of them take {kept}.",
    levers=(),
)
SAME_SAMPLES = Ailment(
    cause="same_samples",
    what="the data set makes the same samples again in each epoch",
    needs="digests of batches, `input_wait`, `fetch`, `collate`",
    rule=find_same_samples,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    title="made again",
    sentence="the samples of {data_set} come again, bit for bit: {num_distinct} different ones "
    "among {num_rows}. Making them again takes {made} of a step.",
    removal=without("making them again"),
    remedy="Make them once and keep them; all of them take {kept}.",
    levers=("dataset_cache", "preloaded_samples"),
    when_contended=_SAME_LOAD,
)
COLLATED_AGAIN = replace(
    SAME_SAMPLES,
    cause="collated_again",
    what="collate_fn does the same work on the same samples again in each epoch",
    needs="digests of batches, `collate`, its lines",
    sentence="the samples of {data_set} come again, bit for bit: {num_distinct} different ones "
    "among {num_rows}. Work on them in collate_fn takes {collate} of a step.",
    removal=without("that work"),
    remedy="Do the work on single samples (tokenizing, decoding) once, before the batches are "
    "made; what all batches hold takes {kept}.",
    levers=(),
)
AILMENTS = (FROZEN, FROZEN_PART, SAME_SAMPLES, COLLATED_AGAIN)
