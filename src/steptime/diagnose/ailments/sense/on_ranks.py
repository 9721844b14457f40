"""Ailments of data-parallel trainings: ranks that learn apart, or the same, and orders that repeat.

They are facts of the script, and none is a bottleneck; docs/explanation/diagnosis.md has the
reasons.
"""

from __future__ import annotations

from dataclasses import replace

from steptime.diagnose.ailments.sense.sense_rows import placed, sense_of, sense_row
from steptime.diagnose.ailments.signals import count, make_finding, share, site_of
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.sense_values import Drift


def find_drift(measurement: Measurement) -> Finding | None:
    """No bottleneck: the weights of data-parallel ranks differ, though DDP made them equal."""
    found = sense_of(measurement).drift
    if found is None:
        return None
    reason, remedy = _reason(found)
    begin = "before the first update"
    if found.first_update is not None:
        begin = f"from update {found.first_update} on"
    evidence = (
        share("difference", found.difference),
        count("num_updates", found.num_updates),
        count("num_local", found.num_local),
        count("num_exchanges", found.num_exchanges),
    )
    names = {
        "begin": begin,
        "ranks": f"{found.ranks[0]} and {found.ranks[1]}",
        "reason": reason,
        "remedy": remedy,
    }
    site = site_of(measurement, "backward") if found.num_local else None
    made = make_finding(DRIFT, severity=Severity.WARNING, evidence=(), site=site)
    return replace(made, evidence=evidence, names=names)


def _reason(found: Drift) -> tuple[str, str]:
    """Return why the replicas drift, as far as that is known, and what mends it."""
    if found.first_update is not None and found.num_local:
        return (
            f", because no_sync covers the last backward call before {found.num_local} of the "
            f"first {found.num_updates} updates: gradients that come after the exchange stay on "
            "their rank",
            "Leave the last backward call before each update out of no_sync",
        )
    if not found.num_exchanges:
        return (
            ", because nothing is exchanged: no call goes through DistributedDataParallel",
            "Call the model that DistributedDataParallel returns, and not the module inside",
        )
    return "", "Load weights and optimizer states on each rank, and change weights on each alike"


def find_same_inputs(measurement: Measurement) -> Finding | None:
    """No bottleneck: data-parallel ranks are given the same inputs."""
    found = sense_of(measurement).same_inputs
    if found is None:
        return None
    *most, last = map(str, found.ranks)
    evidence = (count("num_same", len(found.ranks)), count("num_calls", found.num_calls))
    return placed(SAME_INPUTS, evidence, None, {"ranks": f"{', '.join(most)} and {last}"})


def find_kept_order(measurement: Measurement) -> Finding | None:
    """No bottleneck: a distributed sampler shuffles each epoch in the same way."""
    found = sense_of(measurement).order
    if found is None:
        return None
    evidence = (count("num_epochs", found.num_epochs), count("epoch", found.epoch))
    return placed(KEPT_ORDER, evidence, None)


DRIFT = sense_row(
    "replicas_drift",
    find_drift,
    "the weights of data-parallel ranks differ",
    "{begin}, the weights of ranks {ranks} differ, at last by {difference} of what "
    "training has changed in them{reason}.",
    "{remedy}.",
    title="replicas drift (suspected)",
    needs="`sense.drift`",
)
SAME_INPUTS = sense_row(
    "same_samples_on_ranks",
    find_same_inputs,
    "data-parallel ranks train on the same samples",
    "ranks {ranks} train on the same samples: the inputs of their first "
    "{num_calls} forward calls are equal, so {num_same} ranks do the work of one.",
    "Give the loader a DistributedSampler, or each rank another seed for its order.",
    title="duplicated samples (suspected)",
    needs="`sense.same_inputs`",
)
KEPT_ORDER = sense_row(
    "same_order",
    find_kept_order,
    "a distributed sampler shuffles each epoch in the same way",
    "the order of samples is the same in each of {num_epochs} epochs: DistributedSampler stays at "
    "epoch {epoch}, because set_epoch is not called between them.",
    "Call sampler.set_epoch(epoch) before each epoch.",
    title="same order",
    needs="`sense.order`",
)
AILMENTS = (DRIFT, SAME_INPUTS, KEPT_ORDER)
