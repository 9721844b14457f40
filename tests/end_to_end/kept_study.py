"""A whole study of a tiny script, live or over the answers that are kept of a live one."""

from __future__ import annotations

import sys
from pathlib import Path

from end_to_end.acting import BURNING, lever
from steptime.tune.study_options import StudyOptions

ACTS = ("nothing", "crash", "not_finite", "quick")
BUDGET_S = 150.0


def study_options(folder: Path) -> StudyOptions:
    """The study of the burning script, with a lever for each act."""
    return StudyOptions(
        command=(sys.executable, str(BURNING)),
        store=folder,
        levers=tuple(map(lever, ACTS)),
        budget_s=BUDGET_S,
        allow_unsafe=True,
    )
