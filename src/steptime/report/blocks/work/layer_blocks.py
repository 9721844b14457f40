"""Makes the blocks on the layers, where the user asked for a probe of them.

In: a Measurement. Out: blocks; each curve is a small SVG, which needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.layer_health import LayerCurve, LayerHealth
from steptime.report.blocks.values import Block, Cell, Labeled, Markup, TableBlock
from steptime.report.html.html_tags import tag
from steptime.report.words.run.health_words import (
    describe_bracket,
    describe_layers,
    describe_probe,
    describe_samples,
    format_norm,
    why_no_bracket,
)

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
