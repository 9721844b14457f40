"""Who holds the memory of a training process, and when it holds most.

In: what the guest read of parameters, states and graphs, and of one step's storages. Out: an
`Anatomy`, which survives a round trip through JSON. `plan.memory_fit` decides what would make a run
fit; docs/explanation/memory.md says how each part is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARTS = (
    "weights",
    "buffers",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "inputs",
    "others",
    "temporaries",
    "communication",
    "context",
    "fragmentation",
)
"""Parts of a training process's memory. Only a device has the last two."""

STATES = ("weights", "buffers", "gradients", "optimizer")
"""What stays from step to step."""

WITH_BATCH = ("activations", "logits", "inputs", "temporaries")
"""What grows with the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """Bytes of one part, with each storage counted once; this rank's share where it is sharded.

    Attributes:
        name: `weights`, `buffers`, `gradients`, `optimizer`, `activations`, `logits`, `inputs`,
            `others`, `temporaries`, `communication`; on a device `context` and `fragmentation`.
        bytes: its size; None where it was not measured.
        by_dtype: the same bytes by type, such as `fp32`, `bf16`, `int8`.
        by_device: the same bytes by device, such as `cpu`, `cuda:0`.
        num_tensors: how many tensors it is made of.
        is_sharded: each rank holds its own share of the part.
        missing: why it was not measured, as a machine word.
    """

    name: str
    bytes: int | None = None
    by_dtype: Mapping[str, int] | None = None
    by_device: Mapping[str, int] | None = None
    num_tensors: int | None = None
    is_sharded: bool = False
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes that the graph keeps for the backward, by the module or kind of node that made them.

    Attributes:
        name: path of the module, or the kind of graph node.
        bytes: bytes that it holds at the beginning of the backward.
        kind: class of the module; None for a node.
    """

    name: str
    bytes: int
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Bytes held at one moment of the step that was followed, by part.

    Attributes:
        at_fraction: place within the step, as a share of its events, so that following the step
            does not stretch it.
        phase: the phase at this moment.
        by_part: bytes held, by part.
    """

    at_fraction: float
    phase: str
    by_part: Mapping[str, int]

    @property
    def total(self) -> int:
        """Return the bytes of all parts."""
        return sum(self.by_part.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """One step: the memory held over its course, and at its peak.

    Attributes:
        instants: moments of the step in order, including the peak.
        peak: the moment at which most memory was held.
        module: module whose call, or whose gradient, was being computed at the peak.
        operator: the operator that ran at the peak.
        num_storages: how many storages were made and released in the step.
    """

    instants: tuple[Instant, ...]
    peak: Instant
    module: str | None = None
    operator: str | None = None
    num_storages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPeak:
    """The most that tensors held at once, over all steps from the steady window on.

    Attributes:
        how: `followed`: no step is larger than one whose storages were followed. `computed`: the
            peaks of larger steps were computed from the sizes of their inputs, by a sum that gives
            the followed peaks from one another. `at_least`: some steps are larger, and their peaks
            are not known; or what is held grows from step to step.
        bytes: the largest peak; for `at_least`, of a step whose peak is known [bytes].
        low_bytes: the smallest known peak of a step [bytes].
        rank: the rank with the largest peak.
        step: number of the first step with the largest peak, from 0.
        num_steps: steps from the steady window on; after the first 20,000 of a run, a hundred at a
            time are known by the mean of their sizes.
        num_followed: steps whose storages were followed.
        grows: a later followed step held more than an earlier one that is nowhere smaller.
        error_fraction: for `computed`, the largest error for a followed step that was left out.
        warmup_bytes: the largest known peak before the steady window; None where there is none
            [bytes].
    """

    rank: int
    how: str
    bytes: int
    low_bytes: int
    step: int
    num_steps: int
    num_followed: int
    grows: bool = False
    error_fraction: float | None = None
    warmup_bytes: int | None = None

    @property
    def differs(self) -> bool:
        """Return whether steps differ in their peaks by more than a hundredth."""
        return self.bytes - self.low_bytes > _SAME_PEAK * self.bytes


_SAME_PEAK = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater:
    """The most that a counter which only rises has seen: whatever the process did is in it.

    Attributes:
        rank: the rank with the highest counter.
        bytes: the counter at the end [bytes].
        first_step: the first step in which it may have been reached, from 0; None where it was
            reached after the last one.
        last_step: the last step in which it may have been reached.
        warmup_bytes: the counter at the beginning of the steady window; None where it was not read
            before [bytes].
    """

    rank: int
    bytes: int
    first_step: int | None = None
    last_step: int | None = None
    warmup_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """What torch's allocator and the driver said of the device after an update [bytes].

    Attributes:
        allocated: memory that torch's allocator has given out [bytes].
        reserved: memory that torch's allocator holds, in use or not [bytes].
        peak_allocated: the most that it has given out since the start [bytes].
        peak_reserved: the most that it has held since the start [bytes].
        split: free memory inside blocks that are partly in use [bytes].
        largest_free_block: the largest piece that it could give out of what it holds [bytes].
        free: free memory of the device, as the driver says [bytes].
        total: whole memory of the device, as the driver says [bytes].
        pinned: host memory that torch has pinned [bytes].
    """

    allocated: int | None = None
    reserved: int | None = None
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    split: int | None = None
    largest_free_block: int | None = None
    free: int | None = None
    total: int | None = None
    pinned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderMemory:
    """The size of a DataLoader's first batch, and how many batches may wait at a time.

    Attributes:
        batch_bytes: size of its first batch [bytes].
        num_workers: worker processes of the loader.
        num_waiting: batches that may wait at a time.
        is_pinned: the loader copies batches to pinned memory.
    """

    batch_bytes: int
    num_workers: int = 0
    num_waiting: int = 0
    is_pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """One of the last steps before a process ran out of memory.

    Attributes:
        step: its number, from 0.
        rows: leading sizes of the inputs of its calls.
        elements: their elements.
        peak_bytes: the most that its tensors held at once; None where no followed step tells
            [bytes].
    """

    step: int
    rows: int
    elements: int
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The memory that a process still held when it ended because memory ran out, by part.

    Attributes:
        by_part: bytes by part; `others` are tensors that belong to no part.
        allocator: what the device's allocator said; None without a device.
        limit_bytes: the most private memory that the process could have, by its limits of data
            and of address space; None without a limit [bytes].
        snapshot: file in the run's folder with torch's own snapshot of the device's memory; None
            without a device.
        last_steps: the last steps before it, in order.
    """

    by_part: Mapping[str, int]
    allocator: Allocator | None = None
    limit_bytes: int | None = None
    snapshot: str | None = None
    last_steps: tuple[LastStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What grew between two snapshots of memory.

    Attributes:
        num_updates: updates between the two snapshots.
        held_bytes: growth of what the process held, on its device or resident [bytes].
        tensor_bytes: growth of tensors that are no weights, gradients or states [bytes].
        largest: type and shape of the tensors that grew most, such as `fp32 [64, 1000]`.
        largest_bytes: growth of these tensors [bytes].
        largest_num: how many more of these tensors there were.
    """

    num_updates: int
    held_bytes: int
    tensor_bytes: int
    largest: str | None = None
    largest_bytes: int = 0
    largest_num: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """The memory of the rank that holds most.

    Attributes:
        rank: the rank that holds most.
        moment: the last moment with a snapshot: `call` (a model was called), `backward`, `update`.
        num_updates: updates that were done at the last snapshot.
        num_parameters: elements of the parameters; this rank's elements where they are sharded.
        num_trainable: how many of these elements are trained.
        parts: every part, including those that were not measured.
        optimizers: classes of the optimizers, in the order of their first steps.
        by_kind: saved activations by kind of graph node, the largest first.
        by_module: saved activations by module, including the modules that it calls; empty where
            no module was followed.
        timeline: memory over the course of one step; None where no step was followed.
        timeline_missing: why no step was followed, as a machine word.
        run_peak: the largest peak of all steps; None where no step was followed.
        device_peak: the most that torch's allocator has given out on the device; None without one.
        resident_peak: the most that was resident; None where the system does not say.
        allocator: what the allocator of the device said; None without a device.
        loader: the batches that wait in the DataLoader; None without one.
        worker_bytes: memory that its workers held together, as the median of the samples [bytes].
        resident_bytes: the largest resident memory of the process [bytes].
        growth: what grew; None unless memory grew between two snapshots.
        death: the memory held at the end; None unless the process ended because memory ran out,
            and could say so.
    """

    rank: int
    moment: str
    num_updates: int
    num_parameters: int
    num_trainable: int
    parts: tuple[MemoryPart, ...]
    optimizers: tuple[str, ...] = ()
    by_kind: tuple[Kept, ...] = ()
    by_module: tuple[Kept, ...] = ()
    timeline: MemoryTimeline | None = None
    timeline_missing: str | None = None
    run_peak: RunPeak | None = None
    device_peak: HighWater | None = None
    resident_peak: HighWater | None = None
    allocator: Allocator | None = None
    loader: LoaderMemory | None = None
    worker_bytes: int | None = None
    resident_bytes: int | None = None
    growth: Growth | None = None
    death: Death | None = None

    def part(self, name: str) -> MemoryPart:
        """Return the part of that name; if there is none, a part that was not measured."""
        return next((part for part in self.parts if part.name == name), MemoryPart(name=name))

    def bytes_of(self, *names: str) -> int:
        """Return the sum of these parts, as far as they were measured."""
        return sum(self.part(name).bytes or 0 for name in names)

    @property
    def states_bytes(self) -> int:
        """Return the bytes of weights, buffers, gradients and optimizer states."""
        return self.bytes_of(*STATES)

    @property
    def run_scale(self) -> float:
        """Return by what the parts that grow with the batch are larger at the run's peak.

        It is 1 where no step is larger than the one whose parts are known, or none is known.
        """
        if self.timeline is None or self.run_peak is None:
            return 1.0
        parts = self.timeline.peak.by_part
        growing = sum(parts.get(name, 0) for name in WITH_BATCH)
        more = self.run_peak.bytes - self.timeline.peak.total
        return 1.0 + max(0, more) / growing if growing else 1.0

    @property
    def bytes_per_parameter(self) -> float | None:
        """Return the bytes of weights, gradients and optimizer states per parameter."""
        names = ("weights", "gradients", "optimizer")
        if not self.num_parameters or any(self.part(name).bytes is None for name in names):
            return None
        return self.bytes_of(*names) / self.num_parameters
