"""Makes the memory anatomy of a run, from what its processes reported.

In: the lines `mem` of processes.jsonl, the machine's samples, the folded ranks. Out: the `Anatomy`
of the rank that holds most, or the reason why there is none. `plan.memory_fit` decides what would
make it fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steptime.measure.values.model.anatomy import (
    PARTS,
    Allocator,
    Anatomy,
    Death,
    Growth,
    Instant,
    Kept,
    LoaderMemory,
    MemoryPart,
    MemoryTimeline,
)

if TYPE_CHECKING:
    from steptime.measure.steps.step_fold import RankSteps

DEATH = "death"

_BEFORE_UPDATE = ("gradients", "optimizer")
"""The parts that exist once an update was done."""

_IN_STEP = ("inputs", "others", "temporaries")
"""The parts that can be distinguished in a step that was followed."""

_ON_DEVICE = ("context", "fragmentation")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSeen:
    """Bytes of one part, as the guest read them."""

    bytes: int
    num: int
    by_dtype: Mapping[str, int]
    by_device: Mapping[str, int]
    is_sharded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathSeen:
    """The memory that was held when the process died."""

    parts: Mapping[str, PartSeen]
    device: Allocator | None = None
    limit_bytes: int | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """The storages of one step that was followed."""

    instants: tuple[Instant, ...]
    peak: Instant
    module: str | None = None
    operator: str | None = None
    num_storages: int = 0
    modules: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySeen:
    """One line `mem`: all that the process knew of its memory at that time."""

    pid: int
    moment: str
    n: int
    num_parameters: int
    num_trainable: int
    parts: Mapping[str, PartSeen]
    optimizers: tuple[str, ...] = ()
    kinds: tuple[Kept, ...] = ()
    buckets_bytes: int | None = None
    device: Allocator | None = None
    loader: LoaderMemory | None = None
    step: StepSeen | None = None
    step_missing: str | None = None
    growth: Growth | None = None
    death: DeathSeen | None = None
    failed: str | None = None


def find_anatomy(
    lines: Sequence[MemorySeen], ranks: Sequence[RankSteps], *, worker_bytes: int | None
) -> Anatomy | None:
    """Return the anatomy of the rank that holds most; None where no process reported any.

    Args:
        lines: the lines of all processes, in the order of writing.
        ranks: the ranks that stepped; where none did, all processes count.
        worker_bytes: memory that the DataLoader workers held together.
    """
    rank_of = {rank.head.pid: rank for rank in ranks}
    by_pid: dict[int, list[MemorySeen]] = {}
    for line in lines:
        if not rank_of or line.pid in rank_of:
            by_pid.setdefault(line.pid, []).append(line)
    found = [_anatomy(told, rank_of.get(pid), worker_bytes) for pid, told in by_pid.items()]
    # A rank that died reports most; of the others, take the one with the largest states.
    return max(found, key=lambda one: (one.death is not None, one.states_bytes), default=None)


def anatomy_of(line: MemorySeen) -> Anatomy:
    """Return the anatomy that one line shows."""
    return _anatomy([line], None, None)


def _anatomy(
    told: Sequence[MemorySeen], rank: RankSteps | None, worker_bytes: int | None
) -> Anatomy:
    last = next((line for line in reversed(told) if line.moment != DEATH), told[-1])
    died = next((line.death for line in reversed(told) if line.death is not None), None)
    step = last.step
    samples = () if rank is None else rank.signals.memory
    resident = [b for one in samples for b in (one.rss, one.rss_peak) if b is not None]
    timeline = None
    if step is not None:
        timeline = MemoryTimeline(
            instants=step.instants,
            peak=step.peak,
            module=step.module,
            operator=step.operator,
            num_storages=step.num_storages,
        )
    return Anatomy(
        rank=0 if rank is None else rank.head.rank,
        moment=last.moment,
        num_updates=last.n,
        num_parameters=last.num_parameters,
        num_trainable=last.num_trainable,
        parts=tuple(_part(name, last) for name in PARTS),
        optimizers=last.optimizers,
        by_kind=last.kinds,
        by_module=() if step is None else step.modules,
        timeline=timeline,
        timeline_missing=None if step is not None else last.step_missing or "not_followed",
        allocator=last.device,
        loader=last.loader,
        worker_bytes=worker_bytes,
        resident_bytes=max(resident, default=None),
        growth=last.growth,
        death=None if died is None else _death(died),
    )


def _death(died: DeathSeen) -> Death:
    sizes = {name: part.bytes for name, part in died.parts.items() if part.bytes}
    return Death(
        by_part=sizes,
        allocator=died.device,
        limit_bytes=died.limit_bytes,
        snapshot=died.snapshot,
    )


def _part(name: str, line: MemorySeen) -> MemoryPart:
    """Return one part, or the reason why it is not known."""
    missing = _why_not(name, line)
    if missing is not None:
        return MemoryPart(name=name, missing=missing)
    seen = line.parts.get(name)
    if seen is not None:
        return MemoryPart(
            name=name,
            bytes=seen.bytes,
            by_dtype=seen.by_dtype,
            by_device=seen.by_device,
            num_tensors=seen.num,
            is_sharded=seen.is_sharded,
        )
    return replace(_derived(name, line), name=name)


def _why_not(name: str, line: MemorySeen) -> str | None:
    """Return why a part is not known, as a machine word; None where it is known."""
    if name in _BEFORE_UPDATE and not line.n:
        return "no_update_seen"
    if name in ("activations", "logits") and "activations" not in line.parts:
        return "failed" if line.failed else "no_backward_seen"
    if name in _ON_DEVICE and line.device is None:
        return "not_applicable_on_cpu"
    if name in _IN_STEP and line.step is None:
        return line.step_missing or "not_followed"
    if name == "communication" and line.buckets_bytes is None:
        return "no_ddp_seen"
    return None


def _derived(name: str, line: MemorySeen) -> MemoryPart:
    """Return a part that is a single number, or the difference of others."""
    if name == "communication":
        return MemoryPart(name=name, bytes=line.buckets_bytes)
    if name in _IN_STEP and line.step is not None:
        return MemoryPart(name=name, bytes=line.step.peak.by_part.get(name, 0))
    device = line.device
    if name in _ON_DEVICE and device is not None:
        return _of_device(name, device)
    if name in ("logits", "buffers"):
        return MemoryPart(name=name, bytes=0)
    return MemoryPart(name=name, missing="not_said")


def _of_device(name: str, device: Allocator) -> MemoryPart:
    """Return what the device holds beside the tensors; it is unknown if a number is missing."""
    if device.reserved is None:
        return MemoryPart(name=name, missing="not_said")
    if name == "fragmentation":
        if device.allocated is None:
            return MemoryPart(name=name, missing="not_said")
        return MemoryPart(name=name, bytes=device.reserved - device.allocated)
    if device.total is None or device.free is None:
        return MemoryPart(name=name, missing="not_said")
    return MemoryPart(name=name, bytes=max(0, device.total - device.free - device.reserved))
