"""Makes the report of a network of bytes: five questions, then the comparison.

In: a `QuantizedModel`. Out: a Sheet.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_count, format_percent
from steptime.quantize.values.quantized_model import KeptLayer, QuantizedModel
from steptime.report.blocks.phrasing import OUTCOME_TONES, labeled
from steptime.report.blocks.values import (
    Blank,
    Block,
    Cell,
    Curve,
    Headline,
    LinePlot,
    Section,
    Sheet,
    TableBlock,
)
from steptime.report.words.verify.judged_model import describe_answer, describe_gain

_SHOWN = 8


def quantize_report(found: QuantizedModel) -> Sheet:
    """Return the report."""
    answer = printable(describe_answer(found.verdict))
    head = Headline("outcome", found.outcome.value, answer, severity=OUTCOME_TONES[found.outcome])
    told = labeled(
        ("integer", _integer(found)),
        ("size", _size(found)),
        ("cost", _cost(found)),
        ("classes", _classes(found)),
        ("speed", _speed(found)),
        ("keep", _wider(found.layers)),
        ("calibrated", _calibrated(found)),
        ("files", ", ".join(found.files) or None),
    )
    return Sheet(
        kind="network",
        title="A network of bytes",
        parts=[
            Section("", [head, *told]),
            Section("Size and metric", _curve(found)),
            Section("The layers", _layers(found)),
        ],
    )


def _integer(found: QuantizedModel) -> str:
    text = f"all {len(found.layers)} operators compute on bytes"
    if found.num_same_in_c is not None:
        text += f"; C gives the same bits as the reference on {found.num_same_in_c} inputs"
    return text


def _size(found: QuantizedModel) -> str:
    times = found.float_bytes / max(found.integer_bytes, 1)
    return (
        f"weights {format_bytes(found.float_bytes)} to {format_bytes(found.integer_bytes)}, "
        f"{times:.2f}x smaller; file {format_bytes(found.file_bytes)}; "
        f"arena {format_bytes(found.arena_bytes)} (at least {format_bytes(found.arena_bound)})"
    )


def _cost(found: QuantizedModel) -> str:
    verdict = found.verdict
    return (
        f"{verdict.metric} {verdict.reference:.4g} to {verdict.candidate:.4g} on "
        f"{format_count(verdict.num_candidate)} rows: {describe_gain(verdict.gain)}"
    )


def _classes(found: QuantizedModel) -> str | None:
    """Say which classes lose most."""
    slices = [one for column in found.verdict.columns for one in column.slices]
    worst = sorted(slices, key=lambda one: one.gain.estimate)[:3]
    lost = [f"{one.name} {one.gain.estimate:+.3g}" for one in worst if one.gain.estimate < 0]
    return f"the worst: {', '.join(lost)}" if lost else None


def _speed(found: QuantizedModel) -> str | None:
    if not found.times:
        return None
    by_name = {one.name: one for one in found.times}
    floats, whole = by_name["float"], by_name["bytes"]
    units = ", ".join(found.units) or "no instructions for bytes"
    return (
        f"{whole.median_ms:.3g} ms an input (99 % within {whole.p99_ms:.3g}), "
        f"{floats.median_ms / whole.median_ms:.2f}x the speed of floats ({floats.median_ms:.3g} "
        f"ms), by ONNX Runtime on one thread; unsigned activations; {units}"
    )


def _wider(layers: Sequence[KeptLayer]) -> str | None:
    """Name the layers that make most of the error."""
    known = sorted((one for one in layers if one.noise), key=lambda one: -(one.noise or 0.0))
    whole = sum(one.noise or 0.0 for one in known)
    if not known or not whole:
        return None
    parts = [f"`{one.name}` {format_percent((one.noise or 0.0) / whole)}" for one in known[:3]]
    return f"most of the error comes from {', '.join(parts)}: keep these wider first"


def _calibrated(found: QuantizedModel) -> str:
    return (
        f"{format_count(found.num_calibrated)} inputs, ranges by {found.observer}; "
        f"channels equalized, rounding {found.rounding}"
    )


def _curve(found: QuantizedModel) -> list[Block]:
    """List the points of the curve, and draw it."""
    if not found.curve:
        return []
    rows: list[Sequence[Cell]] = [
        (
            format_bytes(one.num_bytes),
            f"{found.float_bytes / one.num_bytes:.2f}x",
            f"{one.metric:.4g}",
            f"{len(one.in_four_bits)}",
        )
        for one in found.curve
    ]
    heading = ("weights", "smaller", found.verdict.metric, "layers of 4 bits")
    points = [(one.num_bytes / 1024, one.metric) for one in reversed(found.curve)]
    plot = LinePlot(
        "Size and metric",
        [Curve(found.verdict.metric, points, has_marks=True)],
        levels=[("floats", found.verdict.reference)],
        x_name="weights",
        x_unit="KiB",
        note="Weights of four bits are of the reference alone: C keeps a byte for each.",
    )
    return [Blank(), TableBlock(heading, rows, left=0, name="Size and metric"), plot]


def _layers(found: QuantizedModel) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (
            printable(one.name),
            one.kind,
            format_bytes(one.num_bytes) if one.num_bytes else "",
            format_count(one.macs) if one.macs else "",
            "" if one.noise is None else f"{one.noise:.2g}",
        )
        for one in found.layers
    ]
    heading = ("layer", "kind", "size", "MACs", "noise")
    return [Blank(), TableBlock(heading, rows, left=2, name="The layers", most=_SHOWN)]
