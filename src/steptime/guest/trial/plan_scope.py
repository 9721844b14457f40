"""Decides whether a plan is meant for this process, where the command has several trainings.

A plan may name the processes of one training: by the words with which they were started, and by
their number among all processes with the same words. In any other process it does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...record.files import PROCESSES
from ...record.live.begun import number_alike, read_begun


def is_meant(scope: Mapping[str, Any] | None, run: str) -> bool:
    """Return whether this process is one of those that a plan names; without a scope, each is.

    Args:
        scope: the plan's `only`: `words` and `numbers`.
        run: the folder of the run or trial.
    """
    if scope is None:
        return True
    begun = read_begun(os.path.join(run, PROCESSES))
    words, number = number_alike(begun).get(os.getpid(), ((), -1))
    return list(words) == scope["words"] and number in scope["numbers"]
