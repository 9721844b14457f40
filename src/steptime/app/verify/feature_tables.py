"""Reads features: the rows on which a predictor is probed, and columns of tables as arrays.

In: a file of CSV, Parquet, Arrow, JSON Lines, .npz or .npy, or what is in memory. Out: arrays.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steptime.app.verify.prediction_table import needed_column, read_table
from steptime.errors import DataError, NotFoundError
from steptime.verify.model.metrics import LABEL
from steptime.verify.model.probes import ProbeInputs

_X = "x"


def read_inputs(source: Any, *, id_column: str) -> ProbeInputs:
    """Return the inputs; a predictor gets all columns but the label, or the array `x`.

    Raises:
        NotFoundError: there is no such file.
        DataError: it cannot be read, or has no rows.
    """
    arrays = _arrays(source)
    parts: Mapping[str, Any]
    if arrays is None:
        table = read_table(source, None)
        parts = {name: column_values(table, name) for name in table.column_names}
        parts = {name: v.astype(str) if v.dtype == object else v for name, v in parts.items()}
        columns = {name: values for name, values in parts.items() if name != LABEL}
    else:
        parts, x = arrays, arrays[_X]
        columns = {str(i): x[:, i] for i in range(x.shape[1])} if x.ndim == 2 else {_X: x}
    sizes = {len(values) if values.ndim else 0 for values in (*parts.values(), *columns.values())}
    if len(sizes) > 1:
        raise DataError(f"the inputs have unlike numbers of rows: {sorted(sizes)}.")
    if not columns or not all(sizes):
        raise DataError(f"EmptySlice: the inputs have no rows, or no column but `{LABEL}`.")
    labels = [parts[name] for name in (LABEL, "y") if name in parts and name not in columns]
    ids = parts.get(id_column)
    return ProbeInputs(
        columns=columns,
        is_array=arrays is not None,
        labels=labels[0] if labels else None,
        rows=tuple(map(str, range(*sizes) if ids is None else ids.tolist())),
    )


def _arrays(source: Any) -> Mapping[str, Any] | None:
    """Return arrays by name, of which `x` is what the predictor gets; None for a table."""
    import numpy as np

    if isinstance(source, np.ndarray):
        return {_X: source}
    if not isinstance(source, Path) or source.suffix.lower() not in (".npz", ".npy"):
        return None
    try:
        loaded: Any = np.load(source, allow_pickle=False)
        found = {_X: loaded} if source.suffix.lower() == ".npy" else dict(loaded)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file `{source}`.", hint="--inputs names it.") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"`{source}` cannot be read as arrays: {error}") from error
    return found if _X in found else None


def column_values(table: Any, name: str) -> Any:
    """Return numbers as they are, with NaN for none, and everything else as objects of text.

    Raises:
        UsageError: there is no column of that name.
        DataError: it holds lists, or something else that is no text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = needed_column(table, name)
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number or pa.types.is_boolean(kind):
        if column.null_count:
            column = pc.cast(column, pa.float64() if is_number else pa.float32())
        return column.to_numpy()
    return column_texts(table, name)


def column_texts(table: Any, name: str) -> Any:
    """Return a column as objects of text (num_rows,), empty where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.fill_null(pc.cast(needed_column(table, name), pa.string()), "").to_numpy()
    except pa.ArrowException as error:
        raise DataError(
            f"`{name}` is neither numbers nor text: {error}", hint="Leave this column out."
        ) from error


def alike(*columns: tuple[Any, str]) -> Sequence[Any]:
    """Return columns, each of a table, as arrays of one type: whole numbers, numbers or text."""
    import numpy as np

    found = [column_values(*one) for one in columns]
    if any(one.dtype == object for one in found):
        return [column_texts(*one) for one in columns]
    is_whole = all(one.dtype.kind in "iu" for one in found)
    return [one.astype(np.int64 if is_whole else np.float64) for one in found]
