"""Makes the curves of a probe's layers: norms of gradients, weights and updates, and dead units.

In: rows as the guest wrote them. Out: a `LayerCurve` for each layer, thin enough to be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from steptime.core.stats import median
from steptime.measure.values.model.layer_health import LayerCurve
from steptime.record.health_rows import LayerNormRow, LayerRow

MAX_POINTS = 48
"""More cannot be distinguished in a curve as small as a line of text."""

MAX_CURVES = 128
"""Layers with a curve; the others are counted."""


@dataclass(slots=True)
class LayerSamples:
    """The layers and their samples so far, in the order of the file."""

    layers: dict[int, LayerRow] = field(default_factory=dict)
    samples: dict[int, dict[int, LayerNormRow]] = field(default_factory=dict)

    def add_layers(self, rows: Iterable[LayerRow]) -> None:
        """Add layers; a later row of the same layer replaces an earlier one."""
        self.layers |= {row.layer: row for row in rows}

    def add_norms(self, update: int, rows: Iterable[LayerNormRow]) -> None:
        """Add the norms of one update; a line that was written twice counts once."""
        for row in rows:
            self.samples.setdefault(row.layer, {})[update] = row


def make_curves(found: LayerSamples) -> tuple[tuple[LayerCurve, ...], int]:
    """Return the curves of the first layers, and how many layers have none."""
    known = [(row, found.samples.get(index)) for index, row in sorted(found.layers.items())]
    curves = [_curve(row, samples) for row, samples in known if samples]
    return tuple(curves[:MAX_CURVES]), max(0, len(curves) - MAX_CURVES)


def _curve(layer: LayerRow, samples: dict[int, LayerNormRow]) -> LayerCurve:
    numbers = sorted(samples)
    rows = [_finite(samples[number]) for number in numbers]
    ratios = [ratio_of(row) for row in rows]
    known = [ratio for ratio in ratios if ratio is not None]
    places = thin(len(numbers))
    gradients = [row.gradient for row in rows if row.gradient is not None]
    return LayerCurve(
        name=layer.name,
        kind=layer.kind,
        model=layer.model,
        num_parameters=layer.num_elements,
        num_samples=len(rows),
        gradient_norm=median(gradients) if gradients else None,
        weight_norm=rows[-1].weight,
        update_ratio=median(known) if known else None,
        num_units=layer.num_units or None,
        num_dead=rows[-1].num_dead if layer.num_units else None,
        updates=tuple(numbers[place] for place in places),
        gradient_norms=tuple(rows[place].gradient for place in places),
        weight_norms=tuple(rows[place].weight for place in places),
        update_ratios=tuple(ratios[place] for place in places),
    )


def _finite(row: LayerNormRow) -> LayerNormRow:
    """Return a row without the numbers that are infinite or NaN: no curve can show them."""
    gradient, weight, update = (
        number if number is not None and math.isfinite(number) else None
        for number in (row.gradient, row.weight, row.update)
    )
    return row._replace(gradient=gradient, weight=weight, update=update)


def ratio_of(row: LayerNormRow) -> float | None:
    """Return the norm of an update over that of the weights before it; None for weights of zero."""
    if row.weight is None or row.update is None or not row.weight > 0:
        return None
    return row.update / row.weight


def thin(num: int, size: int = MAX_POINTS) -> Sequence[int]:
    """Return at most `size` places among `num`, evenly spaced, with the first and the last."""
    if num <= size:
        return range(num)
    return [place * (num - 1) // (size - 1) for place in range(size)]
