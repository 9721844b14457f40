"""Finds what else is asked of a candidate model: simple predictors, people, leaks, probes.

In: where the rows, the training and the predictor are. Out: `ModelChecks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from steptime.app.verify.checks_asked import ChecksAsked
from steptime.app.verify.feature_tables import alike, read_inputs
from steptime.app.verify.predict_process import ask_function, ask_process
from steptime.app.verify.prediction_rows import RowsAsked
from steptime.app.verify.prediction_table import codes_of, column_of, numbers_of, read_table
from steptime.errors import DataError, UsageError
from steptime.verify.model.human_labels import compare_numbers, count_preferences, judge_humans
from steptime.verify.model.leaks import LeakRows, find_leaks
from steptime.verify.model.metrics import LABEL, NEEDS, PREDICTION, PROBABILITY
from steptime.verify.model.probes import run_probes
from steptime.verify.model.simple_predictors import (
    MOST_ROWS,
    MOST_TRAIN,
    SEED,
    judge_simple,
    score_of,
)
from steptime.verify.model.two_arms import ArmRows
from steptime.verify.values.check_results import (
    HumanVerdict,
    LeakVerdict,
    ModelChecks,
    OtherColumn,
    ProbeReport,
    SimpleVerdict,
)
from steptime.verify.values.model_verdict import ModelVerdict

if TYPE_CHECKING:
    import pyarrow as pa


def check_model(
    verdict: ModelVerdict, rows: RowsAsked, asked: ChecksAsked, tables: Sequence[pa.Table]
) -> ModelChecks | None:
    """Return everything else that is asked of the candidate; None where nothing is.

    `tables` are the rows of the reference and of the candidate, with all columns.

    Raises:
        SteptimeError: a file, a column or the predictor is not what it must be.
    """
    if asked.is_empty:
        return None
    if rows.seed is not None and (asked.train is not None or asked.human):
        raise UsageError("--train and --human judge one training; leave --seed out.")
    candidate = tables[1]
    others = [_numbers(tables, name, rows.id_column) for name in asked.also]
    others += [count_preferences(one, alike((candidate, one))[0]) for one in asked.preference]
    simple, leaks = _beside_training(verdict, rows, asked, candidate)
    return ModelChecks(
        simple=simple,
        leaks=leaks,
        human=_humans(candidate, rows.metric, asked.human) if asked.human else None,
        others=tuple(others),
        probes=None if asked.predict is None else _probes(rows, asked),
    )


def _humans(candidate: pa.Table, metric: str, names: Sequence[str]) -> HumanVerdict:
    import numpy as np

    if metric != "accuracy":
        raise UsageError("--human compares labels, which needs --metric accuracy.")
    found = alike(*((candidate, name) for name in (LABEL, PREDICTION, *names)))
    truth, said, *others = (np.where(one == one, one.astype(str), "") for one in found)
    answers = dict(zip(names, others, strict=True))
    return judge_humans(truth, answers, (truth == said).astype(float))


def _probes(rows: RowsAsked, asked: ChecksAsked) -> ProbeReport:
    inputs = read_inputs(asked.inputs, id_column=rows.id_column)
    ask = partial(ask_process, python=asked.python, limit_s=asked.limit_s)
    asks = [
        partial(ask_function, one, inputs) if callable(one) else partial(ask, one, inputs)
        for one in (asked.predict, asked.predict_reference)
        if one is not None
    ]
    return run_probes(inputs, asked.probe, *asks)


def _beside_training(
    verdict: ModelVerdict, rows: RowsAsked, asked: ChecksAsked, candidate: pa.Table
) -> tuple[SimpleVerdict | None, LeakVerdict | None]:
    """Return what the training rows say of the candidate, and which are in the evaluation, too."""
    if asked.train is None:
        return None, None
    if rows.metric not in NEEDS:
        raise UsageError(
            f"--train: the metric `{rows.metric}` cannot be had of a simple predictor.",
            hint=f"With --train, --metric is one of {', '.join(NEEDS)}.",
        )
    train = read_table(asked.train, None)
    features = candidate if asked.inputs is None else read_table(asked.inputs, None)
    no_features = {LABEL, PREDICTION, PROBABILITY, rows.id_column, rows.metric, rows.arm}
    no_features |= {*asked.human, *asked.preference, *asked.also}
    shared = [name for name in train.column_names if name in features.column_names]
    names = [name for name in shared if name not in no_features]
    if not names:
        raise UsageError(
            "the training shares no feature with the evaluation rows.",
            hint="--inputs names the table with their features.",
        )
    if asked.time is not None and asked.time not in names:
        raise UsageError(f"--time: there is no feature `{asked.time}` that both tables have.")
    id_column = rows.id_column if rows.id_column in shared else None
    leaks = compare_tables(train, features, names, id_column=id_column)
    train, candidate = _drawn(train, MOST_TRAIN), _drawn(candidate, MOST_ROWS)
    if asked.inputs is None:
        features = candidate
    else:
        features = _aligned(features, candidate, rows.id_column)
    return _simple(verdict, asked, (train, features, candidate), names), leaks


def compare_tables(
    train: pa.Table, rows: pa.Table, names: Sequence[str], *, id_column: str | None
) -> LeakVerdict:
    """Return which rows of one table stand in the other, by columns that both have."""

    def read(i: int, name: str) -> Any:
        return alike((train, name), (rows, name))[i]

    known, here = (
        LeakRows(
            num=table.num_rows,
            columns=map(partial(read, i), names),
            ids=None if id_column is None else read(i, id_column),
        )
        for i, table in enumerate((train, rows))
    )
    return find_leaks(known, here, names)


def _simple(
    verdict: ModelVerdict,
    asked: ChecksAsked,
    tables: tuple[pa.Table, pa.Table, pa.Table],
    names: Sequence[str],
) -> SimpleVerdict:
    """Return the candidate among simple predictors, by training, features and predictions."""
    train, features, candidate = tables
    output = PROBABILITY if PROBABILITY in NEEDS[verdict.metric] else PREDICTION
    answers = [(train, LABEL), (candidate, LABEL), (candidate, output)]
    read = alike(*answers)
    if verdict.metric != "accuracy":
        read = [numbers_of(*one) for one in answers]
    return judge_simple(
        {name: alike((train, name), (features, name)) for name in names},
        read[0],
        read[1],
        score_of(verdict.metric, read[1], read[2]),
        metric=verdict.metric,
        is_better_down=verdict.is_better_down,
        margin=verdict.margin,
        time=asked.time,
    )


def _drawn(table: pa.Table, most: int) -> pa.Table:
    """Return so many rows of more, drawn by chance, in their order."""
    import numpy as np

    if table.num_rows <= most:
        return table
    chosen = np.random.default_rng(SEED).choice(table.num_rows, size=most, replace=False)
    return table.take(np.sort(chosen))


def _aligned(features: pa.Table, candidate: pa.Table, id_column: str) -> pa.Table:
    """Return the features of the evaluation in the order of the candidate's rows, by id."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known, wanted = (pa.array(one) for one in alike((features, id_column), (candidate, id_column)))
    if pc.count_distinct(known).as_py() < len(known):
        raise DataError("an id stands more than once in --inputs.", hint="Is --id right?")
    at = pc.index_in(wanted, value_set=known)
    if at.null_count:
        raise DataError(f"RowsDiffer: {at.null_count:,} rows of the candidate are not in --inputs.")
    return features.take(at)


def _numbers(tables: Sequence[pa.Table], name: str, id_column: str) -> OtherColumn:
    """Return another column of both arms."""
    alike(*((table, name) for table in tables))
    ids = codes_of([column_of(table, id_column) for table in tables])
    one, other = (
        ArmRows(scores=numbers_of(table, name)[None], ids=None if ids is None else ids[0][i])
        for i, table in enumerate(tables)
    )
    return compare_numbers(name, one, other)
