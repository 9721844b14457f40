"""A whole study of a tiny script, live or over the answers that are kept of a live one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from end_to_end.acting import BURNING, lever
from steptime.levers.base import Lever
from steptime.tune.study_options import StudyOptions

ACTS = ("nothing", "crash", "not_finite", "quick")
BUDGET_S = 150.0


def study_options(
    folder: Path,
    levers: Sequence[Lever] | None = None,
    *,
    words: Sequence[str] = (),
    budget_s: float = BUDGET_S,
) -> StudyOptions:
    """The study of the burning script, with a lever for each act where none are given."""
    return StudyOptions(
        command=(sys.executable, str(BURNING), *words),
        store=folder,
        levers=tuple(map(lever, ACTS) if levers is None else levers),
        budget_s=budget_s,
        allow_unsafe=True,
    )
