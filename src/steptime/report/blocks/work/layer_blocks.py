"""Makes the blocks on the layers, where the user asked for a probe of them.

In: a Measurement. Out: blocks; each curve is a small SVG, which needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.health import NonFinite
from steptime.measure.values.model.layer_health import (
    Bracket,
    BracketSide,
    LayerCurve,
    LayerHealth,
    ModuleName,
)
from steptime.report.blocks.values import Block, Cell, Labeled, Markup, TableBlock
from steptime.report.html.html_tags import tag

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


_WIDTH, _HEIGHT = 120, 22
_LEAST_RANGE = 0.5
"""Decades on the axis of a curve at least: scatter must not look like a change."""

_COLORS = {"gradient": "#7f7fd5", "weight": "#2c7fb8", "ratio": "#e69f00"}


def layer_blocks(m: Measurement) -> list[Block]:
    """Return the lines on the layers; there are none without a probe."""
    health = m.health
    if health is None or health.layers is None:
        return []
    steady = None if m.steady is None else m.steady.step_time_s
    reason = why_no_bracket(health.layers, health.non_finite)
    step_s = None if steady is None else steady.estimate
    return health_blocks(health.layers, step_s, reason=reason)


def health_blocks(
    layers: LayerHealth, step_s: float | None, *, reason: str | None = None
) -> list[Block]:
    """Return the layer of the first bad number or why none was found, how layers move, the cost."""
    lines: list[Block] = []
    if layers.bracket is not None:
        lines.append(Labeled("layer", printable(describe_bracket(layers.bracket))))
        lines.append(Labeled("samples", describe_samples(layers.bracket)))
    elif reason is not None:
        lines.append(Labeled("layer", f"not found: {reason}", style="yellow"))
    moved = describe_layers(layers)
    if moved is not None:
        lines.append(Labeled("layers", printable(moved)))
    return [*lines, Labeled("probed", describe_probe(layers, step_s))]


def layer_table(m: Measurement) -> list[Block]:
    """Return a row for each layer, with its curves over the run."""
    layers = None if m.health is None else m.health.layers
    if layers is None or not layers.curves:
        return []
    heading = [
        *("layer", "class", "parameters", "gradient norm", "", "weight norm", ""),
        *("update / weight", "", "dead units"),
    ]
    rows = [_cells(curve) for curve in layers.curves]
    note = (
        "Each curve has a logarithmic axis of its own and goes over the samples of the run. Beside "
        "it: the median of gradient norm and ratio, the last weight norm."
    )
    left_out = layers.num_curves_left_out
    more = f" Layers without a row: {format_count(left_out)}." if left_out else ""
    shown = TableBlock(heading, rows, left=2, name="Norms by layer")
    return [shown, Labeled("", note + more, style="dim")]


def _cells(curve: LayerCurve) -> list[Cell]:
    return [
        curve.name or curve.model,
        curve.kind,
        format_count(curve.num_parameters),
        "–" if curve.gradient_norm is None else format_norm(curve.gradient_norm),
        _drawing("gradient", curve.gradient_norms),
        "–" if curve.weight_norm is None else format_norm(curve.weight_norm),
        _drawing("weight", curve.weight_norms),
        "–" if curve.update_ratio is None else format_norm(curve.update_ratio),
        _drawing("ratio", curve.update_ratios),
        _dead(curve),
    ]


def _dead(curve: LayerCurve) -> str:
    if not curve.num_units or curve.num_dead is None:
        return "–"
    return f"{format_percent(curve.num_dead / curve.num_units)} of {format_count(curve.num_units)}"


def _drawing(what: str, values: Sequence[float | None]) -> Markup:
    """Draw a curve; what is missing, zero or infinite makes a gap."""
    logs = [math.log10(v) if v is not None and math.isfinite(v) and v > 0 else None for v in values]
    known = [one for one in logs if one is not None]
    if len(known) < 2:
        return Markup("–")
    middle = (max(known) + min(known)) / 2
    half = max(_LEAST_RANGE, max(known) - min(known)) / 2
    pieces: list[list[str]] = [[]]
    for place, one in enumerate(logs):
        if one is None:
            pieces.append([])
            continue
        x = place / max(1, len(logs) - 1) * _WIDTH
        y = (_HEIGHT - 2) * (1 - (one - middle + half) / (2 * half)) + 1
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    lines = [
        tag("polyline", points=" ".join(piece), fill="none", stroke=_COLORS[what], stroke_width=1.5)
        for piece in pieces
        if len(piece) > 1
    ]
    drawn = tag(
        "svg",
        *lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        width=_WIDTH,
        height=_HEIGHT,
        role="img",
        aria_label=f"{what} over the run, from 1e{min(known):.1f} to 1e{max(known):.1f}",
    )
    return Markup(drawn.text)
