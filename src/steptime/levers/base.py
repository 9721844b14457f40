"""What a lever is: the contract between the search, the guest and the one file a lever has.

The parent reads the declarations and asks `applies` and `space`; the guest loads the same file
inside the user's process, under a private name, and calls `apply`. So this module and every
lever import the standard library alone, and torch inside functions. Python 3.10 and up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

Settings = Mapping[str, "str | int | float | bool"]
"""The settings of a lever by name; empty for one that is only on or off."""

Undo = Callable[[], None]
"""Takes back what the call that returned it did."""

FLOAT32_ROUNDOFF = 2.0**-24
"""Unit roundoff of float32: half the distance from 1 to the next number."""


class Preserves(str, Enum):
    """What a lever leaves as it is; it alone decides how the lever is verified."""

    EXACT = "EXACT"
    """The same bits."""
    NUMERIC = "NUMERIC"
    """The same mathematics, rounded in another way."""
    STATISTICAL = "STATISTICAL"
    """The same distribution, other draws."""
    NOTHING = "NOTHING"
    """It changes the training."""


class Moment(str, Enum):
    """When a lever acts."""

    ENVIRONMENT = "ENVIRONMENT"
    """In the variables of the command, before it starts."""
    STARTUP = "STARTUP"
    """Once torch is there, before the script goes on."""
    LIVE = "LIVE"
    """Between two steps, and back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFacts:
    """One optimizer of the script, as its first step found it; `name` is its class's."""

    name: str
    is_fused: bool = False
    is_foreach: bool | None = None
    can_fuse: bool = False
    """True where its class takes `fused` on this device and each parameter can be fused."""
    num_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """One DataLoader that fed training; `dataset` is its class's name."""

    dataset: str
    num_workers: int = 0
    batch_size: int | None = None
    persistent_workers: bool = False
    prefetch_factor: int | None = None
    pin_memory: bool = False
    is_iterable: bool = False
    is_tensor_dataset: bool = False
    """A TensorDataset, or a Subset of one, collated by torch's default."""
    num_samples: int | None = None
    is_deterministic: bool | None = None
    """Some samples read twice were equal and moved no random state; None where not tried."""
    is_collate_deterministic: bool | None = None
    """The same of making a batch of some samples."""
    has_own_sampler: bool = False
    """A sampler or batch sampler that is not one of torch's: it may draw as it goes."""
    sample_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of script and machine when levers are chosen; None: not observed.

    `capabilities` are lower-case words: `amx_bf16`, `avx512_bf16`, `avx512_fp16` of a CPU,
    `sm_80` of a device. `libraries` maps `jemalloc` and `tcmalloc` to the files found here, and
    `glibc` to its version (`tune.trials.libraries`). Cores and memory are what a container
    leaves of the machine's (`tune.trials.resources`). `environment_names` are the variables
    that the user set.
    """

    torch_version: str
    device: str = "cpu"
    device_name: str | None = None
    capabilities: tuple[str, ...] = ()
    num_cores: int = 1
    num_physical_cores: int | None = None
    available_bytes: int | None = None
    num_threads: int | None = None
    sets_threads: bool = False
    world_size: int = 1
    uses_autocast: bool = False
    uses_scaler: bool = False
    uses_compile: bool = False
    matmul_precision: str | None = None
    has_convolution: bool | None = None
    is_channels_last: bool = False
    has_batch_statistics: bool | None = None
    num_parameters: int | None = None
    parameter_dtypes: tuple[str, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    loaders: tuple[LoaderFacts, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    environment_names: tuple[str, ...] = ()
    minor_faults_per_step: float | None = None
    system_cpu_fraction: float | None = None


class Session(Protocol):
    """What `apply` finds in the user's process; every registration returns its `Undo`.

    A failure inside a wrapper of a lever is the trial's end, as it would be the training's.
    """

    torch: Any

    def wrap_calls(self, wrapper: Callable[[Callable[..., Any], Any, Any, Any], Any]) -> Undo:
        """Put `wrapper(call, model, args, kwargs)` around the outermost calls of models.

        Those with gradients and with parameters, as the script makes them.
        `call(model, *args, **kwargs)` goes on with the call.
        """

    def wrap_backward(self, wrapper: Callable[[Callable[..., Any], Any, Any], Any]) -> Undo:
        """Put `wrapper(call, args, kwargs)` around each outermost backward call."""

    def before_update(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` before each outermost optimizer step, with its gradients there.

        Where the step has a closure, which makes them, after each call of that.
        """

    def for_each_model(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(model)` for each model that was called outermost with gradients.

        For one that has not been yet, before its first such call.
        """

    def for_each_optimizer(self, act: Callable[[Any], None]) -> Undo:
        """Call `act(optimizer)` for each optimizer that stepped.

        For one that has not yet, before its first step.
        """

    def count(self, what: str) -> None:
        """Count something that a reader must know of: `skipped_update`, say."""


def never_differs(facts: Facts, settings: Settings) -> Preserves | None:
    """The lever's own class holds wherever it is used."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One remedy; each lever file holds one, named `LEVER`.

    Attributes:
        name: snake_case, the file's name.
        title: what it does, one sentence.
        relieves: bottleneck kinds that it helps, the words of `BottleneckKind`.
        phases: phases and spans whose time it can shorten, for the headroom.
        preserves: the weakest class that it has anywhere.
        class_here: the class for these facts and settings where it differs, else None.
        roundoff: unit roundoff of its arithmetic, for `NUMERIC`.
        when: when it applies, one sentence.
        applies: None, or why it does not apply here, one sentence for the user.
        space: the settings to try here, smallest first; one empty mapping for a switch.
        moment: when it acts.
        judged_by_cpu_time: it changes neither threads nor waiting nor overlap.
        variables: ENVIRONMENT: the variables to set, given the settings and `Facts.libraries`.
            A value of LD_PRELOAD is put before the user's.
        apply: STARTUP and LIVE: act in the child; what LIVE returns takes everything back.
        edit: the source edit that makes it permanent, or the launch line where none can.
        costs: what it costs: memory, start-up, what may break.
        source: paper, release note or documentation page.
    """

    name: str
    title: str
    relieves: tuple[str, ...]
    phases: tuple[str, ...]
    preserves: Preserves
    when: str
    applies: Callable[[Facts], str | None]
    space: Callable[[Facts], tuple[Settings, ...]]
    moment: Moment
    edit: Callable[[Settings], str]
    costs: str
    source: str
    class_here: Callable[[Facts, Settings], Preserves | None] = never_differs
    roundoff: Callable[[Settings], float] = lambda settings: FLOAT32_ROUNDOFF
    judged_by_cpu_time: bool = False
    variables: Callable[[Settings, Mapping[str, str]], Mapping[str, str]] | None = None
    apply: Callable[[Settings, Session], Undo | None] | None = None
