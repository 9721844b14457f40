"""Judges a model by its predictions, from tables to a verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steptime.app.verify.prediction_rows import RowsAsked, read_rows
from steptime.errors import UsageError
from steptime.verify.model.judge_model import ModelQuestion, judge_model
from steptime.verify.model.metrics import BETTER_DOWN
from steptime.verify.values.model_verdict import ModelVerdict


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
) -> ModelVerdict:
    """Say whether a model is as good as another, as `steptime verify model` does.

    Args:
        reference, candidate: the rows of each model: a file (CSV, Parquet, Arrow, JSON Lines,
            NumPy), a table of pyarrow or pandas, a mapping of arrays by column, or a function
            without arguments that returns one of these; `reference` alone where it has both.
        metric: a column of numbers, or the name of one that is made of the columns `label` and
            `prediction` or `probability`.
        margin: the loss that does not matter, in the metric's unit; without it, no PASS.
        better: `up` or `down`; None for up, but down for a loss.
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
    if candidate is None and arm is None:
        raise UsageError("there is one table and no column that names the model of a row (arm).")
    found = read_rows(
        RowsAsked(
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
        )
    )
    way = better or ("down" if metric in BETTER_DOWN else "up")
    return judge_model(
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


def _source(source: Any) -> Any:
    return Path(source) if isinstance(source, str | os.PathLike) else source
