"""Reads recorded runs of two arms from a table of comma-separated values.

In: a file with a header. Out: `TrainingRun`s, in the order of the file. A row is one evaluation of
one run.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steptime.errors import NotFoundError, RunsError
from steptime.record.regular_file import read_regular
from steptime.verify.values.seed_runs import CANDIDATE, CUT, REFERENCE, TrainingRun

POINTS = ("samples", "step")
"""Names of the column that says where a run was evaluated; the first one that is there."""


@dataclass(slots=True)
class _Rows:
    """The rows of one run."""

    points: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def read_table(path: Path, metric: str) -> tuple[TrainingRun, ...]:
    """Return the runs of a table.

    Args:
        path: with the columns `arm`, `seed`, `samples` or `step`, the metric's, and perhaps
            `seconds` since the start of the run.
        metric: name of the metric's column.

    Raises:
        NotFoundError: there is no such file.
        RunsError: a column is missing, a cell is no number, or points do not rise.
    """
    try:
        text = read_regular(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise NotFoundError(f"the table {path} cannot be read: {why}.") from error
    reader = csv.DictReader(text.splitlines())
    try:
        rows = list(reader)
    except csv.Error as error:
        raise RunsError(f"{path}, line {reader.line_num + 1}: {error}.") from error
    columns = reader.fieldnames or ()
    point = next((name for name in POINTS if name in columns), None)
    missing = [name for name in ("arm", "seed", metric) if name not in columns]
    if missing or point is None:
        wanted = ", ".join([*missing, *([] if point else ["samples or step"])])
        raise RunsError(
            f"{path}: there is no column {wanted}.",
            hint=f"The header has: {', '.join(columns) or 'nothing'}.",
        )
    return _runs_of(path, rows, point=point, metric=metric)


def _runs_of(
    path: Path, rows: Iterable[Mapping[str, str]], *, point: str, metric: str
) -> tuple[TrainingRun, ...]:
    found: dict[tuple[str, str], _Rows] = {}
    for number, row in enumerate(rows, start=2):
        arm = row["arm"]
        if arm not in (REFERENCE, CANDIDATE, CUT):
            raise RunsError(
                f"{path}, line {number}: the arm is `{arm}`.",
                hint=f"It is {REFERENCE}, {CANDIDATE}, or {CUT} for a shortened reference.",
            )
        run = found.setdefault((arm, row["seed"]), _Rows())
        at = _number(path, number, point, row[point])
        last = run.points[-1] if run.points else -math.inf
        if not last < at < math.inf:
            raise RunsError(
                f"{path}, line {number}: {point} {at:g} is not above {last:g}.",
                hint="The points of a run rise; two runs with one seed need two seeds.",
            )
        run.points.append(at)
        run.values.append(_number(path, number, metric, row[metric]))
        if row.get("seconds"):
            seconds = _number(path, number, "seconds", row["seconds"])
            run.seconds.append(seconds)
    return tuple(
        TrainingRun(
            arm=arm,
            seed=seed or None,
            points=tuple(run.points),
            values=tuple(run.values),
            seconds=run.seconds[-1] if run.seconds else None,
            seconds_at=tuple(run.seconds) if len(run.seconds) == len(run.points) else (),
        )
        for (arm, seed), run in found.items()
    )


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise RunsError(
            f"{path}, line {line}: {column} is `{text or ''}`.",
            hint="A number is expected; a run that diverged has nan.",
        ) from None
