"""Reads what a quality run recorded: `quality-N.jsonl` and `quality-N.bin` of each rank.

In: a trial's folder. Out: a `Recording`, without lines that a kill cut short.
`guest/quality/quality_run.py` says what the lines hold; the other modules of this room know what
they mean.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.core.codec import check_schema, from_json
from steptime.errors import DamagedRunError
from steptime.record import files, kinds
from steptime.record.lines import Line, LineReader, kind_of, read_lines
from steptime.record.regular_file import read_regular

_CONTENTS = (
    *(kinds.QUALITY_UPDATE, kinds.QUALITY_TABLE, kinds.QUALITY_NORMS, kinds.QUALITY_FIRST),
)
"""The kinds of lines that do not say whether a recording is complete."""

_OF_TENSORS = (kinds.QUALITY_TABLE, kinds.QUALITY_NORMS, kinds.QUALITY_FIRST)
"""The kinds of lines with a part for each tensor."""

_MAX_VALUES_BYTES = 512 << 20
"""Of the elements of all tensors at an even stride."""

Values = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedUpdate:
    """One optimizer update, with what was seen since the last one.

    Attributes:
        n: the update's number, from 0.
        opt: the number of its optimizer.
        losses: losses of the backward calls, as `float.hex`.
        inputs: a checksum for each outermost call; `contents`: the same apart from padding behind
            the rows.
        fed: a row for each batch of a loader: data set, checksum, sum of the samples' checksums,
            checksum of the samples' numbers, sum of the checksums of each, samples, and the
            checksum of the batch apart from padding.
        epochs: a row for each iterator of a loader that reached its end: data set, batches, sum
            of the samples' checksums, sum of the numbers' checksums, samples.
        evals: evaluation calls so far; `evaluated` holds the sizes of their results since the last
            update, as `float.hex`.
        closure: the optimizer made the calls itself, as often as it needed them.
        grads: number of weights that have a gradient; `mask` says which.
        weights: checksum of the weights after the update; `moved` says whether it changed them.
        stats: whether buffers changed since the last update.
        modes: checksum of the layers' modes and switches.
        kinds: checksum of the weights' shapes and dtypes.
        draws: checksum of torch's random state.
        graphs: graphs compiled so far; `fallbacks` counts returns to eager at the recompile limit,
            `compiles` the compilations that the script asked for.
    """

    n: int
    opt: int
    losses: tuple[str, ...]
    inputs: tuple[int, ...]
    fed: tuple[tuple[int, ...], ...]
    epochs: tuple[tuple[int, ...], ...]
    backwards: int
    samples: int
    lrs: tuple[float, ...]
    hyper: int
    evals: int
    grads: int
    mask: int
    weights: int
    moved: int
    stats: int
    modes: int
    kinds: int
    draws: int
    graphs: int = 0
    fallbacks: int = 0
    compiles: int = 0
    closure: int = 0
    evaluated: tuple[str, ...] = ()
    contents: tuple[int, ...] = ()

    @property
    def loss(self) -> float | None:
        """Return the mean of its losses, or a closure's first; None without a backward call."""
        texts = self.losses[:1] if self.closure else self.losses
        values = [float.fromhex(text) for text in texts]
        if not all(map(math.isfinite, values)):
            return math.nan  # `fsum` raises
        return math.fsum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Says whose recording it is; `initial` is a checksum of the weights before the first call."""

    schema: int
    rank: int
    world_size: int
    num_updates: int
    is_double: bool
    perturb: float | None
    initial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An optimizer, its weights and the models' layers, as text, at its first update.

    A row of `tensors` has name, shape, dtype, and whether it needs a gradient; a row of `modes` has
    name, class, mode, and the switches.
    """

    opt: int
    optimizer: str
    groups: tuple[Mapping[str, str], ...]
    tensors: tuple[tuple[str, ...], ...]
    modes: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """Norms of each weight's gradient and change in one update, as `float.hex`."""

    n: int
    opt: int
    gradients: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Says that the recording is complete, or that its process ended in order."""

    n: int
    evals: int
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstLine:
    n: int
    opt: int
    what: str
    names: tuple[str, ...]
    counts: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTensor:
    """Elements of one tensor at an even stride, in an optimizer's first update.

    `what` is gradient, change (of a weight) or buffer (the change of a buffer).
    """

    opt: int
    what: str
    name: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecording:
    """What one rank recorded."""

    head: Head
    updates: tuple[RecordedUpdate, ...]
    tables: tuple[Table, ...]
    first: tuple[FirstTensor, ...]
    norms: tuple[Norms, ...]
    end: End | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What all ranks recorded, in order; there are none where no optimizer stepped."""

    ranks: tuple[RankRecording, ...]

    @property
    def num_updates(self) -> int:
        """Return how many updates all ranks have."""
        return min((len(rank.updates) for rank in self.ranks), default=0)


def read_recording(folder: Path, *, has_tensors: bool = True) -> Recording:
    """Return the recording in a trial's folder.

    Args:
        folder: of the trial.
        has_tensors: read the values, norms and names of tensors too; without them it is small.

    Raises:
        DamagedRunError: another version of Steptime wrote it.
    """
    without = () if has_tensors else _OF_TENSORS
    found = [_read_rank(path, without) for path in sorted(folder.glob(files.QUALITY))]
    ranks = [rank for rank in found if rank is not None]
    return Recording(ranks=tuple(sorted(ranks, key=lambda rank: rank.head.rank)))


class RecordingWatch:
    """Follows the recordings of a run that may still be running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readers: dict[str, LineReader] = {}
        self._world_sizes: dict[str, int] = {}
        self._over: set[str] = set()

    def is_complete(self) -> bool:
        """Return whether every rank has recorded all that was asked for."""
        for path in sorted(self._folder.glob(files.QUALITY)):
            reader = self._readers.setdefault(path.name, LineReader(path, without=_CONTENTS))
            for line in reader.read():
                self._take(path.name, line)
        if not self._world_sizes:
            return False
        world_size = self._world_sizes[min(self._world_sizes)]
        return len(self._over) == len(self._world_sizes) >= world_size

    def _take(self, name: str, line: Line) -> None:
        if kind_of(line) == kinds.HEAD:
            found = line.get("world_size", 1)
            self._world_sizes.setdefault(name, found if isinstance(found, int) else 1)
        elif kind_of(line) == kinds.END:
            self._over.add(name)


def is_complete(folder: Path) -> bool:
    """Return whether every rank has recorded all that was asked for; the run may still go on."""
    return RecordingWatch(folder).is_complete()


def _read_rank(path: Path, without: tuple[str, ...]) -> RankRecording | None:
    lines: dict[str, list[Line]] = {}
    for line in LineReader(path, without=without).read() if without else read_lines(path):
        lines.setdefault(kind_of(line), []).append(line)
    if kinds.HEAD not in lines:
        return None
    (told, *_) = lines[kinds.HEAD]
    check_schema(told, where=str(path))
    head = from_json(Head, told, where=str(path))
    values = array("d") if without else _read_values(path.with_suffix(".bin"))
    first = [from_json(_FirstLine, line) for line in lines.get(kinds.QUALITY_FIRST, ())]
    ends = [from_json(End, line) for line in lines.get(kinds.END, ())[:1]]
    return RankRecording(
        head=head,
        updates=tuple(from_json(RecordedUpdate, x) for x in lines.get(kinds.QUALITY_UPDATE, ())),
        tables=tuple(from_json(Table, x) for x in lines.get(kinds.QUALITY_TABLE, ())),
        first=tuple(tensor for one in first for tensor in _cut(one, values)),
        norms=tuple(from_json(Norms, x) for x in lines.get(kinds.QUALITY_NORMS, ())),
        end=ends[0] if ends else None,
    )


def _read_values(path: Path) -> array[float]:
    values = array("d")
    data = read_regular(path, max_bytes=_MAX_VALUES_BYTES) if os.path.lexists(path) else b""
    values.frombytes(data[: len(data) // 8 * 8])
    return values


def _cut(line: _FirstLine, values: array[float]) -> Iterator[FirstTensor]:
    start = line.offset
    if start + sum(line.counts) > len(values) or len(line.names) != len(line.counts):
        raise DamagedRunError("values of the first update are missing", hint="run it again")
    for name, count in zip(line.names, line.counts, strict=True):
        yield FirstTensor(
            opt=line.opt, what=line.what, name=name, values=values[start : start + count]
        )
        start += count
