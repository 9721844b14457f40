"""Reads the rows of both arms from tables, column by column.

In: tables, in files or in memory. Out: `Arms` with the values of each slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.verify.prediction_table import codes_of, column_of, ids_of, numbers_of, read_table
from steptime.errors import DataError, MissingExtraError, UsageError
from steptime.verify.model.calibration import Promises
from steptime.verify.model.metrics import (
    LABEL,
    NEEDS,
    OF_THE_WHOLE,
    PREDICTION,
    PROBABILITY,
    Columns,
    is_binary,
    scores_of,
)
from steptime.verify.model.two_arms import ArmRows, Arms, join

if TYPE_CHECKING:
    import pyarrow as pa

    from steptime.verify.model.two_arms import Codes, Floats

_MOST_PROMISES = 1_000_000
"""Rows whose probabilities are judged, chosen by chance: they tell an error to some 0.0005."""

_SEED = 20260104
_MANY_VALUES = 50
"""Values above which a column is no column of slices to look through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAsked:
    """Where the rows are.

    Attributes:
        reference, candidate: a file for each arm, or a table (of pyarrow or pandas, or a mapping
            of arrays), or a function without arguments that returns one; `reference` alone where
            one table has both.
        arm: the column that names the arm of a row, where one table has both.
        reference_arm: the value of that column that is the reference; None for the first row's.
        metric: a column of numbers, or one that is made of the columns `label` and `prediction` or
            `probability` (`verify.model.metrics.NEEDS`).
        id_column: the column that tells a row from the others.
        group: the column of what rows belong to, such as a user; None where they are independent.
        seed: the column that names the training, where an arm was trained several times.
        slices: the columns by which the rows are split.
        hunted: the columns in which slices are looked for; `all` is each one of few values.
        must_pair: refuse arms that were not scored on the same rows.
        keeps_tables: hand on the tables with all of their columns.
    """

    reference: Any
    candidate: Any = None
    arm: str | None = None
    reference_arm: str | None = None
    metric: str
    id_column: str = "id"
    group: str | None = None
    seed: str | None = None
    slices: Sequence[str] = ()
    hunted: Sequence[str] = ()
    must_pair: bool = False
    keeps_tables: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFound:
    """The arms, the values of each column by code, their names, and what was assumed.

    Attributes:
        hunted: the columns in which slices are looked for.
        promises: the probabilities of each arm beside what happened; None where it has none.
        tables: those of the reference and of the candidate, where they are kept.
    """

    arms: Arms
    columns: Mapping[str, tuple[str, ...]]
    hunted: tuple[str, ...]
    reference_arm: str
    candidate_arm: str
    promises: tuple[Promises | None, Promises | None] = (None, None)
    notes: tuple[str, ...] = ()
    tables: tuple[pa.Table, ...] = ()


def read_rows(asked: RowsAsked) -> RowsFound:
    """Return the rows of both arms, joined by id where they have the same ids.

    Raises:
        NotFoundError: a file is not there.
        UsageError: a column is missing, or there are not two arms.
        DataError: a file cannot be read, or holds no numbers where the metric is.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "Reading tables of predictions needs pyarrow, which is not installed.",
            needs="steptime[verify-model]",
        ) from error
    notes = list[str]()
    if asked.candidate is not None:
        sources = (asked.reference, asked.candidate)
        tables = [_table(source, asked, needs_arm=False) for source in sources]
        names = (_name(sources[0], "reference"), _name(sources[1], "candidate"))
    else:
        tables, names = _arms_of(_table(asked.reference, asked, needs_arm=True), asked, notes)
    hunted, kept = _hunted(tables, asked), tuple(tables) if asked.keeps_tables else ()
    ids = ids_of([column_of(table, asked.id_column) for table in tables])
    groups = ids_of([column_of(table, asked.group) for table in tables])
    labels = ids_of([column_of(table, LABEL) for table in tables])
    columns = dict.fromkeys([*asked.slices, *hunted])
    coded = {name: codes_of([column_of(table, name) for table in tables]) for name in columns}
    rows, promises = list[ArmRows](), list[Promises | None]()
    for i in (0, 1):
        table = tables.pop(0)  # a table of ten million rows goes before the next is taken apart
        slices = {name: found[0][i] for name, found in coded.items() if found is not None}
        told = {"ids": ids, "labels": labels, "groups": groups}
        codes = {name: None if one is None else one[i] for name, one in told.items()}
        rows.append(_arm(table, asked, **codes, slices=slices))
        promises.append(_promises(table, asked))
        del table
    return RowsFound(
        arms=join(rows.pop(0), rows.pop(0), must_pair=asked.must_pair),
        columns={name: found[1] for name, found in coded.items() if found is not None},
        hunted=hunted,
        reference_arm=names[0],
        candidate_arm=names[1],
        promises=(promises[0], promises[1]),
        notes=tuple(notes),
        tables=kept,
    )


def _name(source: Any, otherwise: str) -> str:
    return source.stem if isinstance(source, Path) else otherwise


def _table(source: Any, asked: RowsAsked, *, needs_arm: bool) -> pa.Table:
    """Return the columns that are needed of one source."""
    wanted = [*NEEDS.get(asked.metric, (asked.metric,)), *asked.slices]
    wanted += [name for name in asked.hunted if name != "all"]
    wanted += [name for name in (asked.group, asked.seed) if name is not None]
    wanted += [str(asked.arm)] if needs_arm else []
    wanted += [asked.id_column] if asked.id_column not in ("", "id") else []  # it was named
    useful = {*wanted, asked.id_column, LABEL, PREDICTION, PROBABILITY}
    needs_all = asked.keeps_tables or "all" in asked.hunted
    table = read_table(source, None if needs_all else useful)
    if asked.metric in table.column_names:
        wanted = [name for name in wanted if name not in NEEDS.get(asked.metric, ())]
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        known = ", ".join(f"`{name}`" for name in table.column_names)
        of = f"`{source}`" if isinstance(source, Path) else "the table"
        raise UsageError(
            f"{of} has no column {', '.join(f'`{name}`' for name in missing)}; it has {known}.",
            hint=f"--metric names a column of numbers, or one of {', '.join(NEEDS)}.",
        )
    return table


def _arm(
    table: pa.Table,
    asked: RowsAsked,
    *,
    ids: Codes | None,
    labels: Codes | None,
    groups: Codes | None,
    slices: Mapping[str, Codes],
) -> ArmRows:
    """Return the rows of one arm; of several trainings, the rows of each beside each other."""
    import numpy as np

    columns = _columns(table, asked.metric)
    is_named = asked.metric not in table.column_names

    def score(rows: Codes | None) -> Floats:
        some = columns if rows is None else {name: one[rows] for name, one in columns.items()}
        return scores_of(asked.metric, some) if is_named else some[asked.metric]

    trainings = _trainings(table, asked, ids)
    scores = np.stack([score(rows) for rows in trainings])
    has_many = len(scores) > 1 and not is_binary(scores)  # easy rows are right in each training
    if has_many and len({one.tobytes() for one in scores}) < len(scores):
        raise DataError(
            f"SeedsReused: two trainings of one arm have the same `{asked.metric}` in every row.",
            hint="Train with another seed each time, or leave the copy out.",
        )
    first = trainings[0]

    def rescored(rows: Codes) -> Floats:
        chosen = [rows if training is None else training[rows] for training in trainings]
        return np.stack([score(some) for some in chosen])

    def kept(codes: Codes | None) -> Codes | None:
        return codes if codes is None or first is None else codes[first]

    return ArmRows(
        scores=scores,
        rescored=rescored if is_named and asked.metric in OF_THE_WHOLE else None,
        ids=kept(ids),
        labels=kept(labels),
        groups=kept(groups),
        slices=slices if first is None else {name: one[first] for name, one in slices.items()},
    )


def _trainings(table: pa.Table, asked: RowsAsked, ids: Codes | None) -> list[Codes | None]:
    """Return the places of the rows of each training, in the order of their ids."""
    import numpy as np

    seeds = codes_of([column_of(table, asked.seed)])
    if seeds is None:
        return [None]
    if ids is None:
        raise UsageError(
            f"--seed needs ids: there is no column `{asked.id_column}`.",
            hint="Name the column that tells a row from the others with --id.",
        )
    found = list[Any]()
    for code, name in enumerate(seeds[1]):
        rows = np.flatnonzero(seeds[0][0] == code)
        rows = rows[np.argsort(ids[rows], kind="stable")]
        if len(np.unique(ids[rows])) < len(rows):
            raise DataError(f"SeedsReused: the training `{name}` has an id more than once.")
        if found and not np.array_equal(ids[rows], ids[found[0]]):
            raise DataError(
                f"RowsDiffer: the trainings `{seeds[1][0]}` and `{name}` of one arm have unlike "
                "ids.",
                hint="Score each training on the same rows.",
            )
        found.append(rows)
    return found


def _hunted(tables: Sequence[pa.Table], asked: RowsAsked) -> tuple[str, ...]:
    """Return the columns in which slices are looked for."""
    import pyarrow.compute as pc

    if "all" not in asked.hunted:
        return tuple(dict.fromkeys(asked.hunted))
    others = {asked.metric, asked.id_column, asked.arm, asked.group, asked.seed}
    others |= {LABEL, PREDICTION, PROBABILITY}
    names = [name for name in tables[0].column_names if name in tables[1].column_names]
    return tuple(
        name
        for name in names
        if name not in others
        and pc.count_distinct(tables[0].column(name), mode="all").as_py() <= _MANY_VALUES
    )


def _arms_of(
    table: pa.Table, asked: RowsAsked, notes: list[str]
) -> tuple[list[pa.Table], tuple[str, str]]:
    """Split one table by the column of its arms."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.cast(table.column(str(asked.arm)), pa.string())
    if num := column.null_count:
        raise DataError(f"{num:,} rows have no `{asked.arm}`.")
    arms = pc.unique(column).to_pylist()
    if len(arms) != 2:
        raise UsageError(
            f"`{asked.arm}` has {len(arms)} values ({', '.join(map(str, arms[:5]))}); a comparison "
            "is of two arms.",
            hint="Name the column with --arm, and leave other arms out of the file.",
        )
    first = asked.reference_arm
    if first is None:
        first = arms[0]
        notes.append("reference_is_first")
    if first not in arms:
        raise UsageError(f"`{asked.arm}` has no value `{first}`; it has {' and '.join(arms)}.")
    second = next(one for one in arms if one != first)
    return [table.filter(pc.equal(column, name)) for name in (first, second)], (first, second)


def _columns(table: pa.Table, metric: str) -> Columns:
    """Return what the metric is made of, as numbers; of `accuracy`, any values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if metric in table.column_names:
        return {metric: numbers_of(table, metric)}
    label = table.column(LABEL)
    missing = pc.is_null(label, nan_is_null=True)
    if pa.types.is_string(label.type):
        missing = pc.or_kleene(missing, pc.equal(label, ""))
    if num := pc.sum(missing).as_py():
        raise DataError(f"NonFiniteMetric: {num:,} rows have no `{LABEL}`.")
    if metric == "accuracy":
        return _compared(table)
    return {name: numbers_of(table, name) for name in NEEDS[metric]}


def _compared(table: pa.Table) -> Columns:
    """Return labels and predictions as numbers that are equal where these are."""
    import pyarrow as pa

    label, prediction = table.column(LABEL), table.column(PREDICTION)
    if all(pa.types.is_integer(one.type) and not one.null_count for one in (label, prediction)):
        return {LABEL: label.to_numpy(), PREDICTION: prediction.to_numpy()}
    if all(pa.types.is_primitive(one.type) for one in (label, prediction)):
        return {name: numbers_of(table, name) for name in (LABEL, PREDICTION)}
    coded = codes_of([label, prediction])
    assert coded is not None
    return {LABEL: coded[0][0], PREDICTION: coded[0][1]}


def _promises(table: pa.Table, asked: RowsAsked) -> Promises | None:
    """Return the probabilities and what happened; None where there are none to hold together."""
    import numpy as np
    import pyarrow as pa

    if table.num_rows > _MOST_PROMISES:
        chance = np.random.default_rng(_SEED)
        chosen = chance.choice(table.num_rows, _MOST_PROMISES, replace=False, shuffle=False)
        names = {LABEL, PREDICTION, PROBABILITY} & set(table.column_names)
        table = table.select(sorted(names)).take(np.sort(chosen))
    label, probability = column_of(table, LABEL), column_of(table, PROBABILITY)
    if label is None or probability is None or asked.seed is not None:
        return None
    p = numbers_of(table, PROBABILITY)
    if pa.types.is_primitive(label.type):
        y = numbers_of(table, LABEL)
        if bool(((y == 0) | (y == 1)).all()):
            return Promises(p, y)
    if PREDICTION not in table.column_names:
        return None
    found = _compared(table)
    right = (found[LABEL] == found[PREDICTION]).astype("float64")
    return Promises(p, right, is_of_top_label=True)
