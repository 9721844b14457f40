"""Says in sentences what a probe of the layers found: which module, which samples, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.model.health import NonFinite
from steptime.measure.values.model.layer_health import (
    Bracket,
    BracketSide,
    LayerCurve,
    LayerHealth,
    ModuleName,
)

MAX_NAMED = 3
"""Weights that are named; the JSON has more."""

MAX_SAMPLES = 8

NO_SAMPLES: Mapping[str, str] = {
    "no_loader_seen": "no DataLoader gave this batch",
    "several_batches": "several batches were fetched before this one was used",
    "no_indices": "the data set has no indices (it is iterable)",
    "fetched_before": "it was fetched before the probe began",
    "out_of_order": "the loader hands batches over out of order",
}

NOT_READ: Mapping[str, str] = {
    "on_device": "on another device",
    "device_behind": "of updates in which the device was too far behind",
    "not_plain": "of subclasses, transforms or traces",
}


def describe_bracket(bracket: Bracket) -> str:
    """Say where the first bad number was, between which modules."""
    forward, backward = bracket.forward, bracket.backward
    is_gradient = backward is not None and forward is None
    text = _describe_gradient(backward) if is_gradient and backward else ""
    text = text or _describe(forward, is_late=bracket.is_late)
    weights = _describe_weights(bracket)
    return f"update {bracket.update}: {text}." + (f" {weights}." if weights else "")


def _describe(side: BracketSide | None, *, is_late: bool) -> str:
    if side is None:
        return "no module was seen"
    what = "NaN" if side.is_nan else "infinite"
    after = "" if side.after is None else f"the output of {name_of(side.after)} is finite"
    where = "" if side.file is None else f", called at {side.file}:{side.line}"
    module = name_of(side.module)
    if side.at == "loss":
        last = f" (the last: {name_of(side.after)})" if side.after is not None else ""
        return f"the output of every module is finite{last}, the loss is not: look between them"
    if side.at == "argument":
        return f"the batch itself is {what}: it was given to {module}{where}"
    if side.at == "weight":
        names = ", ".join(_own_name(side.module, name) for name in side.weights[:MAX_NAMED])
        return f"{names} is {what} when {module} is called{where.replace(', called', '')}"
    if side.at == "input":
        before = f"{after}, " if after else ""
        return f"{before}the input of {module} is {what}{where}: look between them"
    sizes = _describe_sizes(side)
    before = f"; before it, {after}" if after else ""
    rest = "its input is finite" if is_late else f"its input and weights are finite{sizes}"
    return f"the output of {module} is {what}{where}, {rest}{before}"


def _describe_sizes(side: BracketSide) -> str:
    sizes = [
        f"{what} up to {size:.2g}"
        for what, size in (("input", side.largest_input), ("weights", side.largest_weight))
        if size is not None
    ]
    return f" ({', '.join(sizes)})" if sizes else ""


def _describe_gradient(side: BracketSide) -> str:
    if side.at == "weight_gradient":
        return "the gradient of the output of every module is finite, that of a weight is not"
    what = "NaN" if side.is_nan else "infinite"
    module = name_of(side.module)
    if side.after is None:
        return f"the gradient of the output of {module} is {what}, the first that was seen"
    return (
        f"in the backward, the gradient of the output of {name_of(side.after)} is finite, that of "
        f"{module} is {what}: look between them"
    )


def name_of(module: ModuleName | None) -> str:
    """Return `queries (Linear)`, or the class of a model itself."""
    if module is None:
        return "a module"
    return f"{module.name} ({module.kind})" if module.name else module.kind


def _own_name(module: ModuleName | None, weight: str) -> str:
    return weight if module is None or not module.name else f"{module.name}.{weight}"


def _describe_weights(bracket: Bracket) -> str:
    """Say which weights or gradients are bad after the update, where that tells more."""
    for num, names, what in (
        (bracket.num_bad_gradients, bracket.bad_gradients, "gradients"),
        (bracket.num_bad_weights, bracket.bad_weights, "weights"),
    ):
        if 0 < num < bracket.num_weights:
            named = ", ".join(names[:MAX_NAMED]) + (", ..." if num > MAX_NAMED else "")
            are = "is" if num == 1 else "are"
            return f"Of {bracket.num_weights} {what}, {num} {are} bad after the update: {named}"
    return ""


def describe_samples(bracket: Bracket) -> str:
    """Say which samples of the data set the batch, or its bad rows, were made of."""
    if bracket.bad_samples is None:
        reason = bracket.samples_missing or ""
        return f"not known: {NO_SAMPLES.get(reason, reason)}"
    listed = _listed(bracket.bad_samples)
    side = bracket.forward or bracket.backward
    if not bracket.samples_are_rows or side is None or side.rows is None:
        return f"the whole batch, indices {listed} of the data set"
    rows = _listed(side.rows)
    return (
        f"{side.num_bad_rows} of {side.num_rows} in the batch (rows {rows}), indices {listed} of "
        "the data set"
    )


def _listed(numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > MAX_SAMPLES else ""
    return ", ".join(map(str, numbers[:MAX_SAMPLES])) + more


def describe_layers(layers: LayerHealth) -> str | None:
    """Say how far updates move the layers, and how many units are dead; None without samples."""
    ratios = [(c.update_ratio, c) for c in layers.curves if c.update_ratio is not None]
    if not ratios:
        return None
    ratios.sort(key=lambda pair: pair[0])
    (least, slowest), (most, fastest) = ratios[0], ratios[-1]
    middle = ratios[len(ratios) // 2][0]
    text = f"an update moves a layer by {format_percent(middle)} of its weights in the median"
    if len(ratios) > 1:
        text += f", least {format_percent(least)} ({_layer(slowest)})"
        text += f", most {format_percent(most)} ({_layer(fastest)})"
    dead = [c for c in layers.curves if c.num_units and c.num_dead]
    if dead:
        worst = max(dead, key=lambda c: (c.num_dead or 0) / (c.num_units or 1))
        text += f"; units without any gradient: {worst.num_dead} of {worst.num_units} in "
        text += _layer(worst)
        text += f", fewer in {len(dead) - 1} more layers" if len(dead) > 1 else ""
    return text


def _layer(curve: LayerCurve) -> str:
    return curve.name or curve.model


def format_norm(value: float) -> str:
    """Return a norm or a ratio with three digits: `0.0123`, `1.2e-05`."""
    return f"{value:.3g}"


def describe_probe(layers: LayerHealth, step_time_s: float | None) -> str:
    """Say how much was probed, and what it cost."""
    text = f"{layers.num_updates:,} updates from update {layers.since} on"
    text += f", {format_count(layers.tensors_per_update)} outputs and gradients in each"
    text += f"; {format_seconds(layers.s_per_update)} of an update"
    if step_time_s:
        text += f" ({format_percent(layers.s_per_update / step_time_s)} of a step)"
    not_read = [NOT_READ.get(reason, reason) for reason, num in layers.missing.items() if num]
    return text + (f". Not read: tensors {', '.join(not_read)}" if not_read else "")


def why_no_bracket(layers: LayerHealth, found: NonFinite | None) -> str | None:
    """Say why no layer is named although numbers went bad; None where there is nothing to say."""
    if found is None or layers.bracket is not None:
        return None
    if layers.since is None or layers.since > found.first_update:
        return f"the probe began with update {layers.since}, after the first bad one"
    return "no bad output or gradient of a module was seen in that update"
