"""What a study is asked to do: the options of `steptime tune` as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_BUDGET_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What `steptime tune` was asked.

    Attributes:
        command: the user's, an argv.
        store: the folder that holds `.steptime`.
        budget_s: time for the whole study.
        levers: names of those to try; None: all.
        exclude: names of those to leave out.
        run_steps: length of the real run, over which one-off costs are earned; None: not said.
        allow_unsafe: try even where the trials cannot be kept from harm.
        share_network: the trials may use the network of the machine.
        is_fresh: do not go on with an unfinished study.
    """

    command: tuple[str, ...]
    store: Path
    budget_s: float = DEFAULT_BUDGET_S
    levers: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    run_steps: int | None = None
    allow_unsafe: bool = False
    share_network: bool = False
    is_fresh: bool = False
