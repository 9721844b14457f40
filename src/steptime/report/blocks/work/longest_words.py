"""Says which batch of the epoch is the largest, whether it has come, and what its step will hold.

In: a Measurement. Out: a text; an empty one where all steps are alike, or nothing is to be said.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.process_end import RunState
from steptime.core.units import format_bytes
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.longest import EpochBatch, LongestBatch

UNKNOWN: Mapping[str, str] = {
    "iterable": "the data set is iterable, so what it gives next is not known",
    "no_sizes": "the data set keeps nothing that tells the sizes of its rows; a list `lengths` on "
    "it would",
    "sizes_say_nothing": "what the data set keeps does not say how large a batch becomes; a list "
    "`lengths` on it would",
}
"""Why no larger batch can be named, in words."""


def describe_longest(measurement: Measurement, *, is_dead: bool) -> str:
    """Return what is known of the largest batch of the epoch, where steps differ."""
    found = measurement.longest_batch
    if found is None:
        return ""
    if is_dead and found.last is not None and found.largest is not None:
        return _describe_death(found, found.last, found.largest)
    if found.is_to_come and found.largest is not None:
        return _describe_coming(found, found.largest)
    why = UNKNOWN.get(found.missing or "")
    uses = [use for rank in measurement.ranks for use in rank.loaders]
    has_rows = all(use.dataset == "TensorDataset" for use in uses) and uses  # all of one size
    is_over = measurement.end.state is RunState.FINISHED and found.num_handed == found.num_batches
    if why is not None and not (has_rows or is_over) and _steps_differ(measurement):
        return f"a larger batch than all so far may come: {why}"
    if found.largest is not None and found.largest.batch is None:
        return (
            f"the largest sample is {found.largest.sample} ({_size(found, found.largest)}); in "
            "which batch it comes is not known, since the sampler does not choose ahead"
        )
    return ""


def _describe_coming(found: LongestBatch, largest: EpochBatch) -> str:
    seen = "" if found.seen is None else f"; at most {found.seen.size:,} so far"
    text = (
        f"a larger batch is to come: batch {largest.batch} of the epoch's {found.num_batches:,}, "
        f"with sample {largest.sample} ({_size(found, largest)}{seen})"
    )
    if found.peak is not None:
        low, high = format_bytes(found.peak.low), format_bytes(found.peak.high)
        text += f". Its step will hold about {format_bytes(found.peak.estimate)} ({low} to {high})"
    return text


def _describe_death(found: LongestBatch, last: EpochBatch, largest: EpochBatch) -> str:
    text = f"it died in batch {last.batch} of the epoch's {found.num_batches:,}"
    if last.batch == largest.batch:
        return f"{text}, the largest of all, with sample {last.sample} ({_size(found, last)})"
    return (
        f"{text}; the largest one, batch {largest.batch} with sample {largest.sample} "
        f"({_size(found, largest)} against {last.size:,}), had not come"
        if found.is_to_come
        else text
    )


def _size(found: LongestBatch, one: EpochBatch) -> str:
    return f"{one.size:,} long by `{found.told_by}`"


def _steps_differ(measurement: Measurement) -> bool:
    peak = None if measurement.memory is None else measurement.memory.run_peak
    return peak is not None and (peak.differs or peak.how == "at_least")
