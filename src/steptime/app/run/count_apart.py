"""Counts the work of steps that a run must not count itself, in a short extra run."""

from __future__ import annotations

from pathlib import Path

from steptime.core.store import Run
from steptime.launch.user_command import user_environment
from steptime.launch.values import CommandRecord
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.work import COUNTED_APART
from steptime.tune.trials.children.count_child import count_in_child


def wants_count(measurement: Measurement) -> bool:
    """Return whether an extra run would show what this one could not."""
    m = measurement
    if m.count is not None:
        return m.count.is_range
    return m.num_steps > 0 and m.count_missing in COUNTED_APART


def count_apart(
    run: Run, record: CommandRecord, argv: tuple[str, ...], *, training: int | None = None
) -> None:
    """Run the command once more, kept from doing harm, until its steps are counted.

    Of several trainings the one with the number `training` is counted. The counts, or the reason
    why there are none, are in `count.jsonl` of the run's folder.
    """
    count_in_child(
        argv,
        user_environment(),
        run_folder=run.folder,
        cwd=Path(record.cwd or "."),
        training=training,
    )
