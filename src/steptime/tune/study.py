"""One study from its options to its `Study`: the folder, the bench, the search, the end."""

from __future__ import annotations

from collections.abc import Callable

from steptime.core.progress import Progress
from steptime.core.study import Study
from steptime.tune.options import StudyOptions


def run_study(options: StudyOptions, *, progress: Callable[[Progress], None]) -> Study:
    """Find the fastest state that provably trains as well; go on with an unfinished study.

    Ctrl-C ends it early: the Study says `is_interrupted` and holds what was found so far.

    Raises:
        ScriptFailedError: the command fails as written.
        NotFoundError: there is no such command.
        StoreError: no folder can be made, or another study runs in this store.
    """
    raise NotImplementedError
