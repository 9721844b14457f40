"""What a profiler saw of a few steady steps: operators, gaps, waits, exposed communication.

In: what was folded from a trace (`measure.profile.profile_trace`). Out: values that survive a
round trip through JSON. The steps were made longer by the profiler: shares are worth more than
times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from steptime.measure.values import work

CLASSES = (*work.CLASSES[:-1], "optimizer", "copy", "communication", work.CLASSES[-1])
"""Classes of what ran: those of the count of work, and what is counted nowhere but takes time."""


FOLDER = "profile"
"""Of a run's folder: what profilers wrote."""

TORCH, NSYS = "torch", "nsys"

DEFAULT_STEP = 30
"""Where a profiler starts: behind the updates that the guest samples closely, and warm by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileWish:
    """What the user asked for with `--profile`.

    Attributes:
        tool: the profiler: `torch` or `nsys`.
        first_step: the first step that might be profiled.
        with_stacks: whether functions of Python were recorded.
    """

    tool: str = TORCH
    first_step: int
    with_stacks: bool = False

    @property
    def variable(self) -> str:
        """As it is told to the guest."""
        return f"{self.tool},{self.first_step},{'stacks' if self.with_stacks else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTime:
    """The time of one class of operators or kernels; each instant is given to one class [s].

    Attributes:
        name: class of what ran.
        time_s: instants given to it, over the window [s].
        fraction: of the window, 0 to 1.
        num: how many ran.
    """

    name: str
    time_s: float
    fraction: float
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """One operator or kernel, over the whole window.

    Attributes:
        name: torch's own, or the kernel's.
        kind: its class of operators.
        num: how often it ran.
        self_s: its time without what it called [s].
        shapes: of its inputs, those that took most of its time; None where not recorded.
        where: file and line of the user's code that led to it most; only with stacks.
        launched_by: the operator that put the kernel into the queue; None on the host.
        num_alike: how often a kernel of the same function ran, whatever its template arguments;
            None on the host.
    """

    name: str
    kind: str
    num: int
    self_s: float
    shapes: str | None = None
    where: str | None = None
    launched_by: str | None = None
    num_alike: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which no operator ran, between two that are named.

    Attributes:
        time_s: how long [s].
        after: the operator before it.
        before: the operator after it.
    """

    time_s: float
    after: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTime:
    """One thread of the process: the time in operators of its own, nested ones once [s].

    Attributes:
        name: what it is for.
        busy_s: in operators of its own, nested ones once [s].
        num_operators: operators that ran in it.
    """

    name: str
    busy_s: float
    num_operators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """The threads of the process during the steps.

    Attributes:
        window_s: the steps together; the classes and `python_s` sum to it.
        python_s: in no operator of any thread: Python, and what it waits for.
        loader_s: part of `python_s` in which the script asked its loader for a batch.
        sync_s: the process waited for a device, in whatever class that fell.
        num_gaps: times between operators.
        median_gap_s: their median; None without any.
        longest_gaps: the longest, longest first.
        num_operators: operators that ran, nested ones too.
        classes: most time first.
        operators: most self time first.
        threads: the one that trains first.
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
        device: its number.
        window_s: the classes and the idle times sum to it.
        busy_s: in which anything ran.
        idle_s: in which nothing ran: the three waits.
        host_wait_s: idle, and what came next had not been launched yet.
        kernel_wait_s: idle between work that was queued already.
        unknown_wait_s: idle, and the launch of what came next was not recorded.
        communication_s: in which a collective ran, hidden or not.
        exposed_communication_s: part of it in which nothing else computed.
        num_kernels: kernels, copies and fills.
        num_streams: queues that anything ran in.
        classes: most time first; where two things ran at once, computing counts before
            communication and that before copies.
        kernels: most time first.
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
        missing: why nothing is known, a machine word.
        file: the trace, relative to the run's folder.
        first_step: number of the first profiled step, from 0.
        num_steps: whole steps in the window.
        is_cut: the process ended before all of them.
        is_mixed: something else than steps fell into it: an evaluation, a compilation, a save.
        start_s: when the window began, after the start of the command; None if not known.
        duration_s: from its begin to its end.
        write_s: what it took the process to write the trace.
        host: the process.
        devices: each device.
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
        wish: what was asked for.
        ranks: the window of each rank.
        missing: why there is no profile of any rank, a machine word.
        file: what a tool of the system's wrote, relative to the run's folder.
    """

    wish: ProfileWish
    ranks: tuple[RankProfile, ...] = ()
    missing: str | None = None
    file: str | None = None


_MAX_NESTED = 60
"""Templates in templates in a kernel's name; there are some, and no endless ones."""


@cache
def function_of(kernel: str) -> str:
    """The bare name of a kernel: without what it returns, namespaces, templates, arguments."""
    text = kernel
    for _ in range(_MAX_NESTED):  # templates nest
        shorter = re.sub(r"<[^<>]*>", "", text)
        if shorter == text:
            break
        text = shorter
    text = text.replace("(anonymous namespace)", "").partition("(")[0].strip()
    words = re.split(r"[\s:]+", text)
    return words[-1] or kernel
