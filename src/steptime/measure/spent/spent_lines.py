"""Says which lines of the script the time of its steps goes to, from stacks that were sampled.

In: the line `sl` of the busiest rank, and what the source shows at its instructions. Out: a
`SpentTime`. Spans (an evaluation, a checkpoint) are no part of a step, and are left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from steptime.measure.fold.code_places import CodePlaces
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.measurement import SPANS
from steptime.measure.values.spent_line import SpentLine, SpentTime, WorkAgain
from steptime.record.loaders.batch_rows import SpentRow
from steptime.record.places import NS

MIN_SAMPLES = 40
"""Of so many samples, a line with a fifth of the time has a share between 9 % and 36 %."""

MAX_LINES = 40
MIN_LIBRARY = 0.01
"""Of the steps' time: a library that takes less is not kept."""

_Key = tuple[str, str, int, str | None]


def find_spent(rank: RankSteps, places: CodePlaces) -> SpentTime | None:
    """Return the lines of a rank's steps; None where too few stacks were sampled."""
    seen = rank.signals.spent
    if seen is None:
        return None
    rows = [row for row in seen.rows if row.what not in SPANS]
    num = sum(row.num for row in rows)
    total_ns = sum(row.ns for row in rows)
    apart_ns = sum(row.ns for row in seen.rows if row.what in SPANS)
    whole_ns = max(total_ns, seen.total_ns - apart_ns)  # with those that are in no row
    if num < MIN_SAMPLES or whole_ns <= 0:
        return None
    found: defaultdict[_Key, list[SpentRow]] = defaultdict(list)
    for row in rows:
        if row.file:
            column = -1 if row.column is None else row.column
            code = places.source.spent.get((row.file, row.line, column))
            found[row.what, row.file, row.line, code].append(row)
    named_ns = sum(row.ns for row in rows if row.file)
    lines = [
        _line(key, parts, places, whole_ns=whole_ns, num_updates=seen.num_updates)
        for key, parts in found.items()
    ]
    ordered = sorted(lines, key=lambda one: (-one.fraction, one.file, one.line, one.what))
    return SpentTime(
        num_samples=num,
        num_updates=seen.num_updates,
        step_s=whole_ns * NS / max(1, seen.num_updates),
        without_line=max(0.0, 1 - named_ns / whole_ns),
        lines=tuple(ordered[:MAX_LINES]),
        libraries={
            name: min(1.0, ns / whole_ns)
            for name, ns in seen.libraries.items()
            if ns >= MIN_LIBRARY * whole_ns
        },
    )


def find_repeats(rank: RankSteps, places: CodePlaces) -> tuple[WorkAgain, ...]:
    """Return the frozen modules and the data sets of a rank whose rows come again."""
    return tuple(
        WorkAgain(
            what=row.what,
            name=row.name,
            calls_per_step=row.calls / max(1, rank.num_watched),
            s_per_call=row.total_ns * NS / max(1, row.calls),
            num_rows=row.num_rows,
            num_distinct=row.num_distinct,
            kept_bytes=row.num_distinct
            * (row.row_bytes if row.what == "data_set" else row.result_bytes),
            where=places.where(row.file or None, row.line),
            text=places.source.texts.get((row.file, row.line)),
        )
        for row in rank.signals.again
    )


def _line(
    key: _Key, rows: Iterable[SpentRow], places: CodePlaces, *, whole_ns: int, num_updates: int
) -> SpentLine:
    what, file, line, code = key
    parts = sorted(rows, key=lambda row: -row.ns)
    ns = sum(row.ns for row in parts)
    mean = math.fsum(row.ns * row.mean_update for row in parts) / max(1, ns)
    return SpentLine(
        what=what,
        file=places.name(file),
        line=line,
        function=parts[0].function,
        callee=parts[0].callee,
        fraction=ns / whole_ns,
        num_samples=sum(row.num for row in parts),
        growth=2 * mean / max(1, num_updates) - 1,
        code=code,
        text=places.source.texts.get((file, line)),
    )
