"""The values of the watch: stalls, in which a run stood still, and what each rank did then."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.measure.values.desync import Desync


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFrame:
    """One frame of a Python stack, innermost first.

    Attributes:
        function: name of the function.
        file: the file of the code.
        line: the line that was running.
    """

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread of a process, and the calls that it was in.

    Attributes:
        pid: id of the thread's process.
        thread: name of the thread.
        frames: the calls, the innermost first.
        is_main: whether it is the first thread of its process.
        is_active: whether it was running at that moment; None where that is not known.
        missing: why there is no stack, as a sentence; None where there is one.
    """

    pid: int
    thread: str
    frames: tuple[StackFrame, ...] = ()
    is_main: bool = False
    is_active: bool | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRank:
    """One rank while the run stood still.

    Attributes:
        rank: number of the rank; None where it has none.
        pid: id of its process.
        num_steps: how many of its steps were on disk.
        waits_in: where its main thread waited: `collective`, `input`, `lock`, `disk`, `sleep` or
            `compute`; None where that is not known.
        where: the innermost line of the user's code, as `FILE:LINE`.
        stacks: its threads, the main one first, and the main threads of the loader workers that
            it waited for.
        training: number of its training, if the command has several.
    """

    rank: int | None
    pid: int
    num_steps: int
    waits_in: str | None = None
    where: str | None = None
    stacks: tuple[ThreadStack, ...] = ()
    training: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time without a step that lasted at least `limit_s`, which is ten usual steps or more.

    Attributes:
        began_unix_s: when the last step before it ended [s since 1970].
        seen_unix_s: when the stacks were taken [s since 1970].
        usual_step_s: median step time before it [s].
        limit_s: the pause after which the processes were probed [s].
        ranks: what each rank was doing.
        culprits: ranks that the others waited for; empty where that is not known.
        duration_s: time until the next step [s]; None where none came, or none has come yet.
        desync: how the ranks lost each other; None where nothing shows it.
    """

    began_unix_s: float
    seen_unix_s: float
    usual_step_s: float
    limit_s: float
    ranks: tuple[StalledRank, ...]
    culprits: tuple[int, ...] = ()
    duration_s: float | None = None
    desync: Desync | None = None
