"""Names the numbers in the rows of lines by their place.

In: a line, as `record.lines` gives it. Out: named tuples of what its rows hold. The guest writes by
the same names, and every reader of a row uses this module. A row of another shape raises
`MisshapenError`, and the whole line that holds it is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from .lines import Line
from .numbers_told import MAX_WHOLE
from .places import NUM_LEADING
from .writing import MAX_LOSS


class MisshapenError(ValueError):
    """A line has another shape than its kind promises."""


class UpdateRow(NamedTuple):
    """One optimizer update; times [ns] are on the head's clock, sums are in the head's order."""

    number: int
    thread: int
    optimizer: int
    start_ns: int
    end_ns: int
    skipped: int
    detail: int
    wall_ns: tuple[int, ...]
    counts: tuple[int, ...]
    cpu_ns: tuple[int, ...]


class BlockRow(NamedTuple):
    """Rounds that the guest folded: sums over the block, and times of each round [µs].

    `cpu_ns` and the buckets fetch and collate are sums over the `num_detailed` rounds alone.
    """

    first_number: int
    thread: int
    num_rounds: int
    num_updates: int
    num_skipped: int
    start_ns: int
    end_ns: int
    wall_ns: tuple[int, ...]
    counts: tuple[int, ...]
    num_detailed: int
    cpu_ns: tuple[int, ...]
    round_wall_us: tuple[int, ...]
    round_cpu_us: tuple[int, ...]
    disturbed: tuple[int, ...] = ()


class ProgressRow(NamedTuple):
    """An update of a block that is not full yet: its times [µs] without spans, and no phases."""

    number: int
    thread: int
    optimizer: int
    end_ns: int
    skipped: int
    num_backwards: int
    wall_us: int
    cpu_us: int


class TagRow(NamedTuple):
    """The state of an experiment in which an update was made; -1 samples: no size was seen."""

    number: int
    experiment: int
    round: int
    state: int
    counts: int
    num_samples: int


class SiteRow(NamedTuple):
    """A place, and how often the script passed it; `total_ns` is None where calls are counted."""

    what: str
    file: str
    line: int
    end_line: int
    calls: int
    total_ns: int | None


class OptimizerRow(NamedTuple):
    """An optimizer, the line that steps it, and the line that called the function it is in."""

    number: int
    kind: str
    file: str | None
    line: int | None
    outer_file: str | None
    outer_line: int | None


class EventRow(NamedTuple):
    """A graph break or a recompilation; file and line are None outside the user's code."""

    reason: str
    file: str | None
    line: int | None
    num: int


class PauseRow(NamedTuple):
    """A long collection of garbage that began at `t` [ns on the head's clock]."""

    t: int
    ns: int
    generation: int


class StartUpRow(NamedTuple):
    """A stretch before the first step, by what the script did; times [ns] on the head's clock.

    `name` is the module of an import; file and line are None outside the user's code.
    """

    what: str
    begin_ns: int
    end_ns: int
    name: str
    file: str | None
    line: int | None


class CheckpointRow(NamedTuple):
    """A checkpoint that was written from `begin_ns` on [ns on the head's clock].

    `what` is `torch`, `safetensors`, `distributed`, or `staging`, which is the part of an
    asynchronous one that the script waits for. With `is_beside`, another thread made the steps.
    What the parts leave of the time is none of them. The row stands for `num` checkpoints.
    """

    what: str
    begin_ns: int
    total_ns: int
    gather_ns: int
    copy_ns: int
    serialize_ns: int
    write_ns: int
    num_bytes: int
    is_beside: int
    num: int


class LoggingRow(NamedTuple):
    """The calls of a logger between the phases so far."""

    library: str
    calls: int
    total_ns: int


class SaidRow(NamedTuple):
    """What a library said, the file that said it, and the user's line that led to it."""

    channel: str
    who: str
    text: str
    origin: str
    file: str | None
    line: int | None
    num: int
    first_update: int | None
    last_update: int | None


class CompilingRow(NamedTuple):
    """A `compile`, a `recompile` or a `graph_break`, with its begin and torch's reason."""

    what: str
    t_unix_s: float
    seconds: float | None
    reason: str | None
    file: str | None
    line: int | None


class LossRow(NamedTuple):
    """The loss and the gradient norm of an update, by its number from 1; None: not known.

    Where no optimizer steps, the rows are those of backward calls, with the optimizer -1.
    """

    number: int
    optimizer: int
    skipped: int
    loss: float | None
    norm: float | None


class Layout:
    """The places of an update's numbers, as the head of its file names them."""

    __slots__ = ("buckets", "counts", "size")

    def __init__(self, buckets: Sequence[str], counts: Sequence[str]) -> None:
        self.buckets = tuple(buckets)
        self.counts = tuple(counts)
        self.size = NUM_LEADING + 2 * len(self.buckets) + len(self.counts)

    @property
    def wall_at(self) -> int:
        """Return the place where wall times begin."""
        return NUM_LEADING

    @property
    def counts_at(self) -> int:
        """Return the place where counts begin."""
        return NUM_LEADING + len(self.buckets)

    @property
    def cpu_at(self) -> int:
        """Return the place where CPU times begin."""
        return self.counts_at + len(self.counts)

    def flat_updates(self, line: Line) -> list[int]:
        """Return the rows of a line of updates one after another, with `size` numbers each."""
        rows = _rows(line)
        try:
            if set(map(len, rows)) - {self.size}:
                raise MisshapenError(f"a row of another length than {self.size}")
            flat = list(chain.from_iterable(rows))
        except TypeError as error:
            raise MisshapenError(f"a row is no list: {error}") from error
        if set(map(type, flat)) - {int}:
            raise MisshapenError("a row holds something else than whole numbers")
        return flat

    def updates(self, line: Line) -> Iterator[UpdateRow]:
        """Yield the rows of a line of updates."""
        flat = self.flat_updates(line)
        counts_at, cpu_at, size = self.counts_at, self.cpu_at, self.size
        for begin in range(0, len(flat), size):
            row = flat[begin : begin + size]
            sums = (row[NUM_LEADING:counts_at], row[counts_at:cpu_at], row[cpu_at:])
            yield UpdateRow._make((*row[:NUM_LEADING], *map(tuple, sums)))

    def block(self, line: Line) -> BlockRow:
        """Return the row of a line of folded rounds."""
        row = _ints(_get(line, "row"), self.size + 1)
        leading, num_rounds = row[:NUM_LEADING], row[2]
        wall_ns, counts = row[NUM_LEADING : self.counts_at], row[self.counts_at : self.cpu_at]
        num_detailed, *cpu_ns = row[self.cpu_at :]
        times = (_ints(_get(line, name), num_rounds) for name in ("rw", "rc"))
        values = line.get("rd", [])
        disturbed = _ints(values, _length(values))
        if any(not 0 <= place < num_rounds for place in disturbed):
            raise MisshapenError(f"places below {num_rounds} are wanted, got {values!r:.60}")
        sums = (wall_ns, counts, num_detailed, tuple(cpu_ns))
        return BlockRow._make((*leading, *sums, *times, disturbed))

    def device_times(self, line: Line) -> tuple[int, tuple[int, ...]]:
        """Return the number of an update, and its device times by bucket [ns]."""
        return _int(_get(line, "n")), _ints(_get(line, "d"), len(self.buckets))


def markers(line: Line) -> tuple[int, tuple[int, ...]]:
    """Return the number of an update, and its raw markers: pairs of nanoseconds and a bucket."""
    values = _get(line, "e")
    return _int(_get(line, "n")), _ints(values, _length(values) // 2 * 2)


def progress(line: Line) -> list[ProgressRow]:
    """Return the updates of a block that is not full yet."""
    return [ProgressRow(*_ints(row, len(ProgressRow._fields))) for row in _rows(line)]


def tags(line: Line) -> list[TagRow]:
    """Return the updates of a trial, each with its state."""
    return [TagRow(*_ints(row, len(TagRow._fields))) for row in _rows(line)]


def sites(line: Line) -> list[SiteRow]:
    """Return the places of a line of sites, or of spans."""
    return [
        SiteRow(*_typed(values, str, str, int, int, int, (int, _NONE)))
        for values in _rows(line, "sites")
    ]


def compile_events(line: Line) -> tuple[int, list[EventRow], list[EventRow]]:
    """Return the number of graphs so far, the graph breaks and the recompilations."""
    breaks, recompiles = (_rows(line, name) for name in ("breaks", "recompiles"))
    return _int(_get(line, "graphs")), [*map(_event, breaks)], [*map(_event, recompiles)]


def pauses(line: Line) -> list[PauseRow]:
    """Return the long collections of garbage."""
    return [PauseRow(*_ints(row, len(PauseRow._fields))) for row in _rows(line)]


def compilings(line: Line) -> list[CompilingRow]:
    """Return what torch compiled since the line before."""
    return [_compiling(values) for values in _rows(line)]


def start_up(line: Line) -> list[StartUpRow]:
    """Return the stretches before the first step."""
    number, text, none = int, str, _NONE
    kinds = (text, number, number, text, (text, none), (number, none))
    return [StartUpRow(*_typed(values, *kinds)) for values in _rows(line)]


def checkpoints(line: Line) -> list[CheckpointRow]:
    """Return the checkpoints that were written."""
    numbers = (int,) * (len(CheckpointRow._fields) - 1)
    return [CheckpointRow(*_typed(values, str, *numbers)) for values in _rows(line)]


def optimizers(line: Line) -> list[OptimizerRow]:
    """Return the optimizers that have stepped so far."""
    return [OptimizerRow(*row) for row in line["optimizers"]]


def logging(line: Line) -> list[LoggingRow]:
    """Return the calls of loggers so far."""
    return [LoggingRow(*_typed(values, str, int, int)) for values in _rows(line)]


def said(line: Line) -> list[SaidRow]:
    """Return what libraries said so far."""
    number = (int, _NONE)
    kinds = (str, str, str, str, (str, _NONE), number, int, number, number)
    return [SaidRow(*_typed(values, *kinds)) for values in _rows(line)]


def losses(line: Line) -> list[LossRow]:
    """Return the losses of updates; they may be infinite, or NaN."""
    return [_loss(values) for values in _rows(line)]


def whole_number(line: Line, name: str) -> int:
    """Return a whole number of a line."""
    return _int(_get(line, name))


def field(line: Line, name: str) -> Mapping[str, Any]:
    """Return the object that a line holds under a name."""
    found = _get(line, name)
    if not isinstance(found, dict):
        raise MisshapenError(f"`{name}` must be an object, got {found!r:.60}")
    return found


# -- checking


def _get(line: Line, name: str) -> Any:
    try:
        return line[name]
    except KeyError:
        raise MisshapenError(f"`{name}` is missing") from None


def _rows(line: Line, name: str = "rows") -> list[Any]:
    found = _get(line, name)
    if not isinstance(found, list):
        raise MisshapenError(f"`{name}` must be a list, got {found!r:.60}")
    return found


def _length(values: Any) -> int:
    return len(values) if isinstance(values, list) else 0


def _int(value: Any) -> int:
    if type(value) is not int:  # for isinstance, a bool is an int
        raise MisshapenError(f"a whole number is wanted, got {value!r:.60}")
    _check_range(value)
    return value


def _check_range(value: float) -> None:
    if not -MAX_WHOLE <= value <= MAX_WHOLE:
        raise MisshapenError("a number of more than 64 bits")


def _ints(values: Any, size: int) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) != size or set(map(type, values)) - {int}:
        raise MisshapenError(f"{size} whole numbers are wanted, got {values!r:.60}")
    if values:
        _check_range(min(values))
        _check_range(max(values))
    return tuple(values)


def _typed(values: Iterable[Any], *kinds: type | tuple[type, ...]) -> list[Any]:
    found = list(values) if isinstance(values, list) else []
    if len(found) != len(kinds):
        raise MisshapenError(f"{len(kinds)} values are wanted, got {values!r:.60}")
    for value, kind in zip(found, kinds):  # noqa: B905
        if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
            raise MisshapenError(f"a value of {kind} is wanted, got {value!r:.60}")
        if isinstance(value, (int, float)):
            _check_range(value)  # no infinite number either, and none that is not a number
    return found


_NONE = type(None)


def _event(values: Any) -> EventRow:
    event = EventRow(*_typed(values, str, (str, _NONE), (int, _NONE), int))
    if event.file is None:
        return event._replace(line=None)
    if event.line is None:
        raise MisshapenError("an event has a file and no line")
    return event


def _compiling(values: Any) -> CompilingRow:
    number = (int, float)
    text = (str, _NONE)
    row = _typed(values, str, number, (*number, _NONE), text, text, (int, _NONE))
    what, t_unix_s, seconds, *rest = row
    return CompilingRow(what, float(t_unix_s), None if seconds is None else float(seconds), *rest)


_REALS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, None: None}


def _loss(values: Any) -> LossRow:
    if not isinstance(values, list) or len(values) != len(LossRow._fields):
        raise MisshapenError(f"the loss of an update is wanted, got {values!r:.60}")
    number, optimizer, skipped = _ints(values[:3], 3)
    return LossRow(number, optimizer, skipped, *map(_real, values[3:]))


def _real(value: Any) -> float | None:
    if type(value) in (int, float) and abs(value) < MAX_LOSS:
        return float(value)
    if not isinstance(value, (str, _NONE)) or value not in _REALS:
        raise MisshapenError(f"a number is wanted, got {value!r:.60}")
    return _REALS[value]
