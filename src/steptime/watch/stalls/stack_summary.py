"""What the stack of a stalled rank means: what it waits in, where, and who waits for whom.

A pure module. In: frames and the kernel's words. Out: the machine words of `measure.values.stall`.
The names of files and functions are those of torch 2.4 to 2.13 and of Python's standard library.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from steptime.measure.values.stall import StackFrame, StalledRank, ThreadStack
from steptime.watch.stalls.process_stacks import KernelState, ProcessProbe

_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3(?:\.\d+)?/|^<|^\?$")
_COLLECTIVE = re.compile(
    r"/torch/distributed/(?!run\.py|launch|elastic|checkpoint/)"
    r"|/torch/nn/parallel/distributed\.py$|/deepspeed/comm/|/horovod/"
)
_INPUT = re.compile(r"/torch/utils/data/(?:dataloader\.py$|_utils/)")
_COMPILE = re.compile(r"/torch/_dynamo/(?:convert_frame|output_graph)\.py$")
_SAVE = re.compile(r"/torch/serialization\.py$|/safetensors/|/torch/distributed/checkpoint/")
_LOCK = re.compile(r"/(?:threading|queue|selectors)\.py$|/(?:multiprocessing|concurrent)/")
_BACKWARD = re.compile(r"/torch/autograd/(?:graph|__init__)\.py$")
_EPOCH_START = ("__iter__", "_get_iterator", "_reset")
_SLEEPS = ("nanosleep", "clock_nanosleep")
_FILE_CALLS = ("read", "pread64", "write", "pwrite64", "fsync", "fdatasync", "openat")

BUSY_CORES = 0.1
BUSY_BYTES_PER_S = 1 << 20
"""Above either one between two probes, a rank and its workers are doing something."""

FLUSH_S = 0.2
"""Steps of the last 0.2 s may not be on disk (docs/internals/run-folder.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSummary:
    """One process between two probes; `is_still` if neither its stack nor its work moved."""

    probe: ProcessProbe
    waits_in: str | None
    where: str | None
    span: str | None
    is_still: bool


def summarize_stack(
    probe: ProcessProbe,
    before: ProcessProbe | None,
    *,
    dt_s: float,
    cwd: str | None,
    world_size: int = 1,
    evaluations: Collection[tuple[str, int]] = (),
) -> StackSummary:
    """Return what a process does now, compared with a probe `dt_s` earlier.

    In a collective only the stack counts, because torch may spin while it waits.
    """
    is_busy = before is None or _is_busy(probe, before, dt_s)
    stack = probe.main
    waits = waits_in(stack, probe.kernel, is_one_of_many=world_size > 1, is_busy=is_busy)
    has_moved = before is None or _place(before.main) != _place(stack)
    return StackSummary(
        probe=probe,
        waits_in=waits,
        where=where_of(stack, cwd=cwd),
        span=span_of(stack, evaluations),
        is_still=not has_moved and (waits == "collective" or not is_busy),
    )


def _is_busy(probe: ProcessProbe, before: ProcessProbe, dt_s: float) -> bool:
    has_computed = probe.cpu_s - before.cpu_s > BUSY_CORES * dt_s
    return has_computed or probe.io_bytes - before.io_bytes > BUSY_BYTES_PER_S * dt_s


def _place(stack: ThreadStack | None) -> tuple[StackFrame, ...]:
    return () if stack is None else stack.frames


def is_library(file: str) -> bool:
    """Return whether the file is Python's own or belongs to an installed package."""
    return _LIBRARY.search(file) is not None


def user_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Return the innermost frame of the user's code, or else of a package other than torch."""
    users = (frame for frame in frames if not is_library(frame.file))
    packages = (f for f in frames if "-packages/" in f.file and "/torch/" not in f.file)
    return next(users, None) or next(packages, None)


def where_of(stack: ThreadStack | None, *, cwd: str | None) -> str | None:
    """Return the innermost line of the user's code, its file relative to `cwd`: `train.py:31`."""
    frame = None if stack is None else user_frame(stack.frames)
    if frame is None:
        return None
    path = PurePath(frame.file)
    is_below = cwd is not None and path.is_relative_to(cwd)
    return f"{path.relative_to(cwd) if is_below and cwd else path}:{frame.line}"


def waits_in(
    stack: ThreadStack | None, kernel: KernelState, *, is_one_of_many: bool, is_busy: bool
) -> str | None:
    """Return what the main thread waits in, a machine word of `StalledRank`; None if unknown.

    Args:
        stack: of the main thread, None if there is none.
        kernel: what the kernel says about it.
        is_one_of_many: whether there are other ranks to wait for.
        is_busy: whether the process has used CPU time in between.
    """
    frames = () if stack is None else stack.frames
    inner = [frame.file for frame in _inside_user(frames)]
    if _any(_SAVE, inner):
        return "disk"
    if _any(_COLLECTIVE, inner):
        return "collective"
    if _any(_COMPILE, inner):
        return "compute"
    if _any(_INPUT, [frame.file for frame in frames]):
        return "input"
    if _any(_BACKWARD, inner):
        # The engine itself waits for what DistributedDataParallel reduces.
        return "collective" if is_one_of_many and not is_busy else "compute"
    if inner and _LOCK.search(inner[0]):
        return "lock"
    return "compute" if is_busy else _waits_in_kernel(kernel)


def _waits_in_kernel(kernel: KernelState) -> str | None:
    """Return what the system call means; Python's locks are made of futexes."""
    if kernel.state == "D" or (kernel.is_file and kernel.syscall in _FILE_CALLS):
        return "disk"
    if kernel.syscall in _SLEEPS:
        return "sleep"
    return "lock" if kernel.syscall == "futex" else None


def _inside_user(frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
    """Return the frames that the user's innermost function has called."""
    first = next((i for i, f in enumerate(frames) if not is_library(f.file)), len(frames))
    return frames[:first]


def is_in_backward(stack: ThreadStack | None) -> bool:
    """Return whether the user's innermost function has called backward."""
    inner = () if stack is None else _inside_user(stack.frames)
    return _any(_BACKWARD, [frame.file for frame in inner])


def _any(pattern: re.Pattern[str], files: Sequence[str]) -> bool:
    return any(pattern.search(file) for file in files)


def span_of(stack: ThreadStack | None, evaluations: Collection[tuple[str, int]] = ()) -> str | None:
    """Return the span that the stack is in, one of `SPANS`, if it shows one.

    Args:
        stack: of the main thread.
        evaluations: files and lines from which evaluations were entered before.
    """
    frames = () if stack is None else stack.frames
    inner = _inside_user(frames)
    files = [frame.file for frame in inner]
    if _any(_SAVE, files):
        return "checkpoint"
    if _any(_COMPILE, files):
        return "compile"
    if any(_INPUT.search(f.file) and f.function.split(".")[-1] in _EPOCH_START for f in frames):
        return "epoch_start"
    is_evaluating = any((frame.file, frame.line) in evaluations for frame in frames)
    return "evaluation" if is_evaluating else None


def find_culprits(
    ranks: Sequence[StalledRank], *, gone: Collection[int], usual_s: float
) -> tuple[int, ...]:
    """Return the ranks that the others wait for; empty where that is unknown.

    They are, in this order: processes that have ended; ranks outside a collective while the others
    are in one; ranks at another line than most; ranks behind by more steps than may be missing on
    disk.

    Args:
        ranks: as they were seen.
        gone: ranks whose process has ended.
        usual_s: the usual step time [s].
    """
    known = [one for one in ranks if one.rank is not None]
    if len(known) < 2:
        return ()
    if gone:
        return tuple(sorted(gone))
    waiting = [one for one in known if one.waits_in == "collective"]
    if 0 < len(waiting) < len(known):
        return _numbers(one for one in known if one not in waiting)
    return _elsewhere(known) or _behind(known, usual_s)


def _elsewhere(ranks: Sequence[StalledRank]) -> tuple[int, ...]:
    """Return the few ranks at another line than most."""
    places = Counter((one.waits_in, one.where) for one in ranks)
    (place, num), *others = places.most_common()
    if not others or 2 * num <= len(ranks):
        return ()
    return _numbers(one for one in ranks if (one.waits_in, one.where) != place)


def _behind(ranks: Sequence[StalledRank], usual_s: float) -> tuple[int, ...]:
    """Return ranks that are behind the first by more steps than are not on disk yet."""
    slack = 1 + (FLUSH_S / usual_s if usual_s > 0 else 0)
    most = max(one.num_steps for one in ranks)
    return _numbers(one for one in ranks if one.num_steps < most - slack)


def _numbers(ranks: Iterable[StalledRank]) -> tuple[int, ...]:
    return tuple(sorted(one.rank for one in ranks if one.rank is not None))
