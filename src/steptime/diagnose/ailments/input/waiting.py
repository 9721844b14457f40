"""Rules on data: the step waits for it, or the run waits between the steps.

Each rule takes a Measurement and gives a Finding, or None where it does not apply; the rows below
have the words. docs/explanation/diagnosis.md explains both.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import (
    Ailment,
    Asked,
    WhenContended,
    by_cpu_time,
    by_same_load,
    loop_without,
    without,
)
from steptime.diagnose.ailments.contention import is_full, missing_beside_phases
from steptime.diagnose.ailments.own_share import own_phase, own_preprocessing, own_wait
from steptime.diagnose.ailments.scale import MIN_EXPLAINED, SCALE, Threshold, severity_of
from steptime.diagnose.ailments.signals import (
    apart_fraction,
    at_longest_line,
    count,
    fraction_of,
    make_finding,
    median_step_s,
    phase_evidence,
    phase_of,
    seconds,
    share,
    site_of,
    worker_s_per_step,
)
from steptime.diagnose.ailments.waste.needless_work import explained_by_calls
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.measurement import Measurement

MIN_SPANS = Threshold(
    name="MIN_SPANS", value=2, why="one start, one evaluation or one checkpoint is no pattern"
)


_READING = {"worker_fetch": "fetch"}
"""A worker reads samples in the same method as the training process."""


def find_input_wait(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the step waits for data."""
    fraction = fraction_of(measurement, "input_wait")
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    if explained_by_calls(measurement, fraction):
        severity = Severity.INFO  # a finding of its own says what the samples are made with
    ailment = _input_ailment(measurement, fraction)
    unseen = () if ailment.cause or measurement.workers else ("fetch", "workers")
    found = make_finding(
        ailment,
        severity=severity,
        evidence=(*phase_evidence(measurement, "input_wait"), *_input_evidence(measurement)),
        fraction=fraction,
        # In the training process the parts of the wait leave no time to the wait itself.
        site=site_of(measurement, _READING.get(ailment.cause or "", ailment.cause))
        or site_of(measurement, "input_wait"),
        missing=missing_beside_phases(measurement, *unseen),
    )
    is_busy = measurement.host is not None and is_full(measurement.host)
    found = replace(found, names={"room": "cores_busy" if is_busy else "cores_free"})
    if ailment not in (FETCH, COLLATE, LOADER):
        return found  # the work is in other processes
    return at_longest_line(found, measurement, ("input_wait", "fetch", "collate"))


def _input_ailment(measurement: Measurement, fraction: float) -> Ailment:
    """Return the row for what causes the wait, in this process or in the workers."""
    fetch, collate = (fraction_of(measurement, name) for name in ("fetch", "collate"))
    if fetch is not None and collate is not None:
        if max(fetch, collate) < MIN_EXPLAINED.value * fraction:
            return LOADER
        return FETCH if fetch >= collate else COLLATE
    workers, wait = measurement.workers, phase_of(measurement, "input_wait")
    if workers is None or wait is None or wait.median_s is None:
        return INPUT_WAIT
    work_s = worker_s_per_step(measurement) or 0.0
    used_s = (median_step_s(measurement) or 0.0) * (1 - fraction)  # meanwhile they go on
    if work_s < max(MIN_EXPLAINED.value * wait.median_s, used_s * workers.num_workers):
        return INPUT_WAIT  # workers lack cores, or handing over the batch is slow
    is_fetch = workers.fetch_s_per_batch >= workers.collate_s_per_batch
    return WORKER_FETCH if is_fetch else WORKER_COLLATE


def _input_evidence(measurement: Measurement) -> tuple[Evidence, ...]:
    workers = measurement.workers
    inner = (*phase_evidence(measurement, "fetch"), *phase_evidence(measurement, "collate"))
    if inner or workers is None:
        return inner
    return (
        count("num_workers", workers.num_workers),
        seconds("worker_fetch_per_batch", workers.fetch_s_per_batch),
        seconds("worker_collate_per_batch", workers.collate_s_per_batch),
    )


def find_preprocessing(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the script works on a batch between the loader and the model."""
    fraction = measurement.prepare_fraction
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    return make_finding(
        PREPROCESSING,
        severity=severity,
        evidence=(share("preprocessing", fraction), *phase_evidence(measurement, "other")),
        fraction=fraction,
        site=site_of(measurement, "other"),
        missing=missing_beside_phases(measurement),
    )


def find_copies(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: the step waits for copies from host to device."""
    fraction = fraction_of(measurement, "h2d")
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    return make_finding(
        COPIES,
        severity=severity,
        evidence=(
            *phase_evidence(measurement, "h2d"),
            count("copies", measurement.copies_per_step or 0),
        ),
        fraction=fraction,
        site=site_of(measurement, "h2d"),
        missing=missing_beside_phases(measurement),
    )


def find_worker_startup(measurement: Measurement) -> Finding | None:
    """INPUT_BOUND: workers are started again and again, which is kept apart from the steps."""
    return _find_span(measurement, "epoch_start", WORKER_STARTUP)


def find_evaluation(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: evaluation takes much of the run."""
    return _find_span(measurement, "evaluation", EVALUATION)


def find_checkpoint(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: checkpoints take much of the run."""
    finding = _find_span(measurement, "checkpoint", CHECKPOINT)
    parts = None if measurement.wall_time is None else measurement.wall_time.checkpoints
    if finding is None or parts is None or parts.total_s <= 0:
        return finding
    times_s = {
        "gather": parts.gather_s,
        "copy": parts.copy_s,
        "serialize": parts.serialize_s,
        "write": parts.write_s,
    }
    largest = max(times_s, key=lambda name: times_s[name])
    found = share("largest_part", times_s[largest] / parts.total_s)
    if found.value < MIN_EXPLAINED.value:
        return finding
    return replace(finding, evidence=(*finding.evidence, found), names={"checkpoint_part": largest})


def _find_span(measurement: Measurement, name: str, ailment: Ailment) -> Finding | None:
    times = _between_steps(measurement)
    total_s, num = times.get(name, (0.0, 0))
    if num < MIN_SPANS.value:
        return None
    others_s = math.fsum(other_s for other, (other_s, _) in times.items() if other != name)
    fraction = apart_fraction(measurement, total_s, others_s=others_s)
    severity = severity_of(fraction)
    if fraction is None or severity is None:
        return None
    site = site_of(measurement, name)
    found = make_finding(
        ailment,
        severity=severity,
        evidence=(
            share(name, fraction),
            seconds(f"{name}_total", total_s),
            count(f"num_{name}s", num),
        ),
        fraction=fraction,
        site=site,
    )
    site_s = 0.0 if site is None else site.s_per_step or 0.0
    if site_s <= total_s + total_s / num:
        return found
    # Its calls are of the whole run: more than one of these came before or after the loop.
    kept = (one for one in found.evidence if one.name not in ("calls", "site_time"))
    return replace(found, evidence=tuple(kept))


def _between_steps(measurement: Measurement) -> dict[str, tuple[float, int]]:
    """Return total time [s] and number of what lies between the steps of a loop.

    Where the whole run is known, their number has one more after the last step, too.
    """
    found = {
        span.name: (span.total_s - span.outside_s, span.num_steps_touched)
        for span in measurement.spans
        if span.name in ("evaluation", "checkpoint", "epoch_start")
    }
    wall = () if measurement.wall_time is None else measurement.wall_time.parts
    return found | {
        one.name: (found[one.name][0], one.num)
        for one in wall
        if one.name in found and one.num is not None
    }


def _input_row(
    cause: str | None,
    *,
    what: str,
    needs: str,
    explanation: str | None = None,
    suspicion: str | None = None,
    remedy: str,
    levers: tuple[str, ...],
    when_contended: WhenContended,
) -> Ailment:
    """Return the row of a reason why a step waits for data."""
    return Ailment(
        kind=BottleneckKind.INPUT_BOUND,
        cause=cause,
        what=what,
        needs=needs,
        rule=find_input_wait,
        asked=Asked.ENOUGH_STEPS,
        thresholds=(*SCALE, MIN_EXPLAINED),
        sentence="a step waits {input_wait_mean} for data, {input_wait} of its time.",
        explanation=explanation,
        suspicion=suspicion,
        removal=without("the wait"),
        remedy=remedy,
        levers=levers,
        when_contended=when_contended,
    )


_IN_PROCESS = by_cpu_time(
    "What others may have taken of the wait and of all other phases is taken away: a read that "
    "waits for a disk keeps its time, and a decoder that lost its core does not.",
    partial(own_phase, name="input_wait"),
)
_IN_WORKERS = by_cpu_time(
    "Workers that starve make a step wait, too; so the step must still wait if each worker had "
    "its core.",
    own_wait,
)
_LOAD_IN_WORKERS = "Load the data in worker processes (DataLoader: num_workers above 0)."

FETCH = _input_row(
    "fetch",
    what="the training process itself reads and decodes the samples",
    needs="`input_wait`, `fetch`",
    explanation="The training process itself reads and decodes the samples.",
    remedy=_LOAD_IN_WORKERS,
    levers=(
        *("dataloader", "whole_batch_fetch", "decoded_cache", "prepared_data", "jpeg_decoder"),
        *("preloaded_samples", "dataset_cache", "fused_sampling", "vectorized_loops"),
    ),
    when_contended=_IN_PROCESS,
)
COLLATE = _input_row(
    "collate",
    what="the training process itself puts samples together to batches",
    needs="`input_wait`, `collate`",
    explanation="The training process itself puts the samples together to batches.",
    suspicion="{function} takes {in_function} of a step: what it does to single samples can be "
    "done once, before the training, unless it draws random numbers.",
    remedy=_LOAD_IN_WORKERS,
    levers=("whole_batch_fetch", "dataloader", "vectorized_loops"),
    when_contended=_IN_PROCESS,
)
LOADER = _input_row(
    "loader",
    what="the loader's own work in the training process takes most of the wait",
    needs="`input_wait`, `fetch`, `collate`",
    explanation="Most of that is the loader's own work in the training process: it draws indices, "
    "and starts an epoch.",
    remedy=_LOAD_IN_WORKERS,
    levers=("dataloader", "whole_batch_fetch"),
    when_contended=_IN_PROCESS,
)
WORKER_FETCH = _input_row(
    "worker_fetch",
    what="the loader's workers are too slow at reading samples",
    needs="`input_wait`, workers' sums",
    explanation="The loader's workers are too slow at reading and decoding samples.",
    remedy="{room} a sample cheaper to read.",
    levers=(
        *("dataloader", "decoded_cache", "prepared_data", "jpeg_decoder"),
        "fused_sampling",
    ),
    when_contended=_IN_WORKERS,
)
WORKER_COLLATE = _input_row(
    "worker_collate",
    what="the loader's workers are too slow at making batches",
    needs="`input_wait`, workers' sums",
    explanation="The loader's workers are too slow at putting samples together to batches.",
    remedy="{room} collate_fn cheaper.",
    levers=("dataloader", "whole_batch_fetch"),
    when_contended=_IN_WORKERS,
)
INPUT_WAIT = _input_row(
    None,
    what="the step waits for data, and nothing says why",
    needs="`input_wait`",
    remedy="Prepare the batches ahead of the step.",
    levers=("dataloader",),
    when_contended=_IN_WORKERS,
)
WORKER_STARTUP = Ailment(
    kind=BottleneckKind.INPUT_BOUND,
    cause="worker_startup",
    what="the loader starts its workers again in each epoch",
    needs="span `epoch_start` in two steps or more",
    rule=find_worker_startup,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_SPANS),
    sentence="{num_epoch_starts} starts of an epoch took {epoch_start_total}, "
    "{epoch_start} of the loop.",
    explanation="The loader starts its workers again in each epoch.",
    removal=loop_without("the starts of workers"),
    remedy="Keep the workers between epochs (DataLoader: persistent_workers=True, and one loader "
    "for all of them).",
    levers=("dataloader",),
    when_contended=by_same_load(
        "Workers start by computing, as steps do; beside a neighbor both take longer."
    ),
)
PREPROCESSING = Ailment(
    kind=BottleneckKind.INPUT_BOUND,
    cause="preprocessing",
    what="the script prepares a batch (augmentation, tokenizing) between the loader and the model",
    needs="`prepare_fraction`",
    rule=find_preprocessing,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="the script itself prepares each batch between the loader and the model, which takes "
    "{preprocessing} of a step.",
    removal=without("that work"),
    remedy="Do that work in the data set, in worker processes (DataLoader: num_workers above 0).",
    when_contended=by_cpu_time(
        "It is a part of the phase `other`, and keeps as much of its share as that phase does.",
        own_preprocessing,
    ),
)
COPIES = Ailment(
    kind=BottleneckKind.INPUT_BOUND,
    cause="copies",
    what="the step waits for copies from the host to the device",
    needs="`h2d` (a device)",
    rule=find_copies,
    asked=Asked.ENOUGH_STEPS,
    thresholds=SCALE,
    sentence="a step waits {h2d_mean} for copies from the host to the device, {h2d} of its time.",
    explanation="Copies from pinned memory with non_blocking=True run beside the arithmetic.",
    removal=without("those copies"),
    remedy="Pin the batches (DataLoader: pin_memory=True) and copy them with non_blocking=True.",
    levers=("pinned_copies", "prefetch_to_device", "dataloader"),
    when_contended=by_cpu_time(
        "What others may have taken of the copies is taken away; a copy that waits for the device "
        "spins, and keeps its share.",
        partial(own_phase, name="h2d"),
    ),
)
EVALUATION = Ailment(
    cause="evaluation",
    what="evaluation takes much of the run",
    needs="span `evaluation` in two steps or more",
    rule=find_evaluation,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_SPANS),
    title="much evaluation",
    sentence="{num_evaluations} evaluations took {evaluation_total}, {evaluation} of the loop.",
    removal=loop_without("the evaluations"),
    remedy="Evaluate less often, or on less data.",
    when_contended=by_same_load(
        "An evaluation computes, as steps do; beside a neighbor both take longer."
    ),
)
CHECKPOINT = Ailment(
    cause="checkpoint",
    what="checkpoints take much of the run",
    needs="span `checkpoint` in two steps or more",
    rule=find_checkpoint,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(*SCALE, MIN_SPANS, MIN_EXPLAINED),
    title="many checkpoints",
    sentence="{num_checkpoints} checkpoints took {checkpoint_total}, {checkpoint} of the loop.",
    explanation="Most of that is {checkpoint_part}, {largest_part} of it.",
    removal=loop_without("the checkpoints"),
    remedy="Write checkpoints less often, or beside the steps "
    "(torch.distributed.checkpoint.async_save): then the script waits for the copy alone. Where "
    "pickling takes most of it, keep tensors in the checkpoint and other objects out of it.",
    when_contended=by_same_load(
        "Checkpoints are counted; what waits for the disk is not made longer, so that the share is "
        "rather too low."
    ),
)
AILMENTS = (
    *(FETCH, COLLATE, LOADER, WORKER_FETCH, WORKER_COLLATE, INPUT_WAIT, PREPROCESSING, COPIES),
    *(WORKER_STARTUP, EVALUATION, CHECKPOINT),
)
