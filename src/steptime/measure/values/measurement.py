"""The values of the chain: Run, Measurement, Diagnosis.

Frozen, made of plain fields, and each survives a round trip through JSON
(`core.codec`). Seconds, bytes and fractions only; None means "not observed".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd
from steptime.measure.values.anatomy import Anatomy
from steptime.measure.values.observations import (
    Compilation,
    GcPauses,
    LoaderUse,
    MemoryUse,
    Operators,
    RecipeUse,
    ScriptError,
    Site,
    Suspicion,
    Switch,
)
from steptime.measure.values.profiled import Profile
from steptime.measure.values.stall import Stall
from steptime.measure.values.work import Count

PHASES = (
    "input_wait",
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
"""Parts of `input_wait`, seen where the loading happens in the training process."""

SPANS = ("evaluation", "checkpoint", "epoch_start", "compile")
"""What is kept apart from the steps, with totals of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One round of optimizer updates on one rank, spans taken out.

    `wall_s`, `cpu_s` and `device_s` hold exclusive times by phase name (`fetch`
    and `collate` apart from `input_wait`); `spans_s` what was kept apart from the
    step. The first step of a stream has no beginning of its own: `is_first`. Where
    not `is_detailed`, all CPU time is in `other`, and `fetch` and `collate` are in
    `input_wait`: the guest takes them apart on sampled updates only. `prepare_s` is the part of
    `other` between a batch's arrival and the model's call, `gc_s` what collections of garbage
    took, in whatever phase they fell. Where `is_disturbed`, a probe of ours made it longer,
    or the run stood still in it.
    """

    index: int
    end_s: float
    wall_s: Mapping[str, float]
    cpu_s: Mapping[str, float]
    spans_s: Mapping[str, float]
    device_s: Mapping[str, float] | None = None
    num_updates: int = 1
    num_backwards: int = 0
    num_skipped: int = 0
    num_copies: int = 0
    num_syncs: int = 0
    num_batches: int = 0
    optimizers: tuple[int, ...] = ()
    gc_pauses: int = 0
    gc_s: float = 0.0
    prepare_s: float = 0.0
    is_first: bool = False
    is_detailed: bool = True
    is_disturbed: bool = False

    @property
    def step_time_s(self) -> float:
        """Wall time of the step [s], spans excluded."""
        return sum(self.wall_s.values())

    @property
    def step_cpu_s(self) -> float:
        """Process CPU time of the step [s], spans excluded."""
        return sum(self.cpu_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase over the steady window; None where it was not observed.

    Attributes:
        name: one of `PHASES` or `INNER_PHASES`.
        median_s: median wall time a step [s].
        fraction: the phase's total over the total of the steady window.
        cpu_median_s: median process CPU time a step [s].
        device_median_s: median device time a step [s].
        missing: why it was not observed, a machine word.
    """

    name: str
    median_s: float | None = None
    fraction: float | None = None
    cpu_median_s: float | None = None
    device_median_s: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Time kept apart from the steps, summed over the whole run of one rank."""

    name: str
    total_s: float
    num_steps_touched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """The steps that count: those after warmup, without steps disturbed by a probe of ours.

    `mean_s` is the mean of their times by `core.stats.bounded_mean`: what runs are compared by.
    """

    first_step: int
    num_steps: int
    num_warmup_steps: int
    rule: str
    step_time_s: Interval | None = None
    step_cpu_s: Interval | None = None
    mean_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """One process that stepped.

    `versions` are those of imported libraries; `input_shapes` of the models' first tensors, as
    `64x3x224x224 float32`, where two early steps agree in them.
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
    versions: Mapping[str, str] | None = None
    input_shapes: tuple[str, ...] = ()
    loaders: tuple[LoaderUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What the DataLoader's worker processes reported, over all of them."""

    num_workers: int
    num_batches: int
    fetch_s_per_batch: float
    collate_s_per_batch: float
    cpu_s_per_batch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """Load of the machine while the steady window ran, in cores; means over samples.

    `swap_in_bytes_per_s` is the whole machine's mean over the window; `min_available_bytes` and
    `num_oom_kills` (by the kernel, in the command's group or its machine) are of the whole run.
    """

    num_cores: int
    job_cores: float
    others_cores: float
    num_samples: int
    swap_in_bytes_per_s: float | None = None
    min_available_bytes: int | None = None
    num_oom_kills: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What Steptime itself cost inside the training process."""

    cpu_s_per_step: float
    fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was seen of one run.

    `prepare_fraction` is the share of the steady window between a batch's arrival and the
    model's call, a part of `other`; None where no loader or no call of a model was seen. `count`
    is the work of one sampled step on one rank; `count_missing` why it is not known. `memory` is of
    the rank that holds most; None where no process told of its memory. `profile` is there where the
    user asked for one.
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
    errors: tuple[ScriptError, ...] = ()
    recipe: RecipeUse | None = None
    stalls: tuple[Stall, ...] = ()
    count: Count | None = None
    count_missing: str | None = None
    memory: Anatomy | None = None
    profile: Profile | None = None
