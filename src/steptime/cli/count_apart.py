"""`run --count`: the work of a step of a script that compiles, in a short extra run."""

from __future__ import annotations

from pathlib import Path

from steptime.cli.output import say
from steptime.cli.results import Result
from steptime.core.store import Run
from steptime.launch.user_command import user_environment
from steptime.launch.values import CommandRecord

WANTING = ("compiled", "inexact", "mode_active", "captured", "subclass", "without_gradients")
"""Reasons for no count that an extra run, in which no bit matters, does not have."""


def wants_count(result: Result) -> bool:
    """Whether an extra run would tell what this one could not."""
    m = result.measurement
    return m.count is None and m.num_steps > 0 and m.count_missing in WANTING


def count_apart(run: Run, record: CommandRecord) -> None:
    """Run the command once more, kept from doing harm, until a step is counted.

    What it said, or why it said nothing, is in `count.jsonl` of the run's folder.
    """
    from steptime.tune.trials.count_child import count_in_child

    say("steptime: counting the work of a step in a short extra run, kept from doing harm")
    count_in_child(
        record.argv, user_environment(), run_folder=run.folder, cwd=Path(record.cwd or ".")
    )
