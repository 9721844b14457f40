"""Runs a user's predictor in the user's Python, where Steptime may not be installed.

In: a plan of predictions, and a folder with their inputs. Out: files of NumPy for each of them.
It knows the standard library and NumPy alone; an exception ends it, and its traceback is shown.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast


def answer(plan: Mapping[str, Any]) -> None:
    """Predict everything that the plan names.

    Args:
        plan: `predictor` (FILE.py:FUNCTION), `folder`, `is_array`, and for each of `tasks` a change
            of the user's, its dose, and a check.
    """
    import numpy as np

    def read(name: str) -> dict[str, Any]:  # keys have a letter more: any name is a column's
        with np.load(os.path.join(plan["folder"], name), allow_pickle=False) as file:
            return {key[1:]: file[key] for key in file.files}

    predict = load(plan["predictor"])
    for number, task in enumerate(plan["tasks"]):
        columns = read(f"inputs-{number}.npz")
        found = react(predict, read("base.npz"), columns, *task, is_array=plan["is_array"])
        np.savez(os.path.join(plan["folder"], f"answers-{number}.npz"), **found)


def react(
    predict: Callable[[Any], Any],
    base: Mapping[str, Any],
    columns: Mapping[str, Any],
    change: str | None,
    dose: float | None,
    check: str | None,
    *,
    is_array: bool,
) -> dict[str, Any]:
    """Return predictions, which rows (num_rows,) are changed beside `base`, and which comply."""
    import numpy as np

    def rows_of(some: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: values.copy() for name, values in some.items()}
        is_whole = not is_array or "x" in some
        return own if is_whole else {"x": np.stack(list(own.values()), axis=1)}

    before, after = rows_of(base), rows_of({**base, **columns})
    rows: Any = after["x"] if is_array else after
    if change:
        rows = load(change)(rows, *(() if dose is None else (dose,)))
        if not is_array and not isinstance(rows, dict):
            raise TypeError(f"`{change}` returned {type(rows)}; expected a dict of columns")
    changed = _changed(before, {"x": rows} if is_array else rows)
    predictions = predict(rows)
    found = {"predictions": _plain(predictions), "changed": changed}
    return {**found, "complies": _plain(load(check)(rows, predictions))} if check else found


@cache
def load(name: str) -> Callable[..., Any]:
    """Return the function of `FILE.py:FUNCTION`."""
    path, _, function = name.rpartition(":")
    folder, file = os.path.split(os.path.abspath(path))
    module_name = os.path.splitext(file)[0]
    module = sys.modules.get(module_name)
    if getattr(module, "__file__", None) != os.path.join(folder, file):
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(module_name, os.path.join(folder, file))
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise LookupError(f"`{path}` has no function `{function}`")
    return cast("Callable[..., Any]", getattr(module, function))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """Return which rows (num_rows,) differ in some column."""
    import numpy as np

    found = np.zeros(len(next(iter(before.values()))), dtype=bool)
    for name, values in after.items():
        old, new = before.get(name), np.asarray(values)
        if old is None or new.shape != old.shape:
            return np.ones_like(found)
        is_other = new != old
        if old.dtype.kind == "f" and new.dtype.kind == "f":
            is_other &= ~(np.isnan(old) & np.isnan(new))
        found |= is_other.reshape(len(found), -1).any(axis=1)
    return found


def _plain(values: Any) -> Any:
    """Return an array without objects, of a list, a table's column, or a tensor."""
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu()
    found = np.asarray(values)
    if found.dtype.kind != "O":
        return found
    has_none = any(one is None for one in found.ravel().tolist())
    return found.astype(float if has_none else str)  # of numbers, None is none
