"""What a study is asked to do, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steptime.levers.base import Lever
from steptime.tune.trials.facts.other_python import OtherPython


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What is tried, with which levers, and what the trials may do.

    Attributes:
        command: the user's, as given.
        store: the folder that holds `.steptime`, or `.steptime` itself.
        levers: those that may be used, in the order in which they are listed.
        excluded: names of levers that the user left out.
        budget_s: how long all of it may take, what an earlier call took included.
        allow_unsafe: trials may run where nothing keeps them from writing.
        share_network: trials may use the machine's network.
        training: number of the training that is meant, where the command has several.
        reads_input: read the standard input, and hand what it held to each trial.
    """

    command: tuple[str, ...]
    store: Path
    levers: tuple[Lever, ...]
    excluded: tuple[str, ...] = ()
    budget_s: float = 600.0
    allow_unsafe: bool = False
    share_network: bool = False
    training: int | None = None
    reads_input: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(TrialOptions):
    """What to tune, with what, and for how long.

    Attributes:
        run_steps: the number of steps of the real run; None where the user did not say it.
        allows_changes: levers that change the training are named, with the line that proves each.
        is_fresh: begin a new study, even where an unfinished one could be resumed.
        output: where a copy of the recipe goes; None: it stays in the study's folder alone.
        other_python: another interpreter, which is one more arm; None: there is none.
        given: the options as the user typed them, to be typed again.
    """

    run_steps: int | None = None
    allows_changes: bool = False
    is_fresh: bool = False
    output: Path | None = None
    other_python: OtherPython | None = None
    given: tuple[str, ...] = ()
