"""Makes the memory anatomy of a run, from what its processes reported.

In: the lines `mem` of processes.jsonl, the machine's samples, the folded ranks. Out: the `Anatomy`
of the rank that holds most, or the reason why there is none. `plan.memory_fit` decides what would
make it fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from steptime.core.codec import from_json
from steptime.measure.values.model.anatomy import PARTS, Allocator, Anatomy, MemoryPart
from steptime.record import rows
from steptime.record.lines import Line

if TYPE_CHECKING:
    from steptime.measure.steps.step_fold import RankSteps

DEATH = "death"

_BEFORE_UPDATE = ("gradients", "optimizer")
"""The parts that exist once an update was done."""

_IN_STEP = ("inputs", "others", "temporaries")
"""The parts that can be distinguished in a step that was followed."""

_ON_DEVICE = ("context", "fragmentation")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTold:
    """One line `mem`: the anatomy of the process at that time, of no rank yet."""

    pid: int
    anatomy: Anatomy


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherWords:
    """What a line says in other words than an `Anatomy`."""

    parts: Mapping[str, Mapping[str, Any]]
    buckets_bytes: int | None = None
    failed: str | None = None
    step: Mapping[str, Any] | None = None
    death: Mapping[str, Any] | None = None


def read_memory(line: Line) -> MemoryTold:
    """Return what a line says of the memory of its process.

    Raises:
        DamagedRunError: the line has another shape.
    """
    told = from_json(_OtherWords, line)
    missing = None if told.step else line.get("step_missing") or "not_followed"
    own = {
        "rank": 0,
        "num_updates": line.get("n"),
        "parts": [
            {**part, "name": name, "num_tensors": part.get("num")}
            for name, part in told.parts.items()
        ],
        "by_kind": line.get("kinds", ()),
        "by_module": (told.step or {}).get("modules", ()),
        "timeline": told.step,
        "timeline_missing": missing,
        "allocator": line.get("device"),
        "death": None if told.death is None else _death(told.death),
    }
    known = from_json(Anatomy, {**line, **own})
    parts = tuple(_part(name, known, told) for name in PARTS)
    return MemoryTold(pid=rows.whole_number(line, "pid"), anatomy=replace(known, parts=parts))


def _death(died: Mapping[str, Any]) -> Mapping[str, Any]:
    sizes = {name: part.get("bytes") for name, part in from_json(_OtherWords, died).parts.items()}
    by_part = {name: size for name, size in sizes.items() if size}
    return {**died, "by_part": by_part, "allocator": died.get("device")}


def find_anatomy(
    lines: Sequence[MemoryTold], ranks: Sequence[RankSteps], *, worker_bytes: int | None
) -> Anatomy | None:
    """Return the anatomy of the rank that holds most; None where no process reported any.

    Args:
        lines: the lines of all processes, in the order of writing.
        ranks: the ranks that stepped; where none did, all processes count.
        worker_bytes: memory that the DataLoader workers held together.
    """
    rank_of = {rank.head.pid: rank for rank in ranks}
    by_pid: dict[int, list[Anatomy]] = {}
    for line in lines:
        if not rank_of or line.pid in rank_of:
            by_pid.setdefault(line.pid, []).append(line.anatomy)
    found = [_of_rank(told, rank_of.get(pid), worker_bytes) for pid, told in by_pid.items()]
    # A rank that died reports most; of the others, take the one with the largest states.
    return max(found, key=lambda one: (one.death is not None, one.states_bytes), default=None)


def _of_rank(told: Sequence[Anatomy], rank: RankSteps | None, worker_bytes: int | None) -> Anatomy:
    last = next((one for one in reversed(told) if one.moment != DEATH), told[-1])
    samples = () if rank is None else rank.signals.memory
    resident = [b for one in samples for b in (one.rss, one.rss_peak) if b is not None]
    return replace(
        last,
        rank=0 if rank is None else rank.head.rank,
        worker_bytes=worker_bytes,
        resident_bytes=max(resident, default=None),
        death=next((one.death for one in reversed(told) if one.death is not None), None),
    )


def _part(name: str, known: Anatomy, told: _OtherWords) -> MemoryPart:
    """Return one part, or the reason why it is not known."""
    missing = _why_not(name, known, told)
    if missing is not None:
        return MemoryPart(name=name, missing=missing)
    if name in told.parts:
        return known.part(name)
    size = _derived(name, known, told)
    return MemoryPart(name=name, bytes=size, missing="not_said" if size is None else None)


def _why_not(name: str, known: Anatomy, told: _OtherWords) -> str | None:
    """Return why a part is not known, as a machine word; None where it is known."""
    if name in _BEFORE_UPDATE and not known.num_updates:
        return "no_update_seen"
    if name in ("activations", "logits") and "activations" not in told.parts:
        return "failed" if told.failed else "no_backward_seen"
    if name in _ON_DEVICE and known.allocator is None:
        return "not_applicable_on_cpu"
    if name in _IN_STEP and known.timeline is None:
        return known.timeline_missing
    if name == "communication" and told.buckets_bytes is None:
        return "no_ddp_seen"
    return None


def _derived(name: str, known: Anatomy, told: _OtherWords) -> int | None:
    """Return the bytes of a part that is a single number, or the difference of others."""
    if name == "communication":
        return told.buckets_bytes
    if name in _IN_STEP and known.timeline is not None:
        return known.timeline.peak.by_part.get(name, 0)
    if name in _ON_DEVICE and known.allocator is not None:
        return _of_device(name, known.allocator)
    return 0 if name in ("logits", "buffers") else None


def _of_device(name: str, device: Allocator) -> int | None:
    """Return what the device holds beside the tensors; None if a number is missing."""
    if device.reserved is None:
        return None
    if name == "fragmentation":
        return None if device.allocated is None else device.reserved - device.allocated
    if device.total is None or device.free is None:
        return None
    return max(0, device.total - device.free - device.reserved)
