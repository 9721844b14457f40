"""What a lever is: the contract between the search, the guest and the one file of a lever.

The parent reads the declarations and asks `applies` and `space`. The guest loads the same file
inside the user's process, under a private name, and calls `apply`. So this module and every lever
import only the standard library, and torch only inside functions. Python 3.10 and up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

Settings = Mapping[str, "str | int | float | bool"]
"""The settings of a lever by name; empty for a lever that is only on or off."""

Undo = Callable[[], None]
"""Reverses what the call that returned it did."""

FLOAT32_ROUNDOFF = 2.0**-24
"""Unit roundoff of float32: half the distance from 1 to the next number."""


class Preserves(str, Enum):
    """What a lever leaves unchanged; this alone decides how the lever is verified."""

    EXACT = "EXACT"
    """The same bits."""
    NUMERIC = "NUMERIC"
    """The same mathematics with other rounding."""
    STATISTICAL = "STATISTICAL"
    """The same distribution with other random draws."""
    NOTHING = "NOTHING"
    """It changes the training."""


class Moment(str, Enum):
    """When a lever acts."""

    ENVIRONMENT = "ENVIRONMENT"
    """In the environment variables of the command, before it starts."""
    STARTUP = "STARTUP"
    """Once torch is imported, before the script continues."""
    LIVE = "LIVE"
    """Between two steps; it can be switched on and off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """One optimizer of the script, as its first step found it; `name` is its class."""

    name: str
    is_fused: bool = False
    is_foreach: bool | None = None
    can_fuse: bool = False
    """True if its class accepts `fused` on this device and each parameter can be fused."""
    num_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingFacts:
    """The padding in the batches that one loader gave; fractions are of all their positions.

    Where no mask told what is padding, `side` is None, and the fractions mean nothing.
    `grouped_fraction` is what remains if the same rows are put into batches by length, each cut to
    its longest row.
    """

    num_batches: int
    side: str | None = None
    """`right`: it stands behind the rows; `left`: in front of some of them."""
    useful_fraction: float = 1.0
    longest_fraction: float = 1.0
    """What remains if each batch is cut to its longest row."""
    grouped_fraction: float = 1.0
    is_fixed: bool = False
    """All batches have one length, whatever their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRate:
    """How fast the training went with a number of loader workers, in batches per second."""

    num_workers: int
    batches_per_s: float
    prefetch_factor: int | None = None
    num_batches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """One DataLoader that fed training; `dataset` is the class of its data set."""

    dataset: str
    num_workers: int = 0
    batch_size: int | None = None
    persistent_workers: bool = False
    prefetch_factor: int | None = None
    pin_memory: bool = False
    is_iterable: bool = False
    is_tensor_dataset: bool = False
    """A TensorDataset or a Subset of one, collated by torch's default."""
    is_in_memory: bool = False
    """Batches can be made of its arrays at once: of images in memory, of rows or of windows."""
    num_samples: int | None = None
    is_deterministic: bool | None = None
    """Some samples read twice were equal and moved no random state; None if not tried."""
    is_collate_deterministic: bool | None = None
    """The same for making a batch of some samples."""
    joins_rows: bool | None = None
    """A batch is one row of each sample, whatever the others are."""
    is_pure: bool | None = None
    """Reading samples left the data set's values and generators, and all open files, as before."""
    has_own_sampler: bool = False
    """A sampler or batch sampler that is not torch's own: it may draw in the middle of an epoch."""
    sample_bytes: int | None = None
    sample_s: float | None = None
    """What it takes to read one sample in the training process."""
    kept_bytes: int | None = None
    """What a sample takes as it is before its first draw; None where it cannot be kept so."""
    saved_s: float | None = None
    """What it takes to read a sample up to there."""
    decodes_jpeg: bool | None = None
    """Pillow decoded JPEG files for some samples, or the data set names such files."""
    decodes_png: bool | None = None
    """The same for PNG files."""
    is_shuffled: bool | None = None
    """torch's own batches of torch's own random sampler; None where a sampler is the script's."""
    lengths_from: str | None = None
    """Where the lengths of all rows can be had cheaply: `column`, `mask` or `rows`."""
    padding: PaddingFacts | None = None
    prepared: str | None = None
    """The prepared copy that lies beside the folder of the data set; empty where there is none."""
    neighbor_sampling: str | None = None
    """How it samples neighbors of a graph, in the words of `_neighbor_sampling`; empty: not so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFacts:
    """One DistributedDataParallel of the script, and how it exchanges gradients."""

    gradient_bytes: int = 0
    bucket_bytes: int = 25 << 20
    """The size from which a bucket of gradients is sent."""
    gradient_dtypes: tuple[str, ...] = ()
    backend: str | None = None
    has_bucket_view: bool = False
    """Gradients lie in the buckets themselves."""
    is_static: bool = False
    finds_unused: bool = False
    """It searches the graph of each step for parameters without a gradient."""
    can_be_static: bool | None = None
    """By torch's own record, the same parameters had a gradient in each step; None if not told."""
    has_hook: bool = False
    """The script exchanges gradients by a communication hook."""
    is_uneven: bool = False
    """Its `join` lets ranks have more batches than others."""
    exchanges_per_update: int | None = None
    """In each update, each exchange after one call and one backward; None where that differed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOperator:
    """All calls of one operator in one forward of a block; `name` is torch's own."""

    name: str
    seconds: float
    result_bytes: int
    num: int = 1
    can_keep: bool = True
    """Its results can be kept: it draws no random number, and they are no views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """What one repeated block keeps for its backward, and how long its forward takes.

    `name` is the class of the outermost model and the path of the block in it.
    """

    name: str
    kept_bytes: int
    """What autograd keeps of its call, without weights and buffers, each storage once."""
    input_bytes: int
    """What it is called with: that stays if it is computed again."""
    forward_s: float
    operators: tuple[BlockOperator, ...] = ()
    """Empty where they were not timed, or none of their results may be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about script and machine when levers are chosen; None was not observed.

    An empty tuple was observed: there is none. A lever does not refuse because something was not
    observed, unless it must be known for the training to stay as it is; its reason then says so.

    `capabilities` are lower-case words: `authenticamd`, `amx_bf16`, `avx512_bf16`, `avx512_fp16`
    for a CPU, `sm_80` for a device. `libraries` maps `jemalloc` and `tcmalloc` to the files found
    here, `glibc` to its version (`tune.trials.libraries`), and `python` to another interpreter if
    the user named one. Cores and memory are what a container allows
    (`tune.trials.resources`). `environment_names` are the variables that the user set.
    `has_sequence_convolution`: in one dimension, over more than one position. `widest_kernel`: the
    columns of the widest kernel of a two-dimensional convolution of one channel. `graph_widths`: of
    the rows that convolutions of PyG read, which sum or average neighbors. `draws_in_calls`: calls
    of models moved torch's random state, as dropout does. `stepped_cells`: the classes of
    torch's recurrent cells that a module steps in a loop. `plain_attention` are the classes whose
    `forward` writes attention out in single operators, where it can be fused; `kept_attention` says
    in words why other attention cannot be. `written_gelus` are the classes of modules that write
    GELU out in single operators, each with the form of torch's GELU: `NewGELU tanh`.
    `zero_fraction`: of the matrix that models are called with, where it is the same one each time;
    0 where there is none.
    `memory_fraction`: of the memory that the training may have, the part held at its peak.
    `num_recompiles`: of the script's own torch.compile. `num_repeated_blocks`: layers that have
    others of their class and form.

    `kernel_fraction` is the time in the kernel per step, of all threads, over the step's.
    `product_fraction` is the share of a step in matmuls, recurrent layers and attention, on the
    host; None where it is not known.
    `gc_fraction` is the share of a step in Python's garbage collections. `zeroes_gradients`: the
    script fills gradients with zeros instead of dropping them.
    `checkpoint_ways` says how activation checkpointing was called (`reentrant`, `not_reentrant`,
    `unpreserved`: without keeping random states), and `checkpointed_bytes` what one update's
    activations would take without it. `num_numa_nodes` counts the NUMA nodes of the allowed cores.
    `has_simplejpeg`: the script's Python has that package, and `has_torchao`, `has_numba`,
    `has_pytorch_optimizer`, `has_schedulefree`, `has_steptime` the same.
    `worker_rates` are of a trial in which the loader's workers were changed while it trained.
    `has_frozen_calls`: a module that never trains is called in the steps, without gradients.
    `loop_edits` are unified diffs, relative to the folder of the command, that take loops over
    elements out of the script's functions and keep all numbers.
    """

    torch_version: str
    device: str = "cpu"
    device_name: str | None = None
    capabilities: tuple[str, ...] | None = None
    num_cores: int = 1
    num_physical_cores: int | None = None
    available_bytes: int | None = None
    memory_fraction: float | None = None
    num_threads: int | None = None
    sets_threads: bool | None = None
    world_size: int = 1
    num_nodes: int | None = None
    has_infiniband: bool | None = None
    uses_autocast: bool | None = None
    uses_scaler: bool | None = None
    uses_compile: bool | None = None
    num_recompiles: int | None = None
    uses_cudnn_benchmark: bool | None = None
    matmul_precision: str | None = None
    has_convolution: bool | None = None
    is_channels_last: bool | None = None
    has_batch_statistics: bool | None = None
    has_sequence_convolution: bool | None = None
    widest_kernel: int | None = None
    graph_widths: tuple[int, ...] | None = None
    draws_in_calls: bool | None = None
    stepped_cells: tuple[str, ...] | None = None
    plain_attention: tuple[str, ...] | None = None
    kept_attention: tuple[str, ...] | None = None
    written_gelus: tuple[str, ...] | None = None
    zero_fraction: float | None = None
    num_parameters: int | None = None
    num_repeated_blocks: int | None = None
    parameter_dtypes: tuple[str, ...] | None = None
    optimizers: tuple[OptimizerFacts, ...] | None = None
    loaders: tuple[LoaderFacts, ...] | None = None
    exchanges: tuple[ExchangeFacts, ...] | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    environment_names: tuple[str, ...] = ()
    minor_faults_per_step: float | None = None
    kernel_fraction: float | None = None
    product_fraction: float | None = None
    gc_fraction: float | None = None
    zeroes_gradients: bool | None = None
    checkpoint_ways: tuple[str, ...] | None = None
    checkpointed_bytes: int | None = None
    free_device_bytes: int | None = None
    num_numa_nodes: int | None = None
    syncs_per_step: float | None = None
    has_simplejpeg: bool | None = None
    has_torchao: bool | None = None
    has_numba: bool | None = None
    has_pytorch_optimizer: bool | None = None
    has_schedulefree: bool | None = None
    has_steptime: bool | None = None
    worker_rates: tuple[WorkerRate, ...] | None = None
    held_bytes: Mapping[str, int] | None = None
    peak_bytes: Mapping[str, int] | None = None
    peak_phase: str | None = None
    blocks: tuple[BlockFacts, ...] | None = None
    backwards_per_update: int | None = None
    reads_gradients: bool | None = None
    changes_rates_late: bool | None = None
    loop_edits: tuple[str, ...] | None = None
    has_frozen_calls: bool | None = None


class Session(Protocol):
    """What `apply` finds in the user's process; every registration returns its `Undo`.

    A failure inside a lever's wrapper ends the trial, as it would end the training.
    """

    torch: Any
    is_trial: bool
    """What later steps read may be read before they are timed; in a run it may not."""

    def wrap_calls(self, wrapper: Callable[[Callable[..., Any], Any, Any, Any], Any]) -> Undo:
        """Put `wrapper(call, model, args, kwargs)` around the outermost calls of models.

        These are the calls with gradients of models with parameters, as the script makes them.
        `call(model, *args, **kwargs)` continues the call.
        """

    def wrap_plain_calls(self, wrapper: Callable[..., Any]) -> Undo:
        """Put `wrapper(call, module, args, kwargs)` around outermost calls without gradients.

        Evaluations are none of them.
        """

    def wrap_backward(self, wrapper: Callable[[Callable[..., Any], Any, Any], Any]) -> Undo:
        """Put `wrapper(call, args, kwargs)` around each outermost backward call."""

    def before_update(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` before each outermost optimizer step, once its gradients are there.

        If the step has a closure, which makes the gradients, `act` is called after each closure.
        """

    def for_each_model(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(model)` for each model that was called outermost with gradients.

        For a model that comes later, it is called before its first such call.
        """

    def for_each_optimizer(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` for each optimizer that has stepped.

        For an optimizer that comes later, it is called before its first step.
        """

    def count(self, what: str) -> None:
        """Count something that a reader must know about, such as `skipped_update`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverEvidence:
    """What a lever gave one training, as somebody measured it; a loss is as welcome as a gain.

    Attributes:
        training: what was trained, on what: a phrase without a full stop.
        speedup: time without the lever / time with it; null where only a range is known.
        low: the lower end of its range or interval, if one is known.
        high: the upper end.
        remark: what else one must know about it, sentences; empty if nothing.
        source: where it was published, an address; or of ours, a page in docs/ or a file in
            benchmarks/results/.
    """

    training: str
    source: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    remark: str = ""


def never_differs(facts: Facts, settings: Settings) -> Preserves | None:
    """Return None: the lever's own class holds wherever it is used."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One remedy; each lever file holds one, named `LEVER`.

    Attributes:
        name: snake_case, the file's name.
        title: what it does, one sentence.
        relieves: the bottleneck kinds that it helps, in the words of `BottleneckKind`.
        phases: the phases and spans whose time it can shorten, for the headroom.
        preserves: the weakest class that it has anywhere.
        reorders: samples come in another order; it is then judged beside runs with other orders.
        class_here: the class for these facts and settings if it differs, else None.
        roundoff: the unit roundoff of its arithmetic, for `NUMERIC`.
        when: when it applies, one sentence.
        applies: returns None, or why it does not apply here, one sentence for the user.
        space: returns the settings to try here, smallest first; one empty mapping for a switch.
        moment: when it acts.
        live_where: returns whether it can be switched on and off here, by the facts, though its
            moment is STARTUP; `apply` then returns what reverses everything.
        saves: returns the fraction of time that it can shorten at most, by the facts, and None
            where they are not known; without it, and at most, its phases say so.
        frees: returns the bytes of a step's peak that a setting frees, an estimate by the facts;
            negative where it takes more, None where that is not known. It is None for a lever that
            is not about memory.
        judged_by_cpu_time: it changes no threads and no overlap, so CPU time may judge it. One
            that may save waiting too (`fetch`) can then be proven, and not be denied.
        judged_beside_others: busy neighbors can only hide what it gives, so that wall time may
            prove it beside them, in pairs in which they had no less of the machine with it.
        variables: for ENVIRONMENT: returns the variables to set, given the settings and
            `Facts.libraries`. A value of LD_PRELOAD is put before the user's.
        apply: for STARTUP and LIVE: acts in the child; what LIVE returns reverses everything.
        edit: returns the source edit that makes it permanent, or else the launch line.
        costs: what it costs: memory, start-up time, what may break.
        source: the paper, release note or documentation page.
        evidence: what it gave in trainings, published and measured by us. That of our own levers
            stands in `lever_evidence.py`, because the guest loads a lever's file and needs none.
    """

    name: str
    title: str
    relieves: tuple[str, ...]
    phases: tuple[str, ...]
    preserves: Preserves
    when: str
    applies: Callable[[Facts], str | None]
    space: Callable[[Facts], tuple[Settings, ...]] = lambda facts: ({},)
    moment: Moment
    edit: Callable[[Settings], str]
    costs: str
    source: str
    reorders: bool = False
    class_here: Callable[[Facts, Settings], Preserves | None] = never_differs
    roundoff: Callable[[Settings], float] = lambda settings: FLOAT32_ROUNDOFF
    saves: Callable[[Facts], float | None] | None = None
    frees: Callable[[Facts, Settings], int | None] | None = None
    judged_by_cpu_time: bool = False
    judged_beside_others: bool = False
    live_where: Callable[[Facts], bool] = lambda facts: False
    variables: Callable[[Settings, Mapping[str, str]], Mapping[str, str]] | None = None
    apply: Callable[[Settings, Session], Undo | None] | None = None
    evidence: tuple[LeverEvidence, ...] = ()

    def is_live(self, facts: Facts) -> bool:
        """Return whether it can be switched between two steps."""
        return self.moment is Moment.LIVE or self.live_where(facts)
