"""Counts the work of a step of a script that compiles, in a short extra run."""

from __future__ import annotations

from pathlib import Path

from steptime.core.store import Run
from steptime.launch.user_command import user_environment
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.tune.trials.count_child import count_in_child

WANTING = ("compiled", "inexact", "mode_active", "captured", "subclass", "without_gradients")
"""Reasons for a missing count that do not apply to an extra run, where no bit matters."""


def wants_count(measurement: Measurement) -> bool:
    """Return whether an extra run would show what this one could not."""
    m = measurement
    return m.count is None and m.num_steps > 0 and m.count_missing in WANTING


def count_apart(run: Run, record: CommandRecord) -> None:
    """Run the command once more, kept from doing harm, until a step is counted.

    The count, or the reason why there is none, is in `count.jsonl` of the run's folder.
    """
    count_in_child(
        record.argv, user_environment(), run_folder=run.folder, cwd=Path(record.cwd or ".")
    )
