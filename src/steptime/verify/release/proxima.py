"""The three scores of PROXIMA for a proxy metric, and the segments in which it points elsewhere.

Source: A. Amudala, PROXIMA, arXiv 2604.14352, 2026: the correlation of effects, the share of
experiments in which both have one sign, and the share of segments of experiments in which they do
not, as its public code defines them. The scores describe; they decide nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptime.verify.model.signed_gains import SignedGain
from steptime.verify.release.release_question import MetricExperiment

_WEIGHTS = (0.6, 0.2, 0.2)
"""Of correlation, direction and steadiness over segments: the defaults of its public code."""


def proxima_scores(
    moves: Sequence[MetricExperiment], pair: tuple[str, str], correlation: float | None
) -> dict[str, Any]:
    """Return the fields of a `Rung` that are PROXIMA's.

    Args:
        moves: experiments with gains of both metrics.
        pair: the proxy, and its target.
        correlation: of their effects; None where one of them never differs, which counts as 0.
    """
    flips = dict[str, list[bool]]()
    for one in moves:
        for segment, gains in one.by_segment.items():
            if pair[0] in gains and pair[1] in gains:
                flips.setdefault(segment, []).append(not _agree(gains, pair))
    accuracy = sum(_agree(one.gains, pair) for one in moves) / len(moves)
    cells = [flip for found in flips.values() for flip in found]
    fragility = sum(cells) / len(cells) if cells else None
    reliability = None
    if fragility is not None:
        parts = (((correlation or 0.0) + 1) / 2, accuracy, 1 - fragility)
        reliability = sum(w * x for w, x in zip(_WEIGHTS, parts, strict=True))
    return {
        "directional_accuracy": accuracy,
        "fragility_rate": fragility,
        "reliability": reliability,
        "segment_flips": {name: sum(found) / len(found) for name, found in flips.items()},
    }


def _agree(gains: Mapping[str, SignedGain], pair: tuple[str, str]) -> bool:
    """Return whether both say ship, or both do not; no effect is none to ship for."""
    return (gains[pair[0]].mean > 0) == (gains[pair[1]].mean > 0)
