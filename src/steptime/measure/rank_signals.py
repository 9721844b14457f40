"""What a rank's file tells beside its updates: memory, places, operators, compiling, switches.

In: the lines m, s, a, ops, count, c, q, i, x, gc and ce of docs/reference/run-folder.md, and lever
of a plan. Out: `Signals`. Every one of them may be absent. What they say about a step is left to
`measure.memory.memory_use` and `measure.code_places`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steptime.core.codec import from_json
from steptime.measure.jsonl import Row
from steptime.measure.trial_lines import LeverLine
from steptime.measure.values.observations import LoaderUse
from steptime.measure.values.work import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """Memory of the process at `t` [ns on the head's clock]; counters since its start."""

    t: int
    bucket: int
    rss: int | None = None
    minflt: int | None = None
    majflt: int | None = None
    stime_ns: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSeen:
    """A place and how often it was passed; `total_ns` is None where calls are only counted."""

    what: str
    file: str
    line: int
    end_line: int
    calls: int
    total_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesSeen:
    """The places of the updates in which frames were walked."""

    num_updates: int
    sites: tuple[SiteSeen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCounts:
    """Operators of one update, or why none were counted."""

    num: int = 0
    num_tiny: int = 0
    tiny_ns: int = 0
    large_ns: int = 0
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSeen:
    """The work of an update, or of one of each optimizer; or why it is not known."""

    count: Count | None = None
    num_updates: int = 1
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeen:
    """A graph break or a recompilation; without a place in the user's code both are None."""

    reason: str
    file: str | None
    line: int | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSeen:
    """What torch.compile did so far."""

    num_graphs: int
    breaks: tuple[EventSeen, ...]
    recompiles: tuple[EventSeen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSeen:
    """A long collection of garbage that began at `t` [ns on the head's clock]."""

    t: int
    ns: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilingSeen:
    """A `compile`, a `recompile` or a `graph_break`, when it began, with torch's reason."""

    what: str
    t_unix_s: float
    seconds: float | None
    reason: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSeen:
    """A window under a profiler, from when to when [ns on the head's clock], or why there is none.

    `n` is the number of steps at its end, by the guest's own count.
    """

    n: int
    missing: str | None = None
    file: str | None = None
    steps: int = 0
    is_cut: bool = False
    is_mixed: bool = False
    t: tuple[int, ...] = ()
    end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What was told beside the updates; `spans` are places over the whole run."""

    memory: tuple[MemorySample, ...] = ()
    sites: SitesSeen | None = None
    spans: tuple[SiteSeen, ...] = ()
    operators: OperatorCounts | None = None
    count: CountSeen | None = None
    compiled: CompileSeen | None = None
    switches: tuple[str, ...] = ()
    levers: tuple[LeverLine, ...] = ()
    pauses: tuple[PauseSeen, ...] = ()
    compilings: tuple[CompilingSeen, ...] = ()
    loaders: tuple[LoaderUse, ...] = ()
    input_shapes: tuple[str, ...] = ()
    window: WindowSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switches:
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaders:
    loaders: tuple[LoaderUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shapes:
    shapes: tuple[str, ...]


class SignalLines:
    """These lines of a rank's file so far; a later one replaces the earlier, if not said else."""

    def __init__(self) -> None:
        self.memory: dict[int, MemorySample] = {}
        self.sites: SitesSeen | None = None
        self.spans: tuple[SiteSeen, ...] = ()
        self.operators: OperatorCounts | None = None
        self.count: CountSeen | None = None
        self.compiled: CompileSeen | None = None
        self.switches: set[str] = set()
        self.levers: list[LeverLine] = []
        self.pauses: list[PauseSeen] = []
        self.compilings: list[CompilingSeen] = []
        self.loaders: tuple[LoaderUse, ...] = ()
        self.input_shapes: tuple[str, ...] = ()
        self.window: WindowSeen | None = None

    def set_window(self, row: Row) -> None:
        """The window under a profiler; there is one at most."""
        found = from_json(WindowSeen, row)
        if found.missing is None and len(found.t) != 2:
            raise ValueError(f"`t` must be two numbers, got {found.t}")
        self.window = found

    def add_memory(self, row: Row) -> None:
        """A sample; all are kept, a line written twice once."""
        sample = from_json(MemorySample, row)
        self.memory[sample.t] = sample

    def set_sites(self, row: Row) -> None:
        """Places of the updates looked at: the second spell's replace the first's."""
        (num_updates,) = _typed((row["updates"],), int)
        if num_updates < 1:
            raise ValueError(f"`updates` must be above zero, got {num_updates}")
        self.sites = SitesSeen(num_updates=num_updates, sites=_sites(row))

    def set_spans(self, row: Row) -> None:
        """Places of spans over the run."""
        self.spans = _sites(row)

    def set_operators(self, row: Row) -> None:
        """Operators; a count is worth more than a reason for none."""
        found = from_json(OperatorCounts, row)
        if found.missing is None or self.operators is None:
            self.operators = found

    def set_count(self, row: Row) -> None:
        """The work of an update; a count is worth more than a reason for none."""
        found = read_count(row)
        if found.missing is None or self.count is None:
            self.count = found

    def set_compiled(self, row: Row) -> None:
        """Compiling so far."""
        (num_graphs,) = _typed((row["graphs"],), int)
        self.compiled = CompileSeen(
            num_graphs=num_graphs,
            breaks=tuple(map(_event, row["breaks"])),
            recompiles=tuple(map(_event, row["recompiles"])),
        )

    def add_switches(self, row: Row) -> None:
        """Debug switches: the union counts."""
        self.switches.update(from_json(_Switches, row).on)

    def set_loaders(self, row: Row) -> None:
        """All loaders that training read from so far."""
        self.loaders = from_json(_Loaders, row).loaders

    def set_shapes(self, row: Row) -> None:
        """Shapes of what models are called with."""
        self.input_shapes = from_json(_Shapes, row).shapes

    def add_lever(self, row: Row) -> None:
        """A lever of the plan itself; those of an experiment's states are left to `tune`."""
        line = from_json(LeverLine, row)
        if line.state is None:
            self.levers.append(line)

    def add_pauses(self, row: Row) -> None:
        """Long collections of garbage, a row each."""
        self.pauses += map(_pause, row["rows"])

    def add_compilings(self, row: Row) -> None:
        """What was compiled since the line before, a row each."""
        self.compilings += map(_compiling, row["rows"])

    def freeze(self) -> Signals:
        """All of it as a value."""
        return Signals(
            memory=tuple(self.memory[t] for t in sorted(self.memory)),
            sites=self.sites,
            spans=self.spans,
            operators=self.operators,
            count=self.count,
            compiled=self.compiled,
            switches=tuple(sorted(self.switches)),
            levers=tuple(self.levers),
            pauses=tuple(self.pauses),
            compilings=tuple(self.compilings),
            loaders=self.loaders,
            input_shapes=self.input_shapes,
            window=self.window,
        )


TAKE_SIGNAL: Mapping[str, Callable[[SignalLines, Row], None]] = {
    "m": SignalLines.add_memory,
    "s": SignalLines.set_sites,
    "a": SignalLines.set_spans,
    "ops": SignalLines.set_operators,
    "count": SignalLines.set_count,
    "c": SignalLines.set_compiled,
    "q": SignalLines.add_switches,
    "i": SignalLines.set_loaders,
    "x": SignalLines.set_shapes,
    "lever": SignalLines.add_lever,
    "gc": SignalLines.add_pauses,
    "ce": SignalLines.add_compilings,
    "profile": SignalLines.set_window,
}
"""Which method takes a line of which `k`."""


def read_count(row: Row) -> CountSeen:
    """A line on the work of an update."""
    missing = row.get("missing")
    if missing is not None:
        (missing,) = _typed((missing,), str)
        return CountSeen(missing=missing)
    (num_updates,) = _typed((row.get("updates", 1),), int)
    return CountSeen(count=from_json(Count, row), num_updates=num_updates)


def _sites(row: Row) -> tuple[SiteSeen, ...]:
    return tuple(map(_site, row["sites"]))


def _site(values: Any) -> SiteSeen:
    what, file, line, end_line, calls = _typed(values[:5], str, str, int, int, int)
    (total_ns,) = values[5:]
    if total_ns is not None:
        _typed((total_ns,), int)
    return SiteSeen(
        what=what, file=file, line=line, end_line=end_line, calls=calls, total_ns=total_ns
    )


def _event(values: Any) -> EventSeen:
    reason, file, line, count = values
    _typed((reason, count), str, int)
    if file is not None:
        _typed((file, line), str, int)
    return EventSeen(reason=reason, file=file, line=None if file is None else line, count=count)


def _pause(values: Any) -> PauseSeen:
    t, ns, generation = _typed(values, int, int, int)
    return PauseSeen(t=t, ns=ns, generation=generation)


def _compiling(values: Any) -> CompilingSeen:
    what, t_unix_s, seconds, reason, file, line = values
    known = {
        "what": what,
        "t_unix_s": t_unix_s,
        "seconds": seconds,
        "reason": reason,
        "file": file,
        "line": line,
    }
    return from_json(CompilingSeen, known)


def _typed(values: Any, *kinds: type) -> Any:
    """The values, if they are of these types one by one."""
    if len(values) != len(kinds) or any(type(v) is not k for v, k in zip(values, kinds)):  # noqa: B905
        raise ValueError(f"`values` must be {kinds}, got {values!r:.60}")
    return values
