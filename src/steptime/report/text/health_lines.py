"""Writes the lines of the report on the layers, where the user asked for a probe of them."""

from __future__ import annotations

from rich.text import Text

from steptime.core.printable import printable
from steptime.measure.values.measurement import Measurement
from steptime.report.text.page import Page
from steptime.report.words.health_words import (
    describe_bracket,
    describe_layers,
    describe_probe,
    describe_samples,
    why_no_bracket,
)


def health_lines(m: Measurement, page: Page) -> list[Text]:
    """Return the lines on the layers; there are none if nobody asked for a probe."""
    health = m.health
    if health is None or health.layers is None:
        return []
    layers, lines = health.layers, list[Text]()
    if layers.bracket is not None:
        lines += page.block("layer", printable(describe_bracket(layers.bracket)))
        lines += page.block("samples", describe_samples(layers.bracket))
    elif (reason := why_no_bracket(layers, health.non_finite)) is not None:
        lines += page.block("layer", f"not found: {reason}", style="yellow")
    moved = describe_layers(layers)
    if moved is not None:
        lines += page.block("layers", printable(moved))
    steady = None if m.steady is None else m.steady.step_time_s
    cost = describe_probe(layers, None if steady is None else steady.estimate)
    return lines + page.block("probed", cost)
