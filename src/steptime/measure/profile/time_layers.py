"""Gives each instant of a window to one of several things that ran at once.

In: labeled pieces of time, layer by layer, with the most important layer first. Out: pieces that do
not overlap. These are numbers alone; their meaning is up to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Piece = tuple[int, int, int]
"""Start and end [ns], and a label."""

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of spans, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


def length(spans: Iterable[Span]) -> int:
    """Return the sum of spans that do not overlap [ns]."""
    return sum(end - start for start, end in spans)


def outside(spans: Sequence[Span], start: int, end: int) -> Iterator[Span]:
    """Yield the parts of a window that lie in none of the spans, which are merged."""
    for begin, until in spans:
        if begin > start:
            yield start, min(begin, end)
        start = max(start, until)
        if start >= end:
            return
    if start < end:
        yield start, end


def without(pieces: Iterable[Piece], covered: Sequence[Span]) -> Iterator[Piece]:
    """Yield the parts of the ordered pieces that lie in no span; the spans are merged."""
    at = 0
    for start, end, what in pieces:
        while at < len(covered) and covered[at][1] <= start:
            at += 1
        place, begin = at, start
        while begin < end:
            if place >= len(covered) or covered[place][0] >= end:
                yield begin, end, what
                break
            if covered[place][0] > begin:
                yield begin, covered[place][0], what
            begin = max(begin, covered[place][1])
            place += 1


def layered(layers: Iterable[Iterable[Piece]]) -> list[Piece]:
    """Return the pieces of all layers that do not overlap: what an earlier layer holds, it keeps.

    Within a layer, the piece that began first keeps its time until its end.
    """
    kept: list[Piece] = []
    covered: list[Span] = []
    for layer in layers:
        ordered: list[Piece] = []
        end = -1
        for piece in sorted(layer):
            start = max(piece[0], end)
            if piece[1] > start:
                ordered.append((start, piece[1], piece[2]))
                end = piece[1]
        fresh = list(without(ordered, covered))
        kept += fresh
        covered = merged([*covered, *((start, until) for start, until, _ in fresh)])
    return sorted(kept)
