"""The values of the chain: Run, Measurement, Diagnosis.

They are frozen, have plain fields, and survive a round trip through JSON (`core.codec`). They hold
seconds, bytes and fractions only; None means "not observed".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd
from steptime.measure.values.answer import AskedSteps
from steptime.measure.values.desync import Desync
from steptime.measure.values.machine_load import HostLoad, WorkerSummary
from steptime.measure.values.model.anatomy import Anatomy
from steptime.measure.values.model.attention_call import AttentionCall
from steptime.measure.values.model.health import Health
from steptime.measure.values.model.longest import LongestBatch
from steptime.measure.values.model.profiled import Profile
from steptime.measure.values.model.sense_values import Sense
from steptime.measure.values.model.useful_work import Padding, RankBalance
from steptime.measure.values.model.work import Count
from steptime.measure.values.observations import (
    AwaitedProcess,
    Compilation,
    GcPauses,
    LoaderUse,
    MemoryUse,
    Operators,
    PythonLoop,
    RecipeUse,
    ScriptError,
    Site,
    Suspicion,
    Switch,
)
from steptime.measure.values.outliving import OutlivingProcess
from steptime.measure.values.said import LibraryMessage, UnusedSearch
from steptime.measure.values.spent_line import SpentTime, WorkAgain
from steptime.measure.values.stall import Stall
from steptime.measure.values.stopped import StoppedRun
from steptime.measure.values.training_loop import TrainingLoop
from steptime.measure.values.training_values import CommandTraining
from steptime.measure.values.wall_time import WallTime

PHASES = (
    "input_wait",
    "process_wait",
    "rollout",
    "h2d",
    "forward",
    "loss",
    "forward_and_loss",
    "backward",
    "gradient_processing",
    "communication",
    "optimizer",
    "sync",
    "other",
)
"""Phases that partition a step; their fractions sum to 1."""

INNER_PHASES = ("fetch", "collate")
"""Parts of `input_wait`, which are seen where the training process itself loads the data."""

SPANS = ("evaluation", "checkpoint", "epoch_start", "compile")
"""What is kept apart from the steps, with totals of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One round of optimizer updates on one rank, without its spans.

    `wall_s`, `cpu_s` and `device_s` hold exclusive times by phase name (`fetch` and `collate` apart
    from `input_wait`); `spans_s` holds the times that are kept apart from the step. The first step
    of a stream (`is_first`) has no recorded beginning. Where not `is_detailed`, all CPU time is in
    `other`, and `fetch` and `collate` are in `input_wait`: the guest separates them on sampled
    updates only. `counts` are the guest's, by its names (`record.buckets.COUNTS`). Where
    `is_disturbed`, our probe made the step longer, or the run stood still in it.
    """

    index: int
    end_s: float
    wall_s: Mapping[str, float]
    cpu_s: Mapping[str, float]
    spans_s: Mapping[str, float]
    device_s: Mapping[str, float] | None = None
    num_updates: int = 1
    num_skipped: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    optimizers: tuple[int, ...] = ()
    is_first: bool = False
    is_detailed: bool = True
    is_disturbed: bool = False

    def count(self, name: str) -> int:
        """Return one of the guest's counts."""
        return self.counts.get(name, 0)

    @property
    def step_time_s(self) -> float:
        """Return the wall time of the step [s], spans excluded."""
        return sum(self.wall_s.values())

    @property
    def step_cpu_s(self) -> float:
        """Return process CPU time of the step [s], spans excluded."""
        return sum(self.cpu_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase over the steady window; None where it was not observed.

    Attributes:
        name: `input_wait`, `process_wait` (waiting for another process), `rollout` (acting in
            environments, or generating), `h2d`, `forward`, `loss`, `forward_and_loss` (compiled
            together), `backward`, `gradient_processing`, `communication`, `optimizer`, `sync` or
            `other`, whose fractions sum to 1; or a part of `input_wait`, `fetch` or `collate`.
        median_s: median wall time per step [s].
        fraction: the phase's total over the total of the steady window.
        cpu_median_s: median process CPU time per step [s].
        device_median_s: median device time per step [s].
        mean_s: mean wall time per step, of which `fraction` is the share [s].
        cpu_mean_s: mean process CPU time per step [s].
        device_mean_s: mean device time per step [s].
        missing: why it was not observed, as a machine word.
    """

    name: str
    median_s: float | None = None
    fraction: float | None = None
    cpu_median_s: float | None = None
    device_median_s: float | None = None
    mean_s: float | None = None
    cpu_mean_s: float | None = None
    device_mean_s: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Time kept apart from the steps, summed over the whole run of one rank.

    Attributes:
        name: `evaluation`, `checkpoint`, `epoch_start` or `compile`.
        total_s: total wall time [s].
        num_steps_touched: number of steps it fell into.
        outside_s: of it what came before the first step, and after the last one, beyond the longest
            between two steps [s]: one more of these belongs to the loop, and a test of the trained
            model does not. The first start of workers is outside as a whole.
    """

    name: str
    total_s: float
    num_steps_touched: int
    outside_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """The steps that count: those after warm-up, without steps that were disturbed.

    Attributes:
        first_step: index of its first step, from 0.
        num_steps: how many steps count.
        num_warmup_steps: steps cut off before it, without those beside a busy neighbor.
        rule: the rule that chose the window, as a sentence.
        step_time_s: wall time of a step without spans [s].
        step_cpu_s: CPU time of the process per step, over all threads and without spans [s].
        mean_s: mean wall time of a step, with the outermost hundredth at each end pulled in [s];
            comparisons of runs use it.
        num_beside_neighbor: steps left out, wherever they are, because other programs took cores
            then that the run wanted.
        mean_of_all_s: mean wall time of a step with those beside a busy neighbor, for comparisons
            with what is summed over the whole run [s]; None where no step was left out.
        num_other_loops: steps left out because they belong to other loops of the process.
    """

    first_step: int
    num_steps: int
    num_warmup_steps: int
    rule: str
    step_time_s: Interval | None = None
    step_cpu_s: Interval | None = None
    mean_s: float | None = None
    num_beside_neighbor: int = 0
    mean_of_all_s: float | None = None
    num_other_loops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """One process that stepped.

    Attributes:
        rank: rank as in torch.distributed, else in order of the first step.
        pid: process id.
        world_size: number of ranks that the process knows of.
        python_version: version of Python in the process.
        torch_version: version of torch in the process.
        device: device that it trained on.
        num_threads: threads that torch computes with.
        num_steps: optimizer steps, which are rounds of updates.
        num_optimizer_updates: completed calls of an optimizer's `step`; more than `num_steps`
            where several optimizers take turns.
        num_backwards: backward passes; more than `num_steps` under gradient accumulation.
        step_time_s: wall time of a step of this rank [s].
        step_cpu_s: CPU time of a step of this rank [s].
        phases: the phases of its steps.
        ended_cleanly: false if the process was killed, crashed or left by `os._exit`; then at most
            the last 0.2 s of its steps are missing.
        host_memory: resident memory of the process.
        device_memory: memory allocated on its device.
        gc: its collections of garbage.
        device_name: name of the device, as torch gives it.
        device_bytes: memory of the device; null without one [bytes].
        num_multiprocessors: multiprocessors (compute units) of the device; null without one.
        versions: versions of the imported libraries other than torch.
        input_shapes: shapes and types of the models' first tensors, such as `64x3x224x224
            float32`, where two early steps agree in them.
        loaders: the loaders that training reads from.
        awaited: the processes that it waited for, the longest first; empty where it waited for
            none.
        tokens_per_step: tokens of the models' inputs in a mean step of the window, including
            padding; null where the inputs are no tokens.
        rows_per_step: leading sizes of the models' inputs in a mean step, summed over the calls
            with gradients; null where no input was seen.
        useful_fraction: share of the positions of its batches that are no padding; null if untold.
        where: the line that steps its first optimizer, as `train.py:31`; null if not known.
        capabilities: its processor's maker and what it can do in 16 bits, as `authenticamd` and
            `amx_bf16`; null on a device.
        optimizers: classes of its optimizers, those of other libraries as `keras.Adam`.
        num_exchanges: of gradients, as DDP told, or FSDP2 where the script decides; else null.
    """

    rank: int
    pid: int
    world_size: int
    python_version: str
    torch_version: str
    device: str
    num_threads: int | None
    num_steps: int
    num_optimizer_updates: int
    num_backwards: int
    step_time_s: Interval | None
    step_cpu_s: Interval | None
    phases: tuple[Phase, ...]
    ended_cleanly: bool
    host_memory: MemoryUse | None = None
    device_memory: MemoryUse | None = None
    gc: GcPauses | None = None
    device_name: str | None = None
    device_bytes: int | None = None
    num_multiprocessors: int | None = None
    versions: Mapping[str, str] | None = None
    input_shapes: tuple[str, ...] = ()
    loaders: tuple[LoaderUse, ...] = ()
    awaited: tuple[AwaitedProcess, ...] = ()
    tokens_per_step: float | None = None
    rows_per_step: float | None = None
    useful_fraction: float | None = None
    where: str | None = None
    capabilities: tuple[str, ...] | None = None
    optimizers: tuple[str, ...] = ()
    num_exchanges: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What Steptime itself cost inside the training process.

    Attributes:
        cpu_s_per_step: CPU time per step [s].
        fraction: the same as a fraction of a mean step's CPU time.
    """

    cpu_s_per_step: float
    fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was seen of one run; of a command with several trainings, what was seen of one.

    Attributes:
        schema: version of the record.
        run_id: name of the run's folder.
        command: the measured command, as the user gave it.
        started_unix_s: when it was started [s since 1970, UTC].
        duration_s: wall time from start to end [s].
        end: how the command ended.
        num_steps: steps, which are rounds of optimizer updates. With several ranks, those of one
            rank.
        num_optimizer_updates: completed calls of an optimizer's `step`; more than `num_steps`
            where several optimizers take turns.
        num_backwards: backward passes; more than `num_steps` under gradient accumulation.
        num_skipped_updates: updates that the gradient scaler skipped.
        num_ranks: number of processes that stepped.
        period: number of steps after which the kinds of step repeat, if they do.
        steady: the steady window; None where there are too few steps.
        phases: those of a step over the steady window; one that was not observed says why.
        spans: the times that are kept apart from the steps, if there were any.
        copies_per_step: mean number of host-to-device copies per step.
        syncs_per_step: mean number of calls per step that make the host wait for the device, or
            would do so with a device.
        counts_per_step: what the guest counts, in a mean step of the steady window, by the names of
            the run folder; those of times are in seconds.
        ranks: a summary of each process that stepped.
        workers: the DataLoader's worker processes; None where there were none.
        host: load of the machine in the steady window, or else in the whole run; None where it
            was not sampled.
        overhead: cost of measuring; None where it is not known.
        notes: what is missing in the record, and why.
        prepare_fraction: share of the steady window between a batch's arrival and the model's
            call, a part of the phase `other`; None where no loader or no such call was seen.
        sites: places in the user's code, the longest first.
        operators: operators of one eager step.
        compilation: what torch.compile did; None where it was not used.
        switches: debug switches found on.
        suspicions: what looks wrong in the source.
        python_loops: loops over elements in the user's own Python, in lines that were timed; those
            in the longest lines first.
        spent: the lines of the script that the time of its steps goes to; None where too few stacks
            were sampled.
        repeats: frozen modules and data sets whose rows come again, bit for bit.
        attention: how one counted update computes attention, by line; empty where it computes
            none, None where no update was examined (`count_missing` mostly says why).
        errors: exceptions that ended processes of the command.
        recipe: the recipe that the run trained with, and whether its levers worked; None
            without `--recipe`.
        stalls: the times when the run stood still, in order.
        count: the work of the mean step of the window on one rank; `basis` says how it is known.
        count_missing: why the work is not known, as a machine word; None where it is known, or
            where nothing was reported.
        memory: what holds the memory, in the rank that holds most; None where none reported it.
        profile: what a profiler saw; None where no profile was asked for.
        training: which training of the command this is; None where no process stepped.
        given_peaks: dense peaks of the device by type, as `--peak` gave them [FLOP/s]; or empty.
        outliving: the processes that may go on training although the command has returned.
        sense: what tells whether the training does what its owner thinks.
        health: the losses of the training, numbers that are not finite, and weights that learned
            nothing; None where nothing of it was seen.
        asked: steps that were examined because somebody asked while the run trained, in order.
        padding: how much of the batches is padding; None where nothing told of it.
        longest_batch: the largest batch of the epoch, and what its step will hold; None where no
            loader fed the training.
        balance: how even the work of the ranks is; None with one rank, or where inputs tell no
            lengths.
        desync: calls of the ranks that differed when the run failed; those of a stall are in
            `stalls`; None where nothing shows any.
        price_per_h: what an hour of the machine costs, in the user's currency; None without
            `--hourly-price`.
        wall_time: the whole time of the run by what it was spent on; None where no step was seen.
        loops: the loops of the process that made most steps, in the order of first steps, where it
            has several; `steady` and `phases` are then of the one that took most time.
        said: what libraries said during the run: warnings, and log records at WARNING and above.
        unused_search: DDP's search for unused parameters; None where DDP was not told to search.
        stopped: why `--stop-on` ended the run; None where it did not.
    """

    schema: int
    run_id: str
    command: tuple[str, ...]
    started_unix_s: float
    duration_s: float | None
    end: ProcessEnd
    num_steps: int
    num_optimizer_updates: int
    num_backwards: int
    num_skipped_updates: int
    num_ranks: int
    period: int | None
    steady: SteadyWindow | None
    phases: tuple[Phase, ...]
    spans: tuple[Span, ...]
    copies_per_step: float | None
    syncs_per_step: float | None
    ranks: tuple[RankSummary, ...]
    workers: WorkerSummary | None
    host: HostLoad | None
    overhead: Overhead | None
    notes: tuple[Note, ...]
    prepare_fraction: float | None = None
    sites: tuple[Site, ...] = ()
    operators: Operators | None = None
    compilation: Compilation | None = None
    switches: tuple[Switch, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    python_loops: tuple[PythonLoop, ...] = ()
    errors: tuple[ScriptError, ...] = ()
    recipe: RecipeUse | None = None
    stalls: tuple[Stall, ...] = ()
    count: Count | None = None
    count_missing: str | None = None
    memory: Anatomy | None = None
    profile: Profile | None = None
    training: CommandTraining | None = None
    given_peaks: Mapping[str, float] = field(default_factory=dict)
    outliving: tuple[OutlivingProcess, ...] = ()
    health: Health | None = None
    sense: Sense | None = None
    asked: tuple[AskedSteps, ...] = ()
    padding: Padding | None = None
    longest_batch: LongestBatch | None = None
    balance: RankBalance | None = None
    desync: Desync | None = None
    price_per_h: float | None = None
    wall_time: WallTime | None = None
    attention: tuple[AttentionCall, ...] | None = None
    loops: tuple[TrainingLoop, ...] = ()
    counts_per_step: Mapping[str, float] | None = None
    spent: SpentTime | None = None
    repeats: tuple[WorkAgain, ...] = ()
    said: tuple[LibraryMessage, ...] = ()
    unused_search: UnusedSearch | None = None
    stopped: StoppedRun | None = None
