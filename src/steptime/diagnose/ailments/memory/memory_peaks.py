"""Ailments of the peak: a larger batch to come, one length that decides, temporaries, fragments."""

from __future__ import annotations

from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import count, make_finding, share, site_of, size
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import Allocator, Anatomy
from steptime.measure.values.model.longest import EpochBatch, LongestBatch

MIN_RISE_FRACTION = Threshold(
    name="MIN_RISE_FRACTION",
    value=0.05,
    why="of the largest peak so far: by less, the next step may differ anyway",
)
MIN_LENGTH_RATIO = Threshold(
    name="MIN_LENGTH_RATIO",
    value=1.5,
    why="the largest step holds half as much again as the smallest: its length decides what fits",
)
MIN_LENGTH_BYTES = Threshold(
    name="MIN_LENGTH_BYTES",
    value=64 << 20,
    why="with less, no micro-batch and no length would be chosen differently",
)
MIN_TEMPORARY_FRACTION = Threshold(
    name="MIN_TEMPORARY_FRACTION",
    value=0.4,
    why="of the peak: new gradients and one layer's results take up to a third in usual networks",
)
MIN_TEMPORARY_BYTES = Threshold(
    name="MIN_TEMPORARY_BYTES", value=64 << 20, why="with less, nothing would be written otherwise"
)
MIN_FRAGMENT_FRACTION = Threshold(
    name="MIN_FRAGMENT_FRACTION",
    value=0.1,
    why="of what the allocator holds: rounding to its blocks explains a few per cent",
)
MIN_FRAGMENT_BYTES = Threshold(
    name="MIN_FRAGMENT_BYTES", value=256 << 20, why="a dozen of the allocator's smallest segments"
)


MIN_KEPT_BYTES = Threshold(
    name="MIN_KEPT_BYTES",
    value=256 << 20,
    why="with less, an evaluation of twice the size would fit as well",
)


def find_kept_outputs(measurement: Measurement) -> Finding | None:
    """No bottleneck: an evaluation holds what its model returned for all batches at once."""
    found = None if measurement.sense is None else measurement.sense.kept_outputs
    if found is None or found.bytes < MIN_KEPT_BYTES.value:
        return None
    finding = make_finding(
        KEPT_OUTPUTS,
        severity=Severity.WARNING,
        evidence=(
            *size("kept", found.bytes),
            count("num_outputs", found.num),
            *size("each", found.bytes / found.num),
        ),
    )
    shape = ", ".join(map(str, found.shape))
    finding = replace(finding, names={"model": found.model, "shape": f"({shape})"})
    site = site_of(measurement, "evaluation")
    return finding if site is None else replace(finding, where=site.place, where_text=site.text)


def find_longest_to_come(measurement: Measurement) -> Finding | None:
    """No bottleneck yet: the peak so far is not the worst, as a larger batch is still to come."""
    found = measurement.longest_batch
    if found is None or not found.is_to_come or found.peak is None or not found.seen_peak_bytes:
        return None
    seen = found.seen_peak_bytes
    if found.peak.estimate < seen * (1 + MIN_RISE_FRACTION.value):
        return None
    room = _room(measurement, found)
    severity = Severity.WARNING
    if room is not None and found.peak.low - seen > room:
        severity = Severity.CRITICAL
    elif room is not None and found.peak.high - seen < room:
        severity = Severity.INFO
    return make_finding(
        LONGEST_TO_COME,
        severity=severity,
        evidence=(
            *_batch_evidence(found.largest),
            *(() if found.seen is None else (count("largest_size_so_far", found.seen.size),)),
            *size("forecast", found.peak.estimate),
            *size("forecast_low", found.peak.low),
            *size("forecast_high", found.peak.high),
            *size("peak_so_far", seen),
            *size("room", room),
        ),
    )


def _batch_evidence(largest: EpochBatch | None) -> tuple[Evidence, ...]:
    if largest is None or largest.batch is None:
        return ()
    return (
        count("batch", largest.batch),
        count("sample", largest.sample),
        count("sample_size", largest.size),
    )


def _room(measurement: Measurement, found: LongestBatch) -> int | None:
    """Return the memory that is left above what the process holds, if its limit is known."""
    rank = next((one for one in measurement.ranks if one.rank == found.rank), None)
    if rank is None:
        return None
    use = rank.host_memory if rank.device == "cpu" else rank.device_memory
    if use is None:
        return None
    limit = use.limit_bytes if rank.device == "cpu" else rank.device_bytes
    return None if limit is None else max(0, limit - use.peak_bytes)


def find_peak_by_length(measurement: Measurement) -> Finding | None:
    """No bottleneck: the memory of a step goes with the length of its rows."""
    found = measurement.memory
    peak = None if found is None else found.run_peak
    if peak is None or peak.grows or not peak.differs:
        return None
    if peak.bytes < MIN_LENGTH_RATIO.value * peak.low_bytes:
        return None
    if peak.bytes - peak.low_bytes < MIN_LENGTH_BYTES.value:
        return None
    return make_finding(
        PEAK_BY_LENGTH,
        severity=Severity.INFO,
        evidence=(
            *size("largest_peak", peak.bytes),
            *size("smallest_peak", peak.low_bytes),
            count("step", peak.step),
        ),
    )


def find_large_temporaries(measurement: Measurement) -> Finding | None:
    """No bottleneck: at the peak, results that live for a moment hold most of the memory."""
    found = measurement.memory
    timeline = None if found is None else found.timeline
    if timeline is None or not timeline.peak.total:
        return None
    held = timeline.peak.by_part.get("temporaries", 0)
    fraction = held / timeline.peak.total
    if held < MIN_TEMPORARY_BYTES.value or fraction < MIN_TEMPORARY_FRACTION.value:
        return None
    finding = make_finding(
        LARGE_TEMPORARIES,
        severity=Severity.INFO,
        evidence=(
            *size("temporaries", held),
            share("temporaries_share", fraction),
            *size("step_peak", timeline.peak.total),
        ),
    )
    module = f" of {timeline.module}" if timeline.module else ""
    operator = f", in {timeline.operator}" if timeline.operator else ""
    return replace(finding, where_text=f"in the {timeline.peak.phase}{module}{operator}")


def find_fragmentation(measurement: Measurement) -> Finding | None:
    """No bottleneck: the device's allocator holds memory that it can give out in small pieces only.

    It was never seen on a device: it is tested with made-up facts.
    """
    found = measurement.memory
    allocator = None if found is None else _allocator_of(found)
    if allocator is None or allocator.reserved is None or allocator.allocated is None:
        return None
    whole = allocator.largest_free_block or 0
    pieces = allocator.reserved - allocator.allocated - whole
    least = max(MIN_FRAGMENT_BYTES.value, MIN_FRAGMENT_FRACTION.value * allocator.reserved)
    if pieces < least:
        return None
    died = measurement.memory is not None and measurement.memory.death is not None
    return make_finding(
        FRAGMENTATION,
        severity=Severity.WARNING if died else Severity.INFO,
        evidence=(
            *size("in_pieces", pieces),
            *size("reserved", allocator.reserved),
            *size("allocated", allocator.allocated),
            *size("largest_free", whole),
        ),
    )


def _allocator_of(found: Anatomy) -> Allocator | None:
    return found.death.allocator if found.death is not None else found.allocator


_BY_BYTES = "It goes by bytes, and not by time."
LONGEST_TO_COME = Ailment(
    cause="longest_to_come",
    what="a larger batch than all so far is still to come in the epoch, whose step holds more",
    needs="the order of the epoch, sizes of rows that the data set keeps, a followed step",
    rule=find_longest_to_come,
    asked=Asked.ALWAYS,
    thresholds=(MIN_RISE_FRACTION,),
    title="larger batch to come",
    sentence="the peak so far, {peak_so_far}, is not the worst. Batch {batch} of the epoch is the "
    "largest, with sample {sample} ({sample_size} long; the longest so far had "
    "{largest_size_so_far}), and its step will hold {forecast}: {forecast_low} to {forecast_high}.",
    remedy="Cap or split the longest samples, or fill batches up to a number of tokens; or choose "
    "the micro-batch for that batch.",
    when_contended=by_facts(_BY_BYTES),
)
PEAK_BY_LENGTH = Ailment(
    cause="peak_by_length",
    what="the memory of a step goes with the length of its rows: few steps decide what fits",
    needs="several followed steps of different sizes",
    rule=find_peak_by_length,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(MIN_LENGTH_RATIO, MIN_LENGTH_BYTES),
    title="memory goes with length",
    sentence="steps hold {smallest_peak} to {largest_peak}, by the size of their batch. Step "
    "{step} decides what fits.",
    remedy="Fill batches up to a number of tokens, or put rows of similar length together in small "
    "batches, and the others can be larger.",
    when_contended=by_facts(_BY_BYTES),
)
LARGE_TEMPORARIES = Ailment(
    cause="large_temporaries",
    what="at the peak of a step, results that live for a moment hold most of the memory",
    needs="a followed step",
    rule=find_large_temporaries,
    asked=Asked.ALWAYS,
    thresholds=(MIN_TEMPORARY_FRACTION, MIN_TEMPORARY_BYTES),
    title="large temporaries",
    sentence="at the peak, results that live for a moment hold {temporaries}, "
    "{temporaries_share} of {step_peak}.",
    remedy="Compute that place in chunks, in place, or by one fused operator, and the peak sinks "
    "without another batch.",
    when_contended=by_facts(_BY_BYTES),
)
FRAGMENTATION = Ailment(
    cause="fragmentation",
    what="the device's allocator holds memory that it can give out in small pieces only",
    needs="a device's allocator (untested on a device)",
    rule=find_fragmentation,
    asked=Asked.ALWAYS,
    thresholds=(MIN_FRAGMENT_FRACTION, MIN_FRAGMENT_BYTES),
    title="fragmented memory",
    sentence="of {reserved} that torch's allocator holds, {in_pieces} lie in pieces too small to "
    "join; the largest free piece has {largest_free}.",
    remedy="Set PYTORCH_ALLOC_CONF=expandable_segments:True.",
    when_contended=by_facts(_BY_BYTES),
)
KEPT_OUTPUTS = Ailment(
    cause="kept_outputs",
    what="an evaluation keeps the outputs of all its batches",
    needs="`sense.kept_outputs`",
    rule=find_kept_outputs,
    asked=Asked.ALWAYS,
    thresholds=(MIN_KEPT_BYTES,),
    title="evaluation keeps outputs",
    sentence="an evaluation keeps the outputs of its batches: {kept} are alive at once, in "
    "{num_outputs} outputs {shape} of {model} with {each} each.",
    remedy="Where a metric or an argmax per batch is enough, compute it before the next batch and "
    "let the output go (Hugging Face: preprocess_logits_for_metrics); what must be kept can go to "
    "the host (eval_accumulation_steps).",
    when_contended=by_facts(_BY_BYTES),
)
AILMENTS = (KEPT_OUTPUTS, LONGEST_TO_COME, PEAK_BY_LENGTH, LARGE_TEMPORARIES, FRAGMENTATION)
