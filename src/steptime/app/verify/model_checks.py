"""Finds what else is asked of a candidate model: simple predictors, people, leaks, probes.

In: where the rows, the training and the predictor are. Out: `ModelChecks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptime.app.verify.checks_asked import ChecksAsked
from steptime.app.verify.predict_process import PredictorProcess
from steptime.app.verify.prediction_rows import RowsAsked
from steptime.app.verify.prediction_table import codes_of, column_of, numbers_of, read_table
from steptime.app.verify.probe_inputs import column_values, read_inputs
from steptime.app.verify.table_parts import compare_tables
from steptime.errors import DataError, UsageError
from steptime.verify.model.human_labels import compare_numbers, count_preferences, judge_humans
from steptime.verify.model.metrics import LABEL, NEEDS, PREDICTION, PROBABILITY
from steptime.verify.model.probes import run_probes
from steptime.verify.model.simple_predictors import (
    MOST_ROWS,
    MOST_TRAIN,
    SEED,
    LabeledRows,
    SimpleQuestion,
    judge_simple,
    score_of,
)
from steptime.verify.model.two_arms import ArmRows
from steptime.verify.model.whole_verdict import with_checks
from steptime.verify.values.model_verdict import ModelVerdict
from steptime.verify.values.predictor_results import ModelChecks, OtherColumn, SimpleVerdict
from steptime.verify.values.probe_results import ProbeReport

if TYPE_CHECKING:
    import pyarrow as pa

_ARRAYS = (".npz", ".npy")


def check_model(verdict: ModelVerdict, rows: RowsAsked, asked: ChecksAsked) -> ModelVerdict:
    """Return the verdict of a comparison with everything else that is asked.

    Raises:
        SteptimeError: a file, a column or the predictor is not what it must be.
    """
    if rows.seed is not None and (asked.train is not None or asked.humans):
        raise UsageError("--train and --human judge one training; leave --seed out.")
    features = asked.inputs or rows.candidate or rows.reference
    if asked.train is not None and features.suffix.lower() in _ARRAYS:
        raise UsageError(f"--train compares tables, and `{features}` has arrays.")
    tables = [_arm(rows, verdict.reference_arm, rows.reference)]
    tables.append(_arm(rows, verdict.candidate_arm, rows.candidate or rows.reference))
    simple = leaks = None
    if asked.train is not None:
        no_features = {LABEL, PREDICTION, PROBABILITY, rows.metric, rows.arm or ""}
        no_features |= {*asked.humans, *asked.preferences, *asked.others}
        leaks = compare_tables(asked.train, features, id_column=rows.id_column, without=no_features)
        simple = _simple(verdict, rows, asked, tables[1], no_features | {rows.id_column})
    human = None
    if asked.humans:
        if rows.metric != "accuracy":
            raise UsageError("--human compares labels, which needs --metric accuracy.")
        names = [LABEL, PREDICTION, *asked.humans]
        truth, said, *others = (_texts(_column(tables[1], name)) for name in names)
        answers = dict(zip(asked.humans, others, strict=True))
        human = judge_humans(truth, answers, (truth == said).astype(float))
    checks = ModelChecks(
        simple=simple,
        human=human,
        others=(
            *(_numbers(tables, rows, name) for name in asked.others),
            *(
                count_preferences(name, _texts(_column(tables[1], name)))
                for name in asked.preferences
            ),
        ),
        leaks=leaks,
        probes=None if asked.predict is None else _probes(rows, asked),
    )
    return with_checks(verdict, checks)


def _arm(rows: RowsAsked, name: str, source: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = read_table(source, None)
    if rows.candidate is not None:
        return table
    return table.filter(pc.equal(pc.cast(table.column(str(rows.arm)), pa.string()), name))


def _column(table: pa.Table, name: str) -> Any:
    if name not in table.column_names:
        known = ", ".join(f"`{one}`" for one in table.column_names)
        raise UsageError(f"there is no column `{name}`; the table has {known}.")
    return table.column(name)


def _texts(column: Any) -> Any:
    """Return values as text (num_rows,), empty where there is none."""
    import pyarrow as pa

    return column_values(column.cast(pa.string()))


def _probes(rows: RowsAsked, asked: ChecksAsked) -> ProbeReport:
    assert asked.inputs is not None
    inputs = read_inputs(asked.inputs, id_column=rows.id_column)
    asks = [
        partial(
            PredictorProcess(predictor=name, python=asked.python, limit_s=asked.limit_s).ask, inputs
        )
        for name in (asked.predict, asked.predict_reference)
        if name is not None
    ]
    return run_probes(inputs, asked.probes, *asks)


def _simple(
    verdict: ModelVerdict,
    rows: RowsAsked,
    asked: ChecksAsked,
    candidate: pa.Table,
    no_features: set[str],
) -> SimpleVerdict:
    """Return the candidate among simple predictors."""
    if rows.metric not in NEEDS:
        raise UsageError(
            f"--train: the metric `{rows.metric}` cannot be had of a simple predictor.",
            hint=f"With --train, --metric is one of {', '.join(NEEDS)}.",
        )
    assert asked.train is not None
    train, candidate = (
        _drawn(read_table(asked.train, None), MOST_TRAIN),
        _drawn(candidate, MOST_ROWS),
    )
    table = candidate if asked.inputs is None else _aligned(asked.inputs, candidate, rows.id_column)
    for one in (train, table) if asked.time is not None else ():
        _column(one, str(asked.time))
    output = PROBABILITY if PROBABILITY in NEEDS[rows.metric] else PREDICTION
    answers = [_column(train, LABEL), _column(candidate, LABEL), _column(candidate, output)]
    values = [column_values(one) for one in answers]
    if rows.metric != "accuracy":
        numbers = zip((train, candidate, candidate), (LABEL, LABEL, output), strict=True)
        values = [numbers_of(one, name) for one, name in numbers]
    elif any(one.dtype.kind in "US" for one in values):
        values = [_texts(one) for one in answers]
    names = [
        name
        for name in train.column_names
        if name in table.column_names and name not in no_features
    ]
    if not names:
        raise UsageError(
            f"`{asked.train}` shares no feature with the evaluation rows.",
            hint="--inputs names the table with their features.",
        )
    train_rows, here = (
        LabeledRows(
            columns={name: column_values(one.column(name)) for name in names},
            labels=labels,
        )
        for one, labels in ((train, values[0]), (table, values[1]))
    )
    return judge_simple(
        train_rows,
        here,
        score_of(rows.metric, values[1], values[2]),
        SimpleQuestion(
            metric=rows.metric,
            is_better_down=verdict.is_better_down,
            margin=verdict.margin,
            time=asked.time,
        ),
    )


def _drawn(table: pa.Table, most: int) -> pa.Table:
    """Return so many rows of more, drawn by chance, in their order."""
    import numpy as np

    if table.num_rows <= most:
        return table
    chosen = np.random.default_rng(SEED).choice(table.num_rows, size=most, replace=False)
    return table.take(np.sort(chosen))


def _aligned(path: Path, candidate: pa.Table, id_column: str) -> pa.Table:
    """Return the features of the evaluation in the order of the candidate's rows, by id."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = read_table(path, None)
    known, wanted = (_column(one, id_column).cast(pa.string()) for one in (table, candidate))
    if pc.count_distinct(known).as_py() < len(known):
        raise DataError(f"an id stands more than once in `{path}`.", hint="Is --id right?")
    at = pc.index_in(wanted, value_set=known.combine_chunks())
    if at.null_count:
        raise DataError(f"RowsDiffer: {at.null_count:,} rows of the candidate are not in `{path}`.")
    return table.take(at)


def _numbers(tables: Sequence[pa.Table], rows: RowsAsked, name: str) -> OtherColumn:
    """Return another column of both arms."""
    for table in tables:
        _column(table, name)
    ids = codes_of([column_of(table, rows.id_column) for table in tables])
    one, other = (
        ArmRows(scores=numbers_of(table, name)[None], ids=None if ids is None else ids[0][i])
        for i, table in enumerate(tables)
    )
    return compare_numbers(name, one, other)
