"""What a profiler saw of a few steady steps: operators, gaps, waits, exposed communication.

In: what was folded from a trace (`measure.profile.profile_trace`). Out: values that survive a
round trip through JSON. The profiler makes the steps longer, so shares are more reliable than
times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from steptime.measure.values.model import work

CLASSES = (*work.CLASSES[:-2], "optimizer", "copy", *work.CLASSES[-2:])
"""Classes of what ran: those of the count of work, and those that only take time."""


FOLDER = "profile"
"""The place in a run's folder that holds what profilers wrote."""

TORCH, NSYS = "torch", "nsys"

DEFAULT_STEP = 30
"""The first profiled step: after the updates that the guest samples closely, and after warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileWish:
    """What the user asked for with `--profile`.

    Attributes:
        tool: the profiler, `torch` or `nsys`.
        first_step: the first step that might be profiled.
        with_stacks: whether Python functions are recorded.
    """

    tool: str = TORCH
    first_step: int
    with_stacks: bool = False

    @property
    def variable(self) -> str:
        """Return the wish as the text that the guest reads."""
        return f"{self.tool},{self.first_step},{'stacks' if self.with_stacks else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTime:
    """The time of one class of operators or kernels; each instant is given to one class [s].

    Attributes:
        name: the class of operators or kernels.
        time_s: time of the window that belongs to it [s].
        fraction: its share of the window, from 0 to 1.
        num: how many operators or kernels of the class ran.
    """

    name: str
    time_s: float
    fraction: float
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """One operator or kernel, over the whole window.

    Attributes:
        name: name of torch's operator, or of the kernel.
        kind: its class of operators.
        num: how often it ran.
        self_s: its time without the operators that it called [s].
        shapes: the input shapes that took most of its time; None where they were not recorded.
        where: file and line of the user's code that led to it most often; only with stacks.
        launched_by: the operator that put the kernel into the queue; None on the host.
        num_alike: how often kernels of the same function ran, with any template arguments;
            None on the host.
        algorithm: of a convolution on a device: `winograd`, `fft`, `implicit_gemm`, `gemm` or
            `direct`; None where the kernel's name does not say it.
    """

    name: str
    kind: str
    num: int
    self_s: float
    shapes: str | None = None
    where: str | None = None
    launched_by: str | None = None
    num_alike: int | None = None
    algorithm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which no operator ran, between two named operators.

    Attributes:
        time_s: its length [s].
        after: the operator that ran before the gap.
        before: the operator that ran after the gap.
    """

    time_s: float
    after: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTime:
    """One thread of the process, and the time in its operators.

    Attributes:
        name: the purpose of the thread.
        busy_s: time in its operators, with nested ones counted once [s].
        num_operators: how many operators ran in it.
    """

    name: str
    busy_s: float
    num_operators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """The threads of the process during the steps.

    Attributes:
        window_s: time of all profiled steps [s]; the classes and `python_s` sum to it.
        python_s: time in no operator of any thread: Python, and what it waits for [s].
        loader_s: part of `python_s` in which the script asked its loader for a batch [s].
        sync_s: time in which the process waited for a device, in any class [s].
        num_gaps: number of gaps between operators.
        median_gap_s: median length of the gaps [s]; None without any.
        longest_gaps: the longest gaps, the longest first.
        num_operators: how many operators ran, including nested ones.
        classes: time by class, with the most time first.
        operators: time by operator, with the most self time first.
        threads: the threads, the one that trains first.
    """

    window_s: float
    python_s: float
    loader_s: float
    sync_s: float
    num_gaps: int
    median_gap_s: float | None
    longest_gaps: tuple[Gap, ...]
    num_operators: int
    classes: tuple[ClassTime, ...]
    operators: tuple[OperatorTime, ...]
    threads: tuple[ThreadTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """One device during the steps, from its first recorded work to its last.

    Attributes:
        device: number of the device.
        window_s: time of the window [s]; the classes and the idle times sum to it.
        busy_s: time in which anything ran [s].
        idle_s: time in which nothing ran, the sum of the three waits [s].
        host_wait_s: idle time in which the next work had not been launched yet [s].
        kernel_wait_s: idle time between work that was already in the queue [s].
        unknown_wait_s: idle time before work whose launch was not recorded [s].
        communication_s: time in which a collective ran, hidden or not [s].
        exposed_communication_s: part of this time in which nothing else computed [s].
        num_kernels: number of kernels, copies and fills.
        num_streams: number of queues in which anything ran.
        classes: time by class, with the most time first; where two things ran at once, computing
            counts before communication, and communication before copies.
        kernels: time by kernel, with the most time first.
    """

    device: int
    window_s: float
    busy_s: float
    idle_s: float
    host_wait_s: float
    kernel_wait_s: float
    unknown_wait_s: float
    communication_s: float
    exposed_communication_s: float
    num_kernels: int
    num_streams: int
    classes: tuple[ClassTime, ...]
    kernels: tuple[OperatorTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """The profiled window of one rank.

    Attributes:
        rank: number of the rank.
        missing: why nothing is known, as a machine word.
        file: path of the trace, relative to the run's folder.
        first_step: number of the first profiled step, from 0.
        num_steps: whole steps in the window.
        is_cut: whether the process ended before all of these steps.
        is_mixed: whether the window holds more than steps: an evaluation, a compilation, a save.
        start_s: when the window began, after the start of the command [s]; None if not known.
        duration_s: time from the window's begin to its end [s].
        write_s: time in which the process wrote the trace [s].
        host: the profile of the process.
        devices: the profile of each device.
    """

    rank: int
    missing: str | None = None
    file: str | None = None
    first_step: int | None = None
    num_steps: int = 0
    is_cut: bool = False
    is_mixed: bool = False
    start_s: float | None = None
    duration_s: float | None = None
    write_s: float | None = None
    host: HostProfile | None = None
    devices: tuple[DeviceProfile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A run's window under a profiler, rank by rank.

    Attributes:
        wish: what the user asked for.
        ranks: the window of each rank.
        missing: why there is no profile of any rank, as a machine word.
        file: path of the file that a system-wide profiler wrote, relative to the run's folder.
    """

    wish: ProfileWish
    ranks: tuple[RankProfile, ...] = ()
    missing: str | None = None
    file: str | None = None


_MAX_NESTED = 60
"""At most so many templates may be nested in a kernel's name."""


@cache
def function_of(kernel: str) -> str:
    """Return a kernel's bare name, without its result, namespaces, templates and arguments."""
    text = kernel
    for _ in range(_MAX_NESTED):  # templates nest
        shorter = re.sub(r"<[^<>]*>", "", text)
        if shorter == text:
            break
        text = shorter
    text = text.replace("(anonymous namespace)", "").partition("(")[0].strip()
    words = re.split(r"[\s:]+", text)
    return words[-1] or kernel
