"""A run in one row, for lists."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.process_end import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a list; None where it is not known (yet)."""

    run_id: str
    started_unix_s: float | None
    command: tuple[str, ...]
    state: RunState
    exit_code: int | None = None
    signal: int | None = None
    num_steps: int | None = None
    step_time_s: float | None = None
    kind: str | None = None
