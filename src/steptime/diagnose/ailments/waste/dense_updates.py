"""The ailment of updates that change all rows of an embedding, where a batch touches a few.

In: a Measurement with the rows that had a gradient in early updates. Out: a finding, with the
optimizer's share of a step as its bound.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_same_load, without
from steptime.diagnose.ailments.scale import Threshold, severity_of
from steptime.diagnose.ailments.signals import count, fraction_of, make_finding, share, site_of
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.measurement import Measurement

MIN_ROWS_PER_TOUCHED = Threshold(
    name="MIN_ROWS_PER_TOUCHED",
    value=10,
    why="rows updated for one with a gradient: a sparse update has costs of its own for each row",
)
MIN_UPDATE = Threshold(
    name="MIN_UPDATE", value=0.15, why="of a step: with less, the owner would not change optimizers"
)
MIN_PART = Threshold(
    name="MIN_PART", value=0.5, why="of all parameters: else the update is for the other weights"
)

MAX_NAMES = 3


def find_dense_updates(measurement: Measurement) -> Finding | None:
    """COMPUTE_BOUND: an optimizer updates all rows of an embedding for the few of a batch."""
    health, update = measurement.health, fraction_of(measurement, "optimizer")
    use = None if health is None else health.weights
    if use is None or not use.elements or update is None or update < MIN_UPDATE.value:
        return None
    least = MIN_ROWS_PER_TOUCHED.value
    tables = [one for one in use.embeddings if one.rows >= least * max(1, one.touched)]
    part = sum(one.elements for one in tables) / use.elements
    if part < MIN_PART.value:
        return None
    rows, touched = sum(one.rows for one in tables), sum(one.touched for one in tables)
    fraction = update * min(1.0, part) * (1 - touched / rows)
    severity = severity_of(fraction)
    if severity is None:
        return None
    finding = make_finding(
        DENSE_UPDATES,
        severity=severity,
        evidence=(
            share("update", update),
            count("num_rows", rows),
            count("num_touched", touched),
            share("untouched", 1 - touched / rows),
            share("parameters", part),
        ),
        fraction=fraction,
        site=site_of(measurement, "optimizer"),
    )
    first, more = tables[0], ", ..." if len(tables) > MAX_NAMES else ""
    names = ", ".join(one.name for one in tables[:MAX_NAMES]) + more
    does = "moves them by momentum or decay alone" if first.moves else "leaves them as they are"
    effect = f"{first.optimizer} {does}"
    return replace(finding, names={"weights": names, "effect": effect})


DENSE_UPDATES = Ailment(
    kind=BottleneckKind.COMPUTE_BOUND,
    cause="dense_updates",
    what="an optimizer updates all rows of a large embedding, though a batch touches a few",
    needs="`health.weights.embeddings`, the optimizer's phase",
    rule=find_dense_updates,
    asked=Asked.ENOUGH_STEPS,
    thresholds=(MIN_ROWS_PER_TOUCHED, MIN_UPDATE, MIN_PART),
    sentence="the optimizer updates {num_rows} rows of {weights} for {num_touched} with a gradient "
    "in an update: {untouched} of the rows have none ({effect}). The optimizer takes "
    "{update} of a step.",
    removal=without("the update of rows that have no gradient"),
    remedy="Give the embeddings sparse=True and an optimizer of their own that takes sparse "
    "gradients: SparseAdam, Adagrad, or SGD. Adam's moments then rest where a row has no "
    "gradient, which changes the training slightly: it is your decision.",
    when_contended=by_same_load("Other programs make both the update and the whole step longer."),
)
AILMENTS = (DENSE_UPDATES,)
