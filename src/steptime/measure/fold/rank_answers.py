"""Folds what the processes of a run answered into the values that reports know.

In: the facts of an answer file. Out: the same values as in a run's measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steptime.core.codec import from_json
from steptime.errors import DamagedRunError
from steptime.launch.values import CommandRecord
from steptime.measure.fold.seen_lines import WindowSeen
from steptime.measure.memory.memory_anatomy import read_memory
from steptime.measure.profile.profile_fold import fold_trace, profile_of_window
from steptime.measure.profile.trace_file import compress
from steptime.measure.values.answer import CountedStep, HeldMemory, TensorGroup
from steptime.measure.values.model.profiled import FOLDER, RankProfile
from steptime.measure.values.model.work import Count

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryFacts:
    memory: dict[str, object]
    others_bytes: int
    others: tuple[TensorGroup, ...] = ()
    resident_bytes: int | None = None


def memory_of(facts: Facts, *, rank: int, pid: int) -> HeldMemory:
    """Return who held the memory in the update that was examined.

    Raises:
        DamagedRunError: the facts have another shape.
    """
    told = from_json(_MemoryFacts, facts)
    anatomy = read_memory({**told.memory, "pid": pid}).anatomy
    return HeldMemory(
        anatomy=replace(anatomy, rank=rank),
        others_bytes=told.others_bytes,
        others=told.others,
        resident_bytes=told.resident_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountFacts:
    updates: tuple[dict[str, object], ...]


def count_of(facts: Facts, *, update_s: float | None) -> CountedStep:
    """Return the work of the step that was counted.

    Args:
        facts: the lines of its updates.
        update_s: the usual time of an update; None where it is not known [s].

    Raises:
        DamagedRunError: the facts have another shape.
    """
    lines = from_json(_CountFacts, facts).updates
    counts = tuple(from_json(Count, line) for line in lines)
    flops = sum(one.total for one in counts)
    time_s = None if update_s is None else update_s * len(counts)
    return CountedStep(
        updates=counts,
        flops=flops,
        step_time_s=time_s,
        flops_per_s=flops / time_s if time_s else None,
    )


def profile_of(facts: Facts, *, rank: int, folder: Path, command: CommandRecord) -> RankProfile:
    """Return what the profiler saw; the trace is compressed first.

    Args:
        facts: the line of the window.
        rank: the rank that was profiled.
        folder: of the run.
        command: the run's own.

    Raises:
        DamagedRunError: the facts have another shape.
    """
    seen = from_json(WindowSeen, facts)
    if seen.file is None or len(seen.t) != 2:
        raise DamagedRunError("the window has no trace")
    path = folder / FOLDER / Path(seen.file).name
    if path.is_symlink():
        raise DamagedRunError("the trace is a link")
    with suppress(OSError):  # there may be no room for both
        path = compress(path)
    return fold_trace(profile_of_window(seen, rank=rank), path, command)
