"""Ailments of what learns nothing or is kept for nothing: weights, gradients, graphs.

They hold however long a step takes. What is common in sound trainings (a head that is not used) is
an `info`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import count, make_finding, share, site_of
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.training_health import WeightGroup, WeightUse

MAX_NAMES = 3
"""Weights that a sentence names; the JSON has eight."""

LARGE_PART = Threshold(
    name="LARGE_PART",
    value=0.05,
    why="of all parameters: a head that is not used, or one bias, is less and costs nothing",
)


def find_growing_graph(measurement: Measurement) -> Finding | None:
    """No bottleneck: the graphs of early updates are still alive, and memory is seen to grow.

    Where memory was not seen often enough for a slope, the graphs alone tell.
    """
    health = measurement.health
    kept = None if health is None else health.kept_graphs
    uses = [r.host_memory if r.device == "cpu" else r.device_memory for r in measurement.ranks]
    slopes = [use.slope_bytes_per_step for use in uses if use and use.slope_bytes_per_step]
    if kept is None or not kept.are_kept or (slopes and max(one.low for one in slopes) <= 0):
        return None
    finding = make_finding(
        GROWING_GRAPH,
        severity=Severity.WARNING,
        evidence=(
            count("first_update", kept.first_marked),
            count("last_update", kept.last_marked),
            count("num_updates", kept.update),
        ),
    )
    line = next((one for one in measurement.suspicions if one.code == "kept_graph"), None)
    if line is not None:
        return replace(finding, where=line.where, where_text=line.text)
    site = site_of(measurement, "backward")
    if site is None:
        return finding
    return replace(finding, where=site.place, where_text=site.text, site=site)


def find_unused_gradients(measurement: Measurement) -> Finding | None:
    """No bottleneck: weights get gradients, but no optimizer holds them."""
    found = _of_group(measurement, UNUSED_GRADIENT, lambda use: use.unused_gradient)
    health = measurement.health
    if found is None or health is None or health.weights is None or not health.weights.replaced:
        return found
    evidence = (*found.evidence, count("num_replaced", health.weights.replaced))
    return replace(found, severity=Severity.WARNING, evidence=evidence)


def find_unregistered_weights(measurement: Measurement) -> Finding | None:
    """No bottleneck: weights get gradients, but `parameters()` of no model has them."""
    none = WeightGroup(num=0, elements=0)
    found = _of_group(measurement, UNREGISTERED, lambda use: use.unregistered or none)
    health = measurement.health
    if found is None or health is None or health.weights is None:
        return None
    holders = ", ".join(health.weights.holders[:MAX_NAMES])
    names = {**(found.names or {}), "holders": holders}
    return replace(found, severity=Severity.WARNING, names=names)


def find_zero_gradients(measurement: Measurement) -> Finding | None:
    """No bottleneck: the gradients of some weights are exactly zero."""
    return _of_group(measurement, ZERO_GRADIENT, lambda use: use.zero_gradient)


def find_no_gradients(measurement: Measurement) -> Finding | None:
    """No bottleneck: an optimizer holds weights that get no gradient."""
    return _of_group(measurement, NO_GRADIENT, lambda use: use.without_gradient)


def _of_group(
    measurement: Measurement, row: Ailment, group_of: Callable[[WeightUse], WeightGroup]
) -> Finding | None:
    health = measurement.health
    use = None if health is None else health.weights
    if use is None or not group_of(use).num or not use.elements:
        return None
    group = group_of(use)
    part = group.elements / use.elements
    finding = make_finding(
        row,
        severity=Severity.WARNING if part >= LARGE_PART.value else Severity.INFO,
        evidence=(
            share("parameters", part),
            count("num_weights", group.num),
            count("num_all", use.num),
            count("num_updates", use.update),
        ),
    )
    more = ", ..." if group.num > MAX_NAMES else ""
    return replace(finding, names={"weights": ", ".join(group.names[:MAX_NAMES]) + more})


_COUNTED = by_facts("Other programs do not change what learns.")

GROWING_GRAPH = Ailment(
    cause="growing_graph",
    what="the graph of each update is kept alive",
    needs="`health.kept_graphs`; memory over the steps, where it was seen often enough",
    rule=find_growing_graph,
    asked=Asked.ALWAYS,
    title="growing graph",
    sentence="after {num_updates} updates the graphs of updates {first_update} to {last_update} "
    "are still alive: each update's graph is kept, so that memory grows, and the backward with it "
    "if it goes through them.",
    remedy="Sum up losses with .item(), and carry states from update to update with .detach().",
    when_contended=_COUNTED,
)
UNUSED_GRADIENT = Ailment(
    cause="unused_gradient",
    what="weights get gradients that no optimizer uses",
    needs="`health.weights`",
    rule=find_unused_gradients,
    asked=Asked.ALWAYS,
    thresholds=(LARGE_PART,),
    title="unused gradients",
    sentence="{num_weights} of {num_all} weights ({parameters} of the parameters) get gradients, "
    "but no optimizer holds them, and no code writes to them: {weights}.",
    explanation="An optimizer holds {num_replaced} weights of the same shapes that no model has: "
    "it was made before they were replaced.",
    remedy="Give them to the optimizer, or set requires_grad_(False), which makes the backward "
    "shorter.",
    when_contended=_COUNTED,
)
UNREGISTERED = Ailment(
    cause="unregistered_weights",
    what="layers in a Python list get gradients, and no optimizer trains them",
    needs="`health.weights`",
    rule=find_unregistered_weights,
    asked=Asked.ALWAYS,
    title="layers outside the model",
    sentence="{num_weights} of {num_all} weights ({parameters} of the parameters) get gradients, "
    "but no optimizer trains them: {holders} is a plain Python container, whose layers torch does "
    "not register, so model.parameters() and state_dict() have none of them: {weights}.",
    remedy="Keep the layers in nn.ModuleList or nn.ModuleDict, and weights in nn.ParameterList, "
    "before the optimizer is made. If they are not to be trained, set requires_grad_(False).",
    when_contended=_COUNTED,
)
ZERO_GRADIENT = Ailment(
    cause="zero_gradient",
    what="the gradients of some weights are exactly zero",
    needs="`health.weights`",
    rule=find_zero_gradients,
    asked=Asked.ALWAYS,
    thresholds=(LARGE_PART,),
    title="zero gradients",
    sentence="{num_weights} of {num_all} weights ({parameters} of the parameters) had a gradient "
    "of exactly zero in each sample up to update {num_updates}: {weights}.",
    remedy="Look whether units behind them are dead, a factor is zero, or the loss does not depend "
    "on them.",
    when_contended=_COUNTED,
)
NO_GRADIENT = Ailment(
    cause="no_gradient",
    what="an optimizer holds weights that get no gradient",
    needs="`health.weights`",
    rule=find_no_gradients,
    asked=Asked.ALWAYS,
    thresholds=(LARGE_PART,),
    title="no gradients",
    sentence="{num_weights} of {num_all} weights ({parameters} of the parameters) had no gradient "
    "whenever their optimizer stepped, up to update {num_updates}: {weights}.",
    remedy="Look whether the loss depends on them, and whether something on the way is detached.",
    when_contended=_COUNTED,
)
AILMENTS = (GROWING_GRAPH, UNUSED_GRADIENT, UNREGISTERED, ZERO_GRADIENT, NO_GRADIENT)
