"""Reads the rows on which a predictor is probed: a table, or an array of NumPy.

In: a file of CSV, Parquet, Arrow, JSON Lines, .npz or .npy. Out: `ProbeInputs`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from steptime.app.verify.prediction_table import read_table
from steptime.errors import DataError, NotFoundError
from steptime.verify.model.metrics import LABEL
from steptime.verify.model.probes import ProbeInputs

_X, _LABELS = "x", ("y", LABEL)


def read_inputs(path: Path, *, id_column: str) -> ProbeInputs:
    """Return the inputs; a predictor gets all columns but the label.

    Raises:
        NotFoundError: there is no such file.
        DataError: it cannot be read, or has no rows.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file `{path}`.", hint="--inputs names a table, or .npz.")
    found = (
        _read_arrays(path, id_column)
        if path.suffix.lower() in (".npz", ".npy")
        else _read_table(path, id_column)
    )
    if not found.num_rows:
        raise DataError(f"EmptySlice: `{path}` has no rows.")
    return found


def _read_arrays(path: Path, id_column: str) -> ProbeInputs:
    import numpy as np

    try:
        loaded: Any = np.load(path, allow_pickle=False)
        parts = {_X: loaded} if path.suffix.lower() == ".npy" else dict(loaded)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"`{path}` cannot be read as arrays: {error}") from error
    if _X not in parts:
        raise DataError(f"`{path}` has no array `x`; it has {', '.join(map(repr, parts))}.")
    x = parts[_X]
    if not x.ndim:
        raise DataError(f"`x` of `{path}` is one value; expected an array of rows.")
    for name, values in parts.items():
        if values.shape[:1] != x.shape[:1]:
            raise DataError(f"`{name}` and `x` of `{path}` have unlike numbers of rows.")
    labels = next((parts[name] for name in _LABELS if name in parts), None)
    ids = parts.get(id_column)
    rows = tuple(map(str, range(len(x)) if ids is None else ids.tolist()))
    return ProbeInputs(columns={_X: x}, is_array=True, labels=labels, rows=rows)


def _read_table(path: Path, id_column: str) -> ProbeInputs:
    table = read_table(path, None)
    columns = {name: column_values(table.column(name)) for name in table.column_names}
    labels = columns.pop(LABEL, None)
    if not columns:
        raise DataError(f"`{path}` has no column but `{LABEL}`.")
    num = len(next(iter(columns.values())))
    ids = columns.get(id_column)
    rows = tuple(map(str, range(num) if ids is None else ids.tolist()))
    return ProbeInputs(columns=columns, labels=labels, rows=rows)


def column_values(column: Any) -> Any:
    """Return numbers as they are, with NaN for none, and everything else as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number or pa.types.is_boolean(kind):
        if column.null_count:
            column = pc.cast(column, pa.float64() if is_number else pa.float32())
        return column.to_numpy(zero_copy_only=False)
    try:
        text = pc.fill_null(pc.cast(column, pa.string()), "")
    except pa.ArrowException as error:
        raise DataError(f"a column of {kind} is neither numbers nor text: {error}") from error
    return text.to_numpy(zero_copy_only=False).astype(str)
