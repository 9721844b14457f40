"""What a study is asked to do: the options of `steptime tune` as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steptime.levers.base import Lever
from steptime.tune.values.study_progress import StudyProgress

__all__ = ["StudyOptions", "StudyProgress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What the command line of `tune` says.

    Attributes:
        command: the user's, as given.
        store: the folder that holds `.steptime`, or that itself.
        levers: those that may be tried, in the order in which they are listed.
        excluded: names of levers that the user left out.
        run_steps: how long the real run is; None where it was not said.
        budget_s: time the whole study may take.
        allow_unsafe: trials may run where nothing keeps them from writing.
        share_network: trials may use the machine's network.
        is_fresh: do not go on with an unfinished study.
        output: where a copy of the recipe goes; None for the study's folder alone.
        reads_input: read what stands on the standard input, and hand it to each trial.
    """

    command: tuple[str, ...]
    store: Path
    levers: tuple[Lever, ...]
    excluded: tuple[str, ...] = ()
    run_steps: int | None = None
    budget_s: float = 600.0
    allow_unsafe: bool = False
    share_network: bool = False
    is_fresh: bool = False
    output: Path | None = None
    reads_input: bool = True
