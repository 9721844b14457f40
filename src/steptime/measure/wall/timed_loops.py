"""Says how much of a step the user's loops over elements take at most.

In: the loops that the source shows, and the sites of the run. Out: a `PythonLoop` each. The lines
of a site take their share of a phase; a loop in them takes no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from steptime.measure.fold.code_places import CodePlaces
from steptime.measure.source.loop_marks import LoopMark
from steptime.measure.values.observations import PythonLoop, Site, SourceEdit

MAX_LOOPS = 10


def find_python_loops(places: CodePlaces, sites: Sequence[Site]) -> tuple[PythonLoop, ...]:
    """Return the loops in lines that were timed, those with the largest share first.

    Args:
        places: what names files; its source holds the loops.
        sites: those of the run.
    """
    found: dict[tuple[str, str, int], PythonLoop] = {}
    for mark in places.source.loops:
        loop = _loop(mark, places, sites)
        if loop is None:
            continue
        key = (loop.code, loop.file, loop.line)
        known = found.get(key)
        if known is not None:  # markers in the loop itself cut it into several sites
            loop = replace(known, share_of_phase=known.share_of_phase + loop.share_of_phase)
        found[key] = replace(loop, share_of_phase=min(1.0, loop.share_of_phase))
    ordered = sorted(found.values(), key=lambda one: (-one.share_of_phase, one.file, one.line))
    return tuple(ordered[:MAX_LOOPS])


def _loop(mark: LoopMark, places: CodePlaces, sites: Iterable[Site]) -> PythonLoop | None:
    share = 1.0 if mark.site is None else _share(mark, places, sites)
    if share is None:
        return None
    edit = None
    if mark.diff is not None and mark.keeps is not None:
        edit = SourceEdit(diff=mark.diff, keeps=mark.keeps, is_live=mark.live is not None)
    return PythonLoop(
        code=mark.code,
        file=places.name(mark.file),
        line=mark.line,
        end_line=mark.end_line,
        text=mark.text,
        phase=mark.what,
        share_of_phase=share,
        num_others=mark.num_others,
        edit=edit,
    )


def _share(mark: LoopMark, places: CodePlaces, sites: Iterable[Site]) -> float | None:
    """Return the share of its phase that a site takes; None if it was not among the longest."""
    assert mark.site is not None
    file, line, end_line = mark.site
    key = (places.name(file), line, end_line)
    timed = [one for one in sites if one.what == mark.what and one.s_per_step is not None]
    total_s = math.fsum(one.s_per_step or 0.0 for one in timed)
    own = [one.s_per_step for one in timed if (one.file, one.line, one.end_line) == key]
    return (own[0] or 0.0) / total_s if own and total_s > 0 else None
