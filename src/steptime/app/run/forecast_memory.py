"""Forecasts the peak memory of a command's training step, without the memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from steptime.plan.values import MemoryForecast
from steptime.tune.trials.children.forecast_child import ForecastWish, forecast_in_child


def forecast_command(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    folder: Path,
    cwd: Path,
    cap_bytes: int | None = None,
    measure: bool = False,
) -> MemoryForecast:
    """Return what the command's second step holds at its peak; nothing of what it writes stays.

    The unmodified script runs in a contained child. Its models' parameters have shapes and no
    memory, so that the child needs neither theirs nor that of a step; its batches are real.

    Args:
        argv: the command.
        environment: the user's, in which it runs.
        folder: of the child, in the store; it must not exist yet.
        cwd: where the command runs.
        cap_bytes: the address space that the child may use; None for no bound.
        measure: run each different operator once, alone, for what it takes for itself; needed
            where an operator has no fake kernel.

    Returns:
        The forecast; of a command that starts several ranks, that of the rank that needs most.
        Where `peak` is None, `unknown` says why: `never_steps`, `script_failed`,
        `time_limit` or `out_of_memory`, with the last line that the script wrote;
        `no_fake_kernel`; `no_fake_tensors`; `nothing_followed`.

    Raises:
        NotStartedError: the command cannot be started.
        ContainmentError: nothing here keeps it from doing harm.
    """
    wish = ForecastWish(cap_bytes=cap_bytes, measure=measure)
    return forecast_in_child(argv, environment, folder=folder, cwd=cwd, wish=wish).memory
