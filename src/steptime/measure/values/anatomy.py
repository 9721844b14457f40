"""Who holds the memory of a training process, and when it holds most.

In: what the guest read of parameters, states and graphs, and of one step's storages. Out: an
`Anatomy`, which survives a round trip through JSON. What would make a run fit is left to
`plan.memory_fit`; docs/explanation/memory.md says how each part is found.
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
"""Parts of a training process's memory. The last two are of a device alone."""

STATES = ("weights", "buffers", "gradients", "optimizer")
"""What stays from step to step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """Bytes of one part, each storage once; those of this rank where it is sharded.

    Attributes:
        name: `weights`, `buffers`, `gradients`, `optimizer`, `activations`, `logits`, `inputs`,
            `others`, `temporaries`, `communication`; on a device `context` and `fragmentation`.
        bytes: None where it was not measured.
        by_dtype: the same by type: `fp32`, `bf16`, `int8`.
        by_device: the same by device: `cpu`, `cuda:0`.
        num_tensors: tensors that it is made of.
        is_sharded: each rank holds a part of its own.
        missing: why it was not measured, a machine word.
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
    """Bytes that the graph keeps for the backward, by what made them: a module, a kind of node.

    Attributes:
        name: a module by its path, or a kind of graph node.
        bytes: held at the beginning of the backward.
        kind: the class of a module; None for a node.
    """

    name: str
    bytes: int
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Bytes held at one moment of the step that was followed, by part.

    Attributes:
        at_fraction: where in the step, as a share of its events, so that following the step
            does not stretch it.
        phase: the phase that was open.
        by_part: bytes by part.
    """

    at_fraction: float
    phase: str
    by_part: Mapping[str, int]

    @property
    def total(self) -> int:
        """All parts."""
        return sum(self.by_part.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """One step: what was held over its course, and at its peak.

    Attributes:
        instants: in order, the peak among them.
        peak: the moment at which most was held.
        module: whose call, or whose gradient, was being computed at the peak.
        operator: the operator that ran at the peak.
        num_storages: that were made and let go in the step.
    """

    instants: tuple[Instant, ...]
    peak: Instant
    module: str | None = None
    operator: str | None = None
    num_storages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """What torch's allocator and the driver said of the device after an update [bytes].

    Attributes:
        allocated: given out by torch's allocator [bytes].
        reserved: held by torch's allocator, in use or not.
        peak_allocated: the most given out since the start.
        peak_reserved: the most that it held.
        split: free, but in pieces of blocks in use.
        largest_free_block: the most it could give in one piece of what it holds.
        free: free on the device, as the driver says.
        total: of the device, as the driver says.
        pinned: host memory that torch has pinned.
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
    """What the first batch of a DataLoader takes, and how many may wait at a time.

    Attributes:
        batch_bytes: bytes of its first batch.
        num_workers: worker processes of the loader.
        num_waiting: batches that may wait at a time.
        is_pinned: batches are copied to pinned memory.
    """

    batch_bytes: int
    num_workers: int = 0
    num_waiting: int = 0
    is_pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """What was still held when a process ended because memory ran out, by part.

    Attributes:
        by_part: bytes by part; `others` are tensors that belong to none.
        allocator: of the device; None without one.
    """

    by_part: Mapping[str, int]
    allocator: Allocator | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What there was more of, so many updates after the first snapshot, where memory grew.

    Attributes:
        num_updates: updates between the two snapshots.
        held_bytes: more that the process held, on its device or resident.
        tensor_bytes: of tensors that are no weights, gradients or states.
        largest: type and shape of those that grew most: `fp32 [64, 1000]`.
        largest_bytes: of them.
        largest_num: more of them.
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
        moment: how far the snapshots came: `call` (a model was called), `backward`, `update`.
        num_updates: updates that were done at the last snapshot.
        num_parameters: elements of the parameters, those of this rank where they are sharded.
        num_trainable: how many of them are trained.
        parts: every part, those that were not measured as well.
        optimizers: their classes, in order of first step.
        by_kind: saved activations by kind of graph node, the largest first.
        by_module: the same by module, what it calls included; empty where none were followed.
        timeline: one step over its course; None where it was not followed.
        timeline_missing: why no step was followed, a machine word.
        allocator: what the allocator of the device said; None without a device.
        loader: what waits in the DataLoader; None without one.
        worker_bytes: what its workers held together, in the median of the samples.
        resident_bytes: the most that the process was seen to hold.
        growth: what there was more of; None unless memory grew between two snapshots.
        death: what was held at the end; None unless the process ended because memory ran out,
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
    allocator: Allocator | None = None
    loader: LoaderMemory | None = None
    worker_bytes: int | None = None
    resident_bytes: int | None = None
    growth: Growth | None = None
    death: Death | None = None

    def part(self, name: str) -> MemoryPart:
        """The part of that name; one that was not measured where there is none."""
        return next((part for part in self.parts if part.name == name), MemoryPart(name=name))

    def bytes_of(self, *names: str) -> int:
        """The sum of these parts, as far as they were measured."""
        return sum(self.part(name).bytes or 0 for name in names)

    @property
    def states_bytes(self) -> int:
        """Weights, buffers, gradients and optimizer states."""
        return self.bytes_of(*STATES)

    @property
    def bytes_per_parameter(self) -> float | None:
        """Weights, gradients and optimizer states over the number of parameters."""
        names = ("weights", "gradients", "optimizer")
        if not self.num_parameters or any(self.part(name).bytes is None for name in names):
            return None
        return self.bytes_of(*names) / self.num_parameters
