"""The curve of size, latency and metric, with the layers of a network in different forms.

From the network of bytes three walks go: to wider layers (16 bits or floats), to floats alone, and
to weights of four bits; where the last one ends, one more begins, to floats again. Each next
layer is the one whose form takes most noise away for each byte that it adds, or adds least for each
byte that it saves. Weights of four bits are of the reference alone, for C keeps a byte for each.
Latencies are those of ONNX Runtime here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, prod
from typing import Any

from steptime.app.quantize.evaluation import Evaluation
from steptime.app.quantize.latency import measure_latencies, predict_latencies
from steptime.app.quantize.mixed_network import Mix
from steptime.quantize.layer_noise import layer_noise
from steptime.quantize.scheme import FLOAT, WIDE
from steptime.quantize.values.quantized_model import SizePoint
from steptime.verify.values import Outcome

_MOST_POINTS = 6
"""Of each walk."""
_SAME_LATENCY = 0.02
"""Times that differ by less than this share do not make a point better."""
_FEWEST_RANKED = 3
_FORMS = ((WIDE, FLOAT), (FLOAT,), (4,))
_Noise = dict[int, dict[str, float]]


def mix_curve(
    start: Mix, few: Any, rows: Evaluation, *, needs_pass: bool
) -> tuple[tuple[SizePoint, ...], SizePoint | None, float | None]:
    """Return the points that no other one beats in size, latency and metric, the largest first.

    Beside them, the smallest point without weights of four bits that passes, and Spearman's rank
    correlation of predicted and measured latencies.

    Args:
        start: the network of bytes, with the layers that are kept wider.
        few: inputs from which the noise of each layer is taken (num_inputs, ...).
        rows: on which points are judged.
        needs_pass: whether a point that passes is looked for.
    """
    mixes = _walks(start, _noises(start, few))
    made = [rows.predictions(one.integer) for one in mixes]
    predicted = predict_latencies(start, mixes, rows.x)
    timed = [i for i, one in enumerate(mixes) if {4, WIDE}.isdisjoint(one.bits.values())]
    times = measure_latencies([mixes[i] for i in timed], rows.x)
    measured = dict(zip(timed, times, strict=True))
    points = [
        _point(one, float(rows.scores(made[i]).mean()), predicted[i], measured.get(i))
        for i, one in enumerate(mixes)
    ]
    passing = None
    if needs_pass:
        order = sorted(range(1, len(points)), key=lambda i: points[i].num_bytes)
        wider = (i for i in order if not points[i].in_four_bits)
        is_good = (i for i in wider if rows.judge(made[i]).outcome is Outcome.PASS)
        passing = next((points[i] for i in is_good), None)
    kept = [one for one in points if not any(_beats(other, one, rows) for other in points)]
    kept.sort(key=lambda one: (-one.num_bytes, one.metric))
    return tuple(kept), passing, _rank_correlation(points)


def _noises(start: Mix, few: Any) -> _Noise:
    """Return the noise of each layer in each form, by its bits and output."""
    outputs = [one.output for one in start.layers]
    return {
        bits: layer_noise(start.network, start.ranges, few, bits=min(bits, 8),
                          kept=dict.fromkeys(outputs, bits) if bits > 8 else {})
        for bits in (4, 8, WIDE, FLOAT)
    }  # fmt: skip


# -- walks


def _walks(start: Mix, noise: _Noise) -> list[Mix]:
    """Return the mixes of all walks, the start first, each once."""
    sizes = {bits: _sizes(start, bits) for bits in noise}
    walks = [[start], *(list(_walk(start, noise, sizes, forms)) for forms in _FORMS)]
    walks.append(list(_walk(walks[-1][-1], noise, sizes, (FLOAT,))) if walks[-1] else [])
    found = dict[tuple[tuple[str, int], ...], Mix]()
    for walk in walks:
        wanted = {round((i + 1) * len(walk) / _MOST_POINTS) for i in range(_MOST_POINTS)} - {0}
        for num in sorted(wanted):
            bits = walk[num - 1].bits.items()
            found.setdefault(tuple(sorted(one for one in bits if one[1] != 8)), walk[num - 1])
    return list(found.values())


def _walk(
    start: Mix, noise: _Noise, sizes: Mapping[int, Mapping[str, int]], forms: Sequence[int]
) -> Iterator[Mix]:
    """Yield the mixes with one more layer in one of the forms, the best one first.

    Layers become wider; those of four bits come of bytes alone.
    """
    mix = start
    while True:
        moves = []
        for one in start.layers:
            now = mix.bits.get(one.output, 8)
            for bits in forms:
                if bits > now if bits > 4 else now == 8:
                    gain = noise[now][one.output] - noise[bits][one.output]
                    cost = max(abs(sizes[bits][one.output] - sizes[now][one.output]), 1)
                    moves.append((gain / cost, one.output, bits))
        if not moves:
            return
        _, output, bits = max(moves)
        mix = mix.moved(output, bits)
        yield mix


def _sizes(start: Mix, bits: int) -> dict[str, int]:
    """Return the constants and the output of each layer where all layers have so many bits."""
    found = {}
    for one in start.layers:
        alone = start.with_bits({one.output: bits})
        values = prod(start.network.shapes[one.output]) * max(bits, 8) // 8
        found[one.output] = alone.num_bytes + values
    return found


def _rank_correlation(points: Sequence[SizePoint]) -> float | None:
    from scipy.stats import spearmanr

    known = [one for one in points if one.measured_ms is not None]
    if len(known) < _FEWEST_RANKED:
        return None
    predicted, measured = ([getattr(one, name) for one in known]
                           for name in ("predicted_ms", "measured_ms"))  # fmt: skip
    found = float(spearmanr(predicted, measured).statistic)
    return None if isnan(found) else found


# -- points


def _point(mix: Mix, metric: float, predicted: float, measured: float | None) -> SizePoint:
    kinds = {
        field: tuple(one.name for one in mix.layers if mix.bits.get(one.output) == bits)
        for field, bits in (("in_four_bits", 4), ("in_16_bits", WIDE), ("in_floats", FLOAT))
    }
    costs = {"num_bytes": mix.num_bytes, "predicted_ms": predicted, "measured_ms": measured}
    return SizePoint(metric=metric, **costs, **kinds)  # type: ignore[arg-type]


def _beats(other: SizePoint, one: SizePoint, rows: Evaluation) -> bool:
    """Return whether a point is nowhere worse than another one, and somewhere better."""
    sign = -1.0 if rows.is_better_down else 1.0
    gain, saved = sign * (other.metric - one.metric), one.num_bytes - other.num_bytes
    if gain < 0 or saved < 0 or other.predicted_ms > one.predicted_ms * (1 + _SAME_LATENCY):
        return False
    return gain > 0 or saved > 0 or other.predicted_ms < one.predicted_ms * (1 - _SAME_LATENCY)
