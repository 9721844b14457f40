"""Reads a rank's lines other than updates: memory, places, operators, compiling, switches.

In: lines m, s, a, ops, count, c, q, i, pw, x, gc, ce, su, cp, lg, v, nf, br, hc, lw, ln, ga, wt,
ev and l of docs/internals/run-folder.md, and lever of a plan. Out: `Signals`. Any may be absent.
`measure.memory.memory_use` and `measure.code_places` relate them to the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from steptime.core.codec import from_json
from steptime.measure.fold.seen_lines import (
    AskedSeen,
    AttentionSeen,
    CompileSeen,
    CountSeen,
    MemorySample,
    OperatorCounts,
    SitesSeen,
    WindowSeen,
)
from steptime.measure.health.layer_curves import LayerSamples
from steptime.measure.health.layer_lines import BracketSeen, LookCost
from steptime.measure.health.loss_series import BadPlace
from steptime.measure.health.weight_lines import read_graphs, read_weights
from steptime.measure.memory.epoch_lines import EpochSeen, read_epoch
from steptime.measure.tried.trial_lines import LeverLine
from steptime.measure.values.model.training_health import KeptGraphs, WeightUse
from steptime.measure.values.model.work import Count
from steptime.measure.values.observations import AwaitedProcess, LoaderUse
from steptime.record import batch_rows, health_rows, kinds, rows
from steptime.record.batch_rows import BatchRow
from steptime.record.buckets import SIZES
from steptime.record.health_rows import EvaluationRow
from steptime.record.lines import Line
from steptime.record.rows import (
    CheckpointRow,
    CompilingRow,
    LoggingRow,
    LossRow,
    OptimizerRow,
    PauseRow,
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
    operators: OperatorCounts | None = None
    counts: tuple[CountSeen, ...] = ()
    compiled: CompileSeen | None = None
    switches: tuple[str, ...] = ()
    attention: AttentionSeen | None = None
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
    brackets: tuple[BracketSeen, ...] = ()
    look_cost: LookCost | None = None
    layers: LayerSamples = field(default_factory=LayerSamples)
    kept_graphs: KeptGraphs | None = None
    weight_use: WeightUse | None = None
    evaluations: tuple[EvaluationRow, ...] = ()
    batches: tuple[BatchRow, ...] = ()
    start_up: tuple[StartUpRow, ...] = ()
    checkpoints: tuple[CheckpointRow, ...] = ()
    logging: tuple[LoggingRow, ...] = ()
    epochs: tuple[EpochSeen, ...] = ()
    asked: tuple[AskedSeen, ...] = ()
    optimizers: tuple[OptimizerRow, ...] = ()
    late_sites: tuple[SitesSeen, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switches:
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaders:
    loaders: tuple[LoaderUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Awaited:
    processes: tuple[AwaitedProcess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shapes:
    shapes: tuple[str, ...]
    has_tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountTold:
    updates: int = 1


class SignalLines:
    """These lines of a rank's file so far; a later one replaces an earlier, unless noted."""

    def __init__(self) -> None:
        self.memory: dict[int, MemorySample] = {}
        self.sites: SitesSeen | None = None
        self.early_sites: SitesSeen | None = None
        self.late_sites: list[SitesSeen] = []
        self.spans: tuple[SiteRow, ...] = ()
        self.operators: OperatorCounts | None = None
        self.counts: list[CountSeen] = []
        self.compiled: CompileSeen | None = None
        self.switches: set[str] = set()
        self.attention: AttentionSeen | None = None
        self.levers: list[LeverLine] = []
        self.pauses: list[PauseRow] = []
        self.compilings: list[CompilingRow] = []
        self.loaders: tuple[LoaderUse, ...] = ()
        self.awaited: tuple[AwaitedProcess, ...] = ()
        self.input_shapes: tuple[str, ...] = ()
        self.has_tokens = False
        self.window: WindowSeen | None = None
        self.losses: list[LossRow] = []
        self.bad_places: list[BadPlace] = []
        self.asked: list[AskedSeen] = []
        self.brackets: list[BracketSeen] = []
        self.look_cost: LookCost | None = None
        self.layers = LayerSamples()
        self.kept_graphs: KeptGraphs | None = None
        self.weight_use: WeightUse | None = None
        self.evaluations: list[EvaluationRow] = []
        self.batches: list[BatchRow] = []
        self.start_up: tuple[StartUpRow, ...] = ()
        self.checkpoints: list[CheckpointRow] = []
        self.logging: tuple[LoggingRow, ...] = ()
        self.epochs: dict[tuple[int, int], EpochSeen] = {}
        self.optimizers: tuple[OptimizerRow, ...] = ()

    def set_optimizers(self, line: Line) -> None:
        """Set the optimizers that have stepped so far."""
        self.optimizers = tuple(rows.optimizers(line))

    def set_logging(self, line: Line) -> None:
        """Set the calls of loggers so far."""
        self.logging = tuple(rows.logging(line))

    def add_checkpoints(self, line: Line) -> None:
        """Add checkpoints, one per row."""
        self.checkpoints += rows.checkpoints(line)

    def set_start_up(self, line: Line) -> None:
        """Set the stretches before the first step; there is one such line."""
        self.start_up = tuple(rows.start_up(line))

    def add_asked(self, line: Line) -> None:
        """Add a question that was answered, if it took time of the training."""
        found = from_json(AskedSeen, line)
        if len(found.t) not in (0, 2):
            raise ValueError(f"`t` must be two numbers, got {found.t}")
        if found.t and len(self.asked) < MAX_ASKED:
            self.asked.append(found)

    def add_losses(self, line: Line) -> None:
        """Add the losses of updates, one per row."""
        self.losses += rows.losses(line)

    def add_bad_place(self, line: Line) -> None:
        """Add where a number became bad."""
        self.bad_places.append(from_json(BadPlace, line))

    def add_bracket(self, line: Line) -> None:
        """Add where an update stopped being finite, by layer."""
        self.brackets.append(from_json(BracketSeen, line))

    def set_look_cost(self, line: Line) -> None:
        """Set what probes of the layers saw and took so far."""
        self.look_cost = from_json(LookCost, line)

    def add_layers(self, line: Line) -> None:
        """Add the names of layers."""
        self.layers.add_layers(health_rows.layers(line))

    def add_layer_norms(self, line: Line) -> None:
        """Add the norms of layers in one update."""
        self.layers.add_norms(*health_rows.layer_norms(line))

    def add_evaluations(self, line: Line) -> None:
        """Add the losses of evaluations, one evaluation per row."""
        self.evaluations += health_rows.evaluations(line)

    def set_kept_graphs(self, line: Line) -> None:
        """Set whether the graphs of early updates are alive."""
        self.kept_graphs = read_graphs(line)

    def set_weight_use(self, line: Line) -> None:
        """Set which weights learned nothing so far."""
        self.weight_use = read_weights(line)

    def add_batches(self, line: Line) -> None:
        """Add the batches that were looked at, one per row."""
        self.batches += batch_rows.batches(line)

    def set_epoch(self, line: Line) -> None:
        """Set how far an epoch of a loader came, and how large its batches become."""
        found = read_epoch(line)
        self.epochs[found.loader, found.epoch] = found

    def set_window(self, line: Line) -> None:
        """Set the window under a profiler; there is at most one."""
        found = from_json(WindowSeen, line)
        if found.missing is None and len(found.t) != 2:
            raise ValueError(f"`t` must be two numbers, got {found.t}")
        self.window = found

    def add_memory(self, line: Line) -> None:
        """Add a sample; all are kept, but a line that was written twice counts once."""
        sample = from_json(MemorySample, line)
        self.memory[sample.t] = sample

    def set_sites(self, line: Line) -> None:
        """Set the places of the walked updates; the second window replaces the first.

        Later windows belong to optimizers that had not stepped then.
        """
        num_updates = rows.whole_number(line, "updates")
        if num_updates < 1:
            raise ValueError(f"`updates` must be above zero, got {num_updates}")
        optimizers = tuple(int(one) for one in line.get("optimizers", ()))
        seen = SitesSeen(
            num_updates=num_updates, sites=tuple(rows.sites(line)), optimizers=optimizers
        )
        if line.get("is_late"):
            self.late_sites.append(seen)
        else:
            self.early_sites, self.sites = self.sites, seen

    def set_spans(self, line: Line) -> None:
        """Set the places of spans over the run."""
        self.spans = tuple(rows.sites(line))

    def set_operators(self, line: Line) -> None:
        """Set the operators; a count is worth more than a reason for none."""
        found = from_json(OperatorCounts, line)
        if found.missing is None or self.operators is None:
            self.operators = found

    def add_count(self, line: Line) -> None:
        """Add the work of an update, or why it is not known."""
        self.counts.append(read_count(line))

    def set_compiled(self, line: Line) -> None:
        """Set the compiling so far."""
        num_graphs, breaks, recompiles = rows.compile_events(line)
        self.compiled = CompileSeen(
            num_graphs=num_graphs, breaks=tuple(breaks), recompiles=tuple(recompiles)
        )

    def add_switches(self, line: Line) -> None:
        """Add debug switches; their union counts."""
        self.switches.update(from_json(_Switches, line).on)

    def set_attention(self, line: Line) -> None:
        """Set how the update that was looked into computes attention."""
        self.attention = from_json(AttentionSeen, line)

    def set_loaders(self, line: Line) -> None:
        """Set all loaders that the training read from so far."""
        self.loaders = from_json(_Loaders, line).loaders

    def set_awaited(self, line: Line) -> None:
        """Set the processes that were waited for so far."""
        found = from_json(_Awaited, line).processes
        self.awaited = tuple(sorted(found, key=lambda one: -one.total_s))

    def set_shapes(self, line: Line) -> None:
        """Set the shapes of the models' inputs, and whether they are of tokens."""
        found = from_json(_Shapes, line)
        self.input_shapes, self.has_tokens = found.shapes, found.has_tokens

    def add_lever(self, line: Line) -> None:
        """Add a lever of the plan itself; `tune` reads those of an experiment's states."""
        lever = from_json(LeverLine, line)
        if lever.state is None:
            self.levers.append(lever)

    def add_pauses(self, line: Line) -> None:
        """Add long collections of garbage, one per row."""
        self.pauses += rows.pauses(line)

    def add_compilings(self, line: Line) -> None:
        """Add what torch compiled since the line before, one compilation per row."""
        self.compilings += rows.compilings(line)

    def freeze(self) -> Signals:
        """Return all signals as a value, lists as tuples."""
        known = {one.name: getattr(self, one.name) for one in fields(Signals)}
        known |= {name: tuple(one) for name, one in known.items() if isinstance(one, list)}
        known["memory"] = tuple(self.memory[t] for t in sorted(self.memory))
        known["switches"] = tuple(sorted(self.switches))
        known["epochs"] = tuple(self.epochs.values())
        known["late_sites"] = (*self.late_sites, *filter(None, [self.early_sites]))
        return Signals(**known)


TAKE_SIGNAL: Mapping[str, Callable[[SignalLines, Line], None]] = {
    kinds.MEMORY: SignalLines.add_memory,
    kinds.SITES: SignalLines.set_sites,
    kinds.SPANS: SignalLines.set_spans,
    kinds.OPERATORS: SignalLines.set_operators,
    kinds.COUNT: SignalLines.add_count,
    kinds.COMPILED: SignalLines.set_compiled,
    kinds.SWITCHES: SignalLines.add_switches,
    kinds.ATTENTION: SignalLines.set_attention,
    kinds.LOADERS: SignalLines.set_loaders,
    kinds.AWAITED: SignalLines.set_awaited,
    kinds.SHAPES: SignalLines.set_shapes,
    kinds.LEVER: SignalLines.add_lever,
    kinds.PAUSES: SignalLines.add_pauses,
    kinds.COMPILINGS: SignalLines.add_compilings,
    kinds.WINDOW: SignalLines.set_window,
    kinds.LOSSES: SignalLines.add_losses,
    kinds.NON_FINITE: SignalLines.add_bad_place,
    kinds.BRACKET: SignalLines.add_bracket,
    kinds.LOOK_COST: SignalLines.set_look_cost,
    kinds.LAYERS: SignalLines.add_layers,
    kinds.LAYER_NORMS: SignalLines.add_layer_norms,
    kinds.GRAPHS_KEPT: SignalLines.set_kept_graphs,
    kinds.WEIGHTS: SignalLines.set_weight_use,
    kinds.EVALUATIONS: SignalLines.add_evaluations,
    kinds.BATCHES: SignalLines.add_batches,
    kinds.LONGEST: SignalLines.set_epoch,
    kinds.START_UP: SignalLines.set_start_up,
    kinds.CHECKPOINTS: SignalLines.add_checkpoints,
    kinds.LOGGING: SignalLines.set_logging,
    kinds.ASKED: SignalLines.add_asked,
    kinds.OPTIMIZERS: SignalLines.set_optimizers,
}
"""The method that takes a line, by its `k`."""


def read_count(line: Line) -> CountSeen:
    """Return the work of an update that a line holds."""
    told = from_json(CountSeen, line)
    if told.missing is not None:
        return CountSeen(missing=told.missing)
    if told.sizes and (len(told.sizes) != len(SIZES) or told.optimizer is None):
        raise ValueError(f"`sizes` must be {len(SIZES)} numbers, got {told.sizes}")
    num_updates = from_json(_CountTold, line).updates
    return replace(told, count=from_json(Count, line), num_updates=num_updates)
