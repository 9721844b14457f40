"""Makes the report of a network of bytes: five questions, then the comparison.

In: a `QuantizedModel`. Out: a Sheet.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_bytes, format_count, format_percent
from steptime.quantize.values.quantized_model import KeptLayer, QuantizedModel, SizePoint
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
from steptime.verify.values import Outcome

_SHOWN = 8
_LAYER_KINDS = ("convolution", "matmul")
"""What can be kept wider."""
_FORMS = {8: "int8", 16: "int16", 32: "fp32"}


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
        ("devices", _devices(found)),
        ("keep", _wider(found)),
        ("to pass", _passing(found)),
        ("calibrated", _calibrated(found)),
        ("files", ", ".join(found.files) or None),
    )
    return Sheet(
        kind="network",
        title="A network of bytes",
        parts=[
            Section("", [head, *told]),
            Section("Other forms of layers", _curve(found)),
            Section("The layers", _layers(found)),
        ],
    )


def _integer(found: QuantizedModel) -> str:
    kept = {bits: _named(found.layers, bits) for bits in (16, 32)}
    num, num_floats = len(found.layers), sum(one.num_bits == 32 for one in found.layers)
    if kept[32]:
        text = f"{num - num_floats} of {num} operators compute on whole numbers; in floats, which"
        return f"{text} C has not, so no C is written: {kept[32]}"
    text = f"all {num} operators compute on {'whole numbers' if kept[16] else 'bytes'}"
    if kept[16]:
        text += f", with values of 16 bits in {kept[16]} (in ONNX by floats between their steps)"
    if found.num_same_in_c is not None:
        text += f"; C gives the same bits as the reference on {found.num_same_in_c} inputs"
    return text


def _named(layers: Sequence[KeptLayer], bits: int) -> str:
    """Name the layers with weights whose output has so many bits."""
    named = [one for one in layers if one.num_bits == bits and one.noise is not None]
    return ", ".join(dict.fromkeys(f"`{printable(one.name)}`" for one in named))


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


def _devices(found: QuantizedModel) -> str | None:
    """Say what an input would take on the two smallest processors that hold the network."""
    fit = [one for one in found.targets if one.fits]
    told = [f"about {one.estimated_ms:.3g} ms on a {one.name}" for one in fit[:2]]
    if len(fit) < len(found.targets):
        told.append(f"it does not fit on {len(found.targets) - len(fit)} smaller ones")
    return f"estimated from multiplications: {'; '.join(told)}" if told else None


def _wider(found: QuantizedModel) -> str | None:
    """Name the layers that make most of the error, and how to keep the first one wider."""
    known = sorted((one for one in found.layers if one.noise), key=lambda one: -(one.noise or 0.0))
    whole = sum(one.noise or 0.0 for one in known)
    if not known or not whole:
        return None
    parts = [f"`{one.name}` {format_percent((one.noise or 0.0) / whole)}" for one in known[:3]]
    text = f"most of the error comes from {', '.join(parts)}"
    layers = [one.name for one in known if one.kind in _LAYER_KINDS and one.num_bits == 8]
    if not layers:
        return text
    text += f": keep these wider first (--keep {shlex.quote(layers[0])})"
    is_open = found.outcome is not Outcome.PASS and not found.curve
    return f"{text}; --curve finds which are enough" if is_open else text


def _passing(found: QuantizedModel) -> str | None:
    """Say which layers to keep wider so that the network passes."""
    if found.outcome is Outcome.PASS or not found.curve:
        return None
    point = found.passing
    if point is None:
        return "none of the layers that were kept wider made it pass: the verdict says what would"
    names = [(name, "") for name in point.in_16_bits] + [(x, "=fp32") for x in point.in_floats]
    layers = ", ".join(f"`{printable(name)}`" for name, _ in names)
    flags = " ".join(f"--keep {shlex.quote(f'{name}{form}')}" for name, form in names)
    added = format_bytes(max(point.num_bytes - found.integer_bytes, 0))
    return f"keep {layers} wider: {flags} ({found.verdict.metric} {point.metric:.4g}, +{added})"


def _calibrated(found: QuantizedModel) -> str:
    return (
        f"{format_count(found.num_calibrated)} inputs, ranges by {found.observer}; "
        f"channels equalized, rounding {found.rounding}"
    )


def _curve(found: QuantizedModel) -> list[Block]:
    """List the points of the curve, and draw both of its axes."""
    if not found.curve:
        return []
    metric = found.verdict.metric
    rows: list[Sequence[Cell]] = [
        (
            format_bytes(one.num_bytes),
            f"{found.float_bytes / max(one.num_bytes, 1):.2f}x",
            f"{one.metric:.4g}",
            f"{one.predicted_ms:.3g} ms",
            "" if one.measured_ms is None else f"{one.measured_ms:.3g} ms",
            *(f"{len(names) or ''}" for names in (one.in_four_bits, one.in_16_bits, one.in_floats)),
        )
        for one in found.curve
    ]
    heading = ("weights", "smaller", metric, "predicted", "measured", "int4", "int16", "fp32")
    told: list[Block] = [Blank(), TableBlock(heading, rows, left=0, name="Other forms of layers")]
    if found.rank_correlation is not None:
        text = "predicted and measured times have a rank correlation of"
        told += [Blank(), *labeled(("latency", f"{text} {found.rank_correlation:.2f}"))]
    size = [one.num_bytes / 1024 for one in found.curve]
    note = "Weights of four bits are of the reference alone: C keeps a byte for each."
    told.append(_plot(found, size, "Size", "weights [KiB]", "KiB", note))
    times = [1000 * one.predicted_ms for one in found.curve]
    note = "By ONNX Runtime here, which computes layers of 16 bits in floats."
    return [*told, _plot(found, times, "Latency", "predicted time of an input [µs]", "µs", note)]


def _plot(
    found: QuantizedModel, places: Sequence[float], kind: str, name: str, unit: str, note: str
) -> Block:
    """Draw the points, whose places across are given."""
    points = sorted(
        ((place, one.metric, _forms(one)) for place, one in zip(places, found.curve, strict=True))
    )
    curve = Curve(
        found.verdict.metric,
        [(place, metric) for place, metric, _ in points],
        has_marks=True,
        has_line=False,
        tips=[told for _, _, told in points],
    )
    levels = [("floats", found.verdict.reference)]
    title = f"{kind} and metric"
    return LinePlot(title, [curve], levels=levels, x_name=name, x_unit=unit, note=note)


def _forms(one: SizePoint) -> str:
    """Say which layers have another form than bytes."""
    named = {"int4": one.in_four_bits, "int16": one.in_16_bits, "fp32": one.in_floats}
    told = [f"{form}: {printable(', '.join(names))}" for form, names in named.items() if names]
    return "; ".join(told) or "all int8"


def _layers(found: QuantizedModel) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (
            printable(one.name),
            one.kind,
            _FORMS[one.num_bits],
            format_bytes(one.num_bytes) if one.num_bytes else "",
            format_count(one.macs) if one.macs else "",
            "" if one.noise is None else f"{one.noise:.2g}",
        )
        for one in found.layers
    ]
    heading = ("layer", "kind", "output", "size", "MACs", "noise")
    return [Blank(), TableBlock(heading, rows, left=2, name="The layers", most=_SHOWN)]
