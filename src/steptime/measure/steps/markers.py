"""Shows the order of things within a step: raw markers as pieces of time.

In: the `RankStream` of one process. Out: `Slice`, for the updates whose markers were written.
`measure.steps.step_fold` makes the sums by step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from steptime.measure.fold.stream import RankStream
from steptime.measure.values.over_time import Slice
from steptime.record.places import END_NS, NS, NUMBER, START_NS, THREAD

_OTHER = "other"

# Time whose name is not yet known gets the name of what comes next. The guest does the same, except
# for models that compute their loss inside: there it is `other`.
_BY_NEXT = {
    ("after_forward", "backward"): "loss",
    ("after_backward", "optimizer"): "gradient_processing",
    ("after_backward", "gradient_processing"): "gradient_processing",
}
_UNNAMED = {
    "after_forward": _OTHER,
    "after_backward": _OTHER,
    "closure_head": "optimizer",
    "closure_tail": "optimizer",
    "acting": "forward",
}


_AMBIGUOUS = (*_BY_NEXT, *((name, _OTHER) for name in _UNNAMED))


@dataclass(frozen=True, slots=True, kw_only=True)
class _MarkerPiece:
    name: str
    begin_ns: int
    end_ns: int


def slices_of(stream: RankStream, names: Collection[str] | None = None) -> Iterator[Slice]:
    """Yield the pieces of time of one process without `other`, thread by thread in order.

    Args:
        stream: the stream of the process.
        names: names of the wanted pieces; all pieces if there are no names.
    """
    head, table = stream.head, stream.updates
    all_names = (*head.buckets, *head.counts, *head.pending)
    wanted = _places_of(names, all_names)
    threads, starts, ends = (table.column(place) for place in (THREAD, START_NS, END_NS))
    numbers = table.column(NUMBER)
    known = [place for place, number in enumerate(numbers) if number in stream.markers]
    for place in sorted(known, key=lambda place: (threads[place], starts[place])):
        markers = stream.markers[numbers[place]]
        if wanted is not None and wanted.isdisjoint(markers[1::2]):
            continue
        for piece in _pieces(markers, starts[place], ends[place], all_names):
            if names is None or piece.name in names:
                yield Slice(
                    rank=head.rank,
                    thread=threads[place],
                    name=piece.name,
                    t_unix_s=head.t_unix_s + piece.begin_ns * NS,
                    seconds=(piece.end_ns - piece.begin_ns) * NS,
                )


def _places_of(names: Collection[str] | None, all_names: Sequence[str]) -> set[int] | None:
    """Return the buckets that time of these names may lie in; None where that is not known."""
    if names is None or any(_resolve(one, other) in names for one, other in _AMBIGUOUS):
        return None
    return {place for place, name in enumerate(all_names) if name in names}


def _pieces(
    markers: Sequence[int], start_ns: int, end_ns: int, names: Sequence[str]
) -> Iterator[_MarkerPiece]:
    """Join neighbors of one name to one piece."""
    marks = [
        (min(end_ns, start_ns + offset), names[bucket] if bucket < len(names) else _OTHER)
        for offset, bucket in zip(markers[::2], markers[1::2], strict=True)
    ]
    open_piece: _MarkerPiece | None = None
    for (begin_ns, name), (until_ns, following) in pairwise([*marks, (end_ns, _OTHER)]):
        piece = _MarkerPiece(name=_resolve(name, following), begin_ns=begin_ns, end_ns=until_ns)
        if until_ns <= begin_ns:
            continue
        if open_piece is not None and open_piece.name == piece.name:
            open_piece = _MarkerPiece(
                name=piece.name, begin_ns=open_piece.begin_ns, end_ns=until_ns
            )
            continue
        if open_piece is not None and open_piece.name != _OTHER:
            yield open_piece
        open_piece = piece
    if open_piece is not None and open_piece.name != _OTHER:
        yield open_piece


def _resolve(name: str, following: str) -> str:
    return _BY_NEXT.get((name, following)) or _UNNAMED.get(name, name)
