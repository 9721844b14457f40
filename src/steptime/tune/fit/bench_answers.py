"""The world of a fit: what runs the command, and what its runs show.

A search sees nothing else, so that it is a function of the answers that it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from steptime.tune.search.bench import Baseline, ComparisonResult
from steptime.tune.trials.children.forecast_child import CommandForecast
from steptime.tune.values.study_values import Ending, State
from steptime.verify.values import Verdict

MACHINE_SHORT = "machine_short"
"""Reason of a trial that was ended because the machine had hardly any memory left."""


class BudgetSpentError(Exception):
    """The time of the budget is over; a bench raises it, and the search keeps what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The command as written, run without the limit, but never with more than is free here.

    Attributes:
        baseline: what a study makes of such a trial.
        peak_bytes: private memory of the process that had most; 0 where the system did not say.
        cap_bytes: what it could have had at most [bytes].
    """

    baseline: Baseline
    peak_bytes: int
    cap_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedRun:
    """What a run under the limit showed; times in seconds, memory in bytes."""

    ending: Ending
    peak_bytes: int | None
    num_steps: int
    step_s: float | None


class FitBench(Protocol):
    """The world of a fit."""

    def observe(self) -> Observed:
        """Run the command as written for a window, without the limit."""

    def forecast(self) -> CommandForecast:
        """Forecast the peak of a step of the command as written, without the memory."""

    def run_under(
        self, state: State, limit_bytes: int, *, is_on_device: bool = False, what: str = "limit"
    ) -> LimitedRun:
        """Run the command with a state for a window, under the limit; or in what it has anyway.

        `is_on_device`: the limit is what torch's allocator may hold on each device.
        """

    def compare_batches(self, states: Sequence[State], limit_bytes: int | None) -> ComparisonResult:
        """Compare states with larger batches inside one process, the command as written first.

        `limit_bytes` is None where the limit is a device's, which ends the process by itself.
        """

    def judge(self, state: State) -> Verdict:
        """Whether whole runs with `state` train as the command as written does."""
