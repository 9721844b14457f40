"""A run in one row, for lists."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.process_end import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a list; None where it is not known (yet).

    Attributes:
        run_id: name of the run's folder.
        started_unix_s: start, seconds since 1970 (UTC).
        command: the command that was measured, as given.
        state: how the command ended, as far as is known.
        exit_code: what the command ended with.
        signal: number of the signal that ended it.
        num_steps: optimizer steps.
        step_time_s: median wall time of a step [s].
        kind: the primary bottleneck kind.
    """

    run_id: str
    started_unix_s: float | None
    command: tuple[str, ...]
    state: RunState
    exit_code: int | None = None
    signal: int | None = None
    num_steps: int | None = None
    step_time_s: float | None = None
    kind: str | None = None
