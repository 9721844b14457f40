"""A run in one row, for lists."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.process_end import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a list; None means not known, or not yet.

    Attributes:
        run_id: name of the run's folder.
        started_unix_s: when the run was started [s since 1970, UTC].
        command: the measured command, as the user gave it.
        state: how the command ended, as far as is known.
        exit_code: exit code of the command.
        signal: number of the signal that ended it.
        num_steps: number of optimizer steps.
        step_time_s: median wall time of a step [s].
        kind: kind of the primary bottleneck.
        opens_with: cause of the finding that the report opens with, where that is no bottleneck:
            `non_finite`, or `neighbor` for a run that others took cores from; None where the
            report opens with `kind`.
        num_trainings: number of trainings; the numbers above are those of the longest.
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
    opens_with: str | None = None
    num_trainings: int | None = None
