"""Reads a rank's lines other than updates: memory, places, operators, compiling, switches.

In: lines m, s, a, sl, ops, count, c, q, i, pw, x, gc, ce, su, cp, lg, sd, du, v, nf, br, hc, lw,
ln, ga, wt, ev and l of docs/internals/run-folder.md, and lever of a plan. Out: `Signals`. Any may
be absent. `measure.memory.memory_use` and `measure.code_places` relate them to the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steptime.core.codec import from_json
from steptime.measure.fold.seen_lines import (
    AskedSeen,
    CodeLine,
    CountSeen,
    MemorySample,
    SearchSeen,
    SitesSeen,
    SpentSeen,
    WindowSeen,
)
from steptime.measure.health.health_record import read_bracket, read_graphs, read_look, read_weights
from steptime.measure.health.layer_curves import LayerSamples
from steptime.measure.health.loss_series import BadPlace
from steptime.measure.memory.epoch_lines import EpochSeen, read_epoch
from steptime.measure.sense.sense_record import InputsSeen, ReplicaSeen, SenseSeen, read_sense
from steptime.measure.tried.trial_lines import LeverLine
from steptime.measure.values.model.attention_call import AttentionCall
from steptime.measure.values.model.layer_health import Bracket, LayerHealth
from steptime.measure.values.model.training_health import KeptGraphs, WeightUse
from steptime.measure.values.model.work import Count
from steptime.measure.values.observations import AwaitedProcess, LoaderUse, Operators
from steptime.record import health_rows, kinds, rows
from steptime.record.buckets import SIZES
from steptime.record.health_rows import EvaluationRow
from steptime.record.lines import Line
from steptime.record.loaders import batch_rows
from steptime.record.loaders.batch_rows import AgainRow, BatchRow
from steptime.record.places import NS
from steptime.record.rows import (
    CheckpointRow,
    CompilingRow,
    EventRow,
    LoggingRow,
    LossRow,
    OptimizerRow,
    PauseRow,
    SaidRow,
    SiteRow,
    StartUpRow,
)

MAX_ASKED = 1000
"""Questions of a rank that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """All lines other than updates; `spans` are places over the whole run."""

    memory: tuple[MemorySample, ...] = ()
    sites: SitesSeen | None = None
    spans: tuple[SiteRow, ...] = ()
    operators: tuple[int, Operators] | None = None
    counts: tuple[CountSeen, ...] = ()
    compiled: tuple[int, list[EventRow], list[EventRow]] | None = None
    switches: tuple[str, ...] = ()
    attention: tuple[tuple[AttentionCall, CodeLine], ...] | None = None
    levers: tuple[LeverLine, ...] = ()
    pauses: tuple[PauseRow, ...] = ()
    compilings: tuple[CompilingRow, ...] = ()
    loaders: tuple[LoaderUse, ...] = ()
    awaited: tuple[AwaitedProcess, ...] = ()
    input_shapes: tuple[str, ...] = ()
    has_tokens: bool = False
    window: WindowSeen | None = None
    losses: tuple[LossRow, ...] = ()
    bad_places: tuple[BadPlace, ...] = ()
    brackets: tuple[Bracket, ...] = ()
    look: LayerHealth | None = None
    layers: LayerSamples = field(default_factory=LayerSamples)
    kept_graphs: KeptGraphs | None = None
    weight_use: WeightUse | None = None
    sense: SenseSeen | None = None
    replicas: tuple[ReplicaSeen, ...] = ()
    rank_inputs: InputsSeen | None = None
    evaluations: tuple[EvaluationRow, ...] = ()
    batches: tuple[BatchRow, ...] = ()
    start_up: tuple[StartUpRow, ...] = ()
    checkpoints: tuple[CheckpointRow, ...] = ()
    logging: tuple[LoggingRow, ...] = ()
    said: tuple[SaidRow, ...] = ()
    search: SearchSeen | None = None
    epochs: tuple[EpochSeen, ...] = ()
    asked: tuple[AskedSeen, ...] = ()
    optimizers: tuple[OptimizerRow, ...] = ()
    late_sites: tuple[SitesSeen, ...] = ()
    spent: SpentSeen | None = None
    again: tuple[AgainRow, ...] = ()


Take = Callable[["SignalLines", Line], None]


class SignalLines:
    """These lines of a rank's file so far, by the field of `Signals` that they fill."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.each: defaultdict[str, list[Any]] = defaultdict(list)
        self.layers = LayerSamples()

    def add_layers(self, line: Line) -> None:
        """Add the names of layers."""
        self.layers.add_layers(health_rows.layers(line))

    def add_layer_norms(self, line: Line) -> None:
        """Add the norms of layers in one update."""
        self.layers.add_norms(*health_rows.layer_norms(line))

    def add_sites(self, line: Line) -> None:
        """Add the places of the walked updates.

        Late windows belong to optimizers that had not stepped before.
        """
        num_updates = rows.whole_number(line, "updates")
        if num_updates < 1:
            raise ValueError(f"`updates` must be above zero, got {num_updates}")
        optimizers = tuple(int(one) for one in line.get("optimizers", ()))
        seen = SitesSeen(
            num_updates=num_updates, sites=tuple(rows.sites(line)), optimizers=optimizers
        )
        self.each["late_sites" if line.get("is_late") else "windows"].append(seen)

    def set_operators(self, line: Line) -> None:
        """Set the operators; a count is worth more than a reason for none."""
        own = {
            "tiny_s": line.get("tiny_ns", 0) * NS,
            "large_s": line.get("large_ns", 0) * NS,
            "num_nodes": line.get("nodes"),
            "num_nodes_used": line.get("nodes_used"),
        }
        found = from_json(Operators, {**line, **own})
        if found.missing is None or "operators" not in self.last:
            self.last["operators"] = from_json(_OneThing, line).n, found

    def set_shapes(self, line: Line) -> None:
        """Set the shapes of the models' inputs, and whether they are of tokens."""
        found = from_json(_OneThing, line)
        self.last |= {"input_shapes": found.shapes, "has_tokens": found.has_tokens}

    def freeze(self) -> Signals:
        """Return all signals as a value; a sample that was written twice counts once."""
        known: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found
            for name, found in {**self.last, **self.each}.items()
        }
        by_time = {sample.t: sample for sample in known.get("memory", ())}
        known["memory"] = tuple(by_time[t] for t in sorted(by_time))
        known["asked"] = known.get("asked", ())[:MAX_ASKED]
        # The second window replaces the first, which counts for a loop of its own.
        *early, sites = known.pop("windows", (None,))
        known["late_sites"] = (*known.get("late_sites", ()), *early[-1:])
        return Signals(**known, sites=sites, layers=self.layers)


# -- how a line is read


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneThing:
    """What lines hold that hold one thing; `n` is 0 in those of an older guest."""

    n: int = 0
    on: tuple[str, ...] = ()
    loaders: tuple[LoaderUse, ...] = ()
    processes: tuple[AwaitedProcess, ...] = ()
    calls: tuple[dict[str, Any], ...] = ()
    shapes: tuple[str, ...] = ()
    has_tokens: bool = False


def _attention(line: Line) -> tuple[tuple[AttentionCall, CodeLine], ...]:
    calls = from_json(_OneThing, line).calls
    return tuple((from_json(AttentionCall, one), from_json(CodeLine, one)) for one in calls)


def _awaited(line: Line) -> tuple[AwaitedProcess, ...]:
    return tuple(sorted(from_json(_OneThing, line).processes, key=lambda one: -one.total_s))


def _asked(line: Line) -> list[AskedSeen]:
    """Return a question that was answered, if it took time of the training."""
    found = from_json(AskedSeen, line)
    if len(found.t) not in (0, 2):
        raise ValueError(f"`t` must be two numbers, got {found.t}")
    return [found] if found.t else []


def _window(line: Line) -> WindowSeen:
    found = from_json(WindowSeen, line)
    if found.missing is None and len(found.t) != 2:
        raise ValueError(f"`t` must be two numbers, got {found.t}")
    return found


def _spent(line: Line) -> SpentSeen:
    """Return the samples so far; their sums are those of the whole run."""
    num_updates, total_ns = (rows.whole_number(line, name) for name in ("n", "ns"))
    found = rows.field(line, "libraries") if "libraries" in line else {}
    return SpentSeen(
        num_updates=num_updates,
        total_ns=total_ns,
        rows=tuple(batch_rows.spent(line)),
        libraries={name: rows.whole_number(dict(found), name) for name in found},
    )


def _lever(line: Line) -> list[LeverLine]:
    """Return a lever of the plan itself; `tune` reads those of an experiment's states."""
    lever = from_json(LeverLine, line)
    return [lever] if lever.state is None else []


def read_count(line: Line) -> CountSeen:
    """Return the work of an update that a line holds."""
    told = from_json(CountSeen, line)
    if told.missing is not None:
        return CountSeen(missing=told.missing)
    if told.sizes and (len(told.sizes) != len(SIZES) or told.optimizer is None):
        raise ValueError(f"`sizes` must be {len(SIZES)} numbers, got {told.sizes}")
    return replace(told, count=from_json(Count, line))


def _one(cls: type[object]) -> Callable[[Line], list[object]]:
    return lambda line: [from_json(cls, line)]


def _set(name: str, read: Callable[[Line], object]) -> Take:
    """Return what takes a line of which the last one counts."""

    def take(lines: SignalLines, line: Line) -> None:
        lines.last[name] = read(line)

    return take


def _add(name: str, read: Callable[[Line], Iterable[object]]) -> Take:
    """Return what takes a line of which each one counts, with all its rows or none."""

    def take(lines: SignalLines, line: Line) -> None:
        lines.each[name] += read(line)

    return take


TAKE_SIGNAL: Mapping[str, Take] = {
    kinds.MEMORY: _add("memory", _one(MemorySample)),
    kinds.SITES: SignalLines.add_sites,
    kinds.SPANS: _set("spans", rows.sites),
    kinds.SPENT: _set("spent", _spent),
    kinds.AGAIN: _set("again", batch_rows.again),
    kinds.OPERATORS: SignalLines.set_operators,
    kinds.COUNT: _add("counts", lambda line: [read_count(line)]),
    kinds.COMPILED: _set("compiled", rows.compile_events),
    kinds.SWITCHES: _add("switches", lambda line: from_json(_OneThing, line).on),
    kinds.ATTENTION: _set("attention", _attention),
    kinds.LOADERS: _set("loaders", lambda line: from_json(_OneThing, line).loaders),
    kinds.AWAITED: _set("awaited", _awaited),
    kinds.SHAPES: SignalLines.set_shapes,
    kinds.LEVER: _add("levers", _lever),
    kinds.PAUSES: _add("pauses", rows.pauses),
    kinds.COMPILINGS: _add("compilings", rows.compilings),
    kinds.WINDOW: _set("window", _window),
    kinds.LOSSES: _add("losses", rows.losses),
    kinds.NON_FINITE: _add("bad_places", _one(BadPlace)),
    kinds.BRACKET: _add("brackets", lambda line: [read_bracket(line)]),
    kinds.LOOK_COST: _set("look", read_look),
    kinds.LAYERS: SignalLines.add_layers,
    kinds.LAYER_NORMS: SignalLines.add_layer_norms,
    kinds.GRAPHS_KEPT: _set("kept_graphs", read_graphs),
    kinds.WEIGHTS: _set("weight_use", read_weights),
    kinds.SENSE: _set("sense", read_sense),
    kinds.REPLICAS: _add("replicas", _one(ReplicaSeen)),
    kinds.RANK_INPUTS: _set("rank_inputs", lambda line: from_json(InputsSeen, line)),
    kinds.EVALUATIONS: _add("evaluations", health_rows.evaluations),
    kinds.BATCHES: _add("batches", batch_rows.batches),
    kinds.LONGEST: _add("epochs", lambda line: [read_epoch(line)]),
    kinds.START_UP: _set("start_up", rows.start_up),
    kinds.CHECKPOINTS: _add("checkpoints", rows.checkpoints),
    kinds.LOGGING: _set("logging", rows.logging),
    kinds.SAID: _set("said", rows.said),
    kinds.SEARCH: _set("search", lambda line: from_json(SearchSeen, line)),
    kinds.ASKED: _add("asked", _asked),
    kinds.OPTIMIZERS: _set("optimizers", rows.optimizers),
}
"""What takes a line, by its `k`: the only place that names a signal besides `Signals`."""
