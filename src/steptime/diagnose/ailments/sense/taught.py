"""Ailments of what an update learns from: rows without labels, batches left over, unequal means."""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.sense.sense_rows import at_phase, sense_of, sense_row
from steptime.diagnose.ailments.signals import count, share
from steptime.diagnose.values.finding import Finding
from steptime.measure.values.measurement import Measurement

MIN_ROWS_WITHOUT = Threshold(
    name="MIN_ROWS_WITHOUT",
    value=0.2,
    why="of the rows: texts that were cut before their answer are a few percent",
)
MIN_ROWS = Threshold(
    name="MIN_ROWS", value=32, why="rows that were sampled: of fewer the share is not known"
)
MIN_LEFT = Threshold(
    name="MIN_LEFT", value=0.02, why="of an epoch's batches: less is lost by drop_last, too"
)
MIN_UNEQUAL = Threshold(
    name="MIN_UNEQUAL",
    value=1.5,
    why="targets of the largest micro-batch of an update to those of its smallest: less matters "
    "little",
)


def find_rows_without_label(measurement: Measurement) -> Finding | None:
    """No bottleneck: many rows have no target that teaches anything."""
    found = sense_of(measurement).targets
    if found is None or found.rows < MIN_ROWS.value or not found.targets:
        return None
    part = found.rows_without / found.rows
    if part < MIN_ROWS_WITHOUT.value:
        return None
    evidence = (
        share("rows_without", part),
        share("useful", found.useful / found.targets),
        count("num_rows", found.rows),
        count("num_updates", found.num_updates),
        count("ignored", found.ignored),
    )
    return at_phase(NO_LABEL, evidence, measurement, "loss")


def find_left_over(measurement: Measurement) -> Finding | None:
    """No bottleneck: an epoch ends within an update, and nothing takes its last batches."""
    found = sense_of(measurement).left_over
    if found is None or found.left < MIN_LEFT.value * found.batches:
        return None
    evidence = (
        *(count("batches", found.batches), count("num_parts", found.num_parts)),
        *(count("left", found.left), share("left_share", found.left / found.batches)),
        count("num_epochs", found.num_epochs),
    )
    joined = f"the next update adds up {found.num_parts + found.left} backward passes with them"
    cleared = "their gradients are cleared before an update uses them"
    fate: dict[bool | None, str] = {True: cleared, False: joined}
    names = {"fate": fate.get(found.cleared, f"they are cleared unused, or {joined}")}
    return replace(at_phase(LEFT_OVER, evidence, measurement, "backward"), names=names)


def find_unequal_parts(measurement: Measurement) -> Finding | None:
    """No bottleneck: means over unlike numbers of targets are added as equals."""
    found = sense_of(measurement).unequal
    if found is None or found.ratio < MIN_UNEQUAL.value:
        return None
    evidence = (
        *(count("num_parts", found.num_parts), count("num_updates", found.num_updates)),
        *(count("least", found.least), count("most", found.most)),
        count("ratio", round(found.ratio, 1)),
    )
    return at_phase(UNEQUAL, evidence, measurement, "loss")


NO_LABEL = sense_row(
    "rows_without_label",
    find_rows_without_label,
    "many rows have no label at all",
    "{rows_without} of the rows have no label at all (all targets are {ignored}, which the loss "
    "ignores), and {useful} of the targets teach anything, in {num_rows} rows of {num_updates} "
    "sampled updates.",
    "Look at how labels are masked and rows cut: where a row has no answer, because its marker was "
    "not found or lies behind the cut, fail or drop the row.",
    title="rows without labels",
    needs="`sense.targets`",
    thresholds=(MIN_ROWS_WITHOUT, MIN_ROWS),
)
LEFT_OVER = sense_row(
    "left_over_batches",
    find_left_over,
    "an epoch ends within an update, and its last batches get none of their own",
    "an epoch has {batches} batches and an update takes {num_parts}, so {left} batches of each "
    "epoch ({left_share}) are left over: {fate} (seen at {num_epochs} ends of epochs).",
    "Let the last batch of an epoch make an update too, or count the batches over all epochs.",
    title="batches left over",
    needs="`sense.left_over`",
    thresholds=(MIN_LEFT,),
)
UNEQUAL = sense_row(
    "unequal_micro_batches",
    find_unequal_parts,
    "means over unlike numbers of targets are averaged as equals",
    "each update adds {num_parts} mean losses as equals, although they are means over {least} to "
    "{most} targets: in the median of {num_updates} sampled updates, a target of the smallest "
    "micro-batch has {ratio} times the weight of one of the largest.",
    "Sum the loss over targets (reduction='sum') and divide by their number in the whole update.",
    title="unequal micro-batches",
    needs="`sense.unequal`",
    thresholds=(MIN_UNEQUAL,),
)
AILMENTS = (NO_LABEL, LEFT_OVER, UNEQUAL)
