"""Judges a model by its predictions, from tables to a verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steptime.app.verify.checks_asked import ChecksAsked, Predictor
from steptime.app.verify.model_checks import check_model
from steptime.app.verify.prediction_rows import RowsAsked, read_rows
from steptime.errors import UsageError
from steptime.verify.model.judge_model import ModelQuestion, judge_model
from steptime.verify.model.metrics import is_loss
from steptime.verify.model.whole_verdict import with_checks
from steptime.verify.values.model_verdict import ModelVerdict
from steptime.verify.values.probe_asked import probe_asked


def verify_model(
    reference: Any,
    candidate: Any = None,
    *,
    metric: str,
    margin: float | None = None,
    better: str | None = None,
    arm: str | None = None,
    reference_arm: str | None = None,
    id_column: str = "id",
    paired: bool = False,
    group: str | None = None,
    seed: str | None = None,
    slices: Sequence[str] = (),
    shares: Mapping[str, Mapping[str, float]] | None = None,
    slice_margin: float | None = None,
    hunt: Sequence[str] = (),
    train: Any = None,
    inputs: Any = None,
    time: str | None = None,
    human: Sequence[str] = (),
    preference: Sequence[str] = (),
    also: Sequence[str] = (),
    predict: Predictor | None = None,
    predict_reference: Predictor | None = None,
    probes: Sequence[str | Mapping[str, object]] = (),
    python: str | None = None,
    timeout_s: float = 600.0,
    require: Sequence[str] = (),
) -> ModelVerdict:
    """Say whether a model is as good as another, as `steptime verify model` does.

    Args:
        reference, candidate: the rows of each model: a file (CSV, Parquet, Arrow, JSON Lines,
            NumPy), a table of pyarrow or pandas, a mapping of arrays by column, or a function
            without arguments that returns one of these; `reference` alone where it has both.
        metric: a column of numbers, or the name of one that is made of the columns `label` and
            `prediction` or `probability`.
        margin: the loss that does not matter, in the metric's unit; without it, no PASS.
        better: `up` or `down`; None for up, but down for a loss or an error, by its name.
        arm: the column that names the model of a row, where `reference` has both.
        reference_arm: its value that is the reference; None for the first row's.
        id_column: the column that tells a row from the others.
        paired: refuse models that were not scored on the same rows.
        group: the column of what rows belong to, such as a user.
        seed: the column that names the training, where each model was trained several times.
        slices: the columns by which the rows are split.
        shares: by column, the share of each value that counts.
        slice_margin: the loss of one slice that does not matter; None for `margin`.
        hunt: columns in which slices are looked for where the candidate is worse; `all`.
        train: the training rows: simple predictors made from them must be beaten, and no row of
            the evaluation may stand in them.
        inputs: the features of the evaluation rows, by id; an array for a predictor of arrays.
        time: the column of the time: the last value before a row is a simple predictor.
        human: columns with the labels of people.
        preference: columns that say `candidate`, `reference` or `tie`.
        also: further columns of numbers in both arms.
        predict, predict_reference: predictors of `inputs`: a function, or `FILE.py:FUNCTION`,
            which runs in a process of `python`, or of the first on the PATH, for `timeout_s` [s].
        probes: `KIND:KEY=VALUE,...`, or a mapping of these keys.
        require: checks that decide, too: `calibrated`, `human`, `preferred`.

    Returns:
        The verdict, which the documents of `--json` hold.

    Raises:
        UsageError: an argument makes no sense, or a column is missing.
        NotFoundError: a file is not there.
        DataError: rows cannot be read or judged.
        MissingExtraError: the extra `verify-model` is not installed.
    """
    for name, size in (("margin", margin), ("slice_margin", slice_margin)):
        if size is not None and not 0 <= size < float("inf"):
            raise UsageError(
                f"the {name.replace('_', ' ')} is {size}; it must be a size, 0 or more."
            )
    if better not in (None, "up", "down"):
        raise UsageError(f"better is `{better}`; it must be `up` or `down`.")
    for column in shares or ():
        if column not in slices:
            raise UsageError(f"a share is given of `{column}`, which is no slice.")
    if candidate is None and arm is None:
        raise UsageError("there is one table and no column that names the model of a row (arm).")
    asked = ChecksAsked(
        train=_source(train),
        inputs=_source(inputs),
        predict=predict,
        predict_reference=predict_reference,
        probe=tuple(map(probe_asked, _listed(probes))),
        python=python,
        limit_s=timeout_s,
        time=time,
        human=_listed(human),
        preference=_listed(preference),
        also=_listed(also),
        require=_listed(require),
    )
    rows = RowsAsked(
        reference=_source(reference),
        candidate=_source(candidate),
        arm=arm,
        reference_arm=reference_arm,
        metric=metric,
        id_column=id_column,
        group=group,
        seed=seed,
        slices=slices,
        hunted=hunt,
        must_pair=paired,
        keeps_tables=not asked.is_empty,
    )
    found = read_rows(rows)
    way = better or ("down" if is_loss(metric) else "up")
    verdict = judge_model(
        found.arms,
        ModelQuestion(
            metric=metric,
            is_better_down=way == "down",
            margin=margin,
            slice_margin=slice_margin,
            reference_arm=found.reference_arm,
            candidate_arm=found.candidate_arm,
            columns={name: found.columns[name] for name in slices},
            hunted={name: found.columns[name] for name in found.hunted},
            shares=shares or {},
            promises=found.promises,
            notes=found.notes,
        ),
    )
    return with_checks(verdict, check_model(verdict, rows, asked, found.tables), asked.require)


def _listed(some: Any) -> tuple[Any, ...]:
    return (some,) if isinstance(some, str | Mapping) else tuple(some)


def _source(source: Any) -> Any:
    return Path(source) if isinstance(source, str | os.PathLike) else source
