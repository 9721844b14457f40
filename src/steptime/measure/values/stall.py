"""What the watch saw: a run that stood still, and a step time that changed and stayed so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFrame:
    """One frame of a Python stack, innermost first."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread; `missing` says why there is no stack, as a sentence."""

    pid: int
    thread: str
    frames: tuple[StackFrame, ...] = ()
    is_main: bool = False
    is_active: bool | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledRank:
    """One rank while the run stood still.

    `waits_in`: `collective`, `input`, `lock`, `disk`, `sleep`, `compute`, or None where unknown;
    `where` is the innermost line of the user's code.
    """

    rank: int | None
    pid: int
    num_steps: int
    waits_in: str | None = None
    where: str | None = None
    stacks: tuple[ThreadStack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """No step for `limit_s`, ten times the usual step and more.

    `duration_s` is None while it lasts, or where the run never went on. `culprits` are the ranks
    the others wait for; empty where that is not known.
    """

    began_unix_s: float
    seen_unix_s: float
    usual_step_s: float
    limit_s: float
    ranks: tuple[StalledRank, ...]
    culprits: tuple[int, ...] = ()
    duration_s: float | None = None
