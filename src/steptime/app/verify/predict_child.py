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
        plan: `predictor` (FILE.py:FUNCTION), `folder`, `is_array`, and for each of `tasks` the
            change, the dose of it, and the check.
    """
    import numpy as np

    def read(name: str) -> dict[str, Any]:
        with np.load(os.path.join(plan["folder"], name), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def write(name: str, arrays: Mapping[str, Any]) -> None:
        plain = {key: _plain(values) for key, values in arrays.items()}
        np.savez(os.path.join(plan["folder"], name), **plain)

    predict = load(plan["predictor"])
    for number, (change, dose, check) in enumerate(plan["tasks"]):
        columns = {**read("base.npz"), **read(f"inputs-{number}.npz")}
        rows = columns["x"] if plan["is_array"] else columns
        changed: Mapping[str, Any] = {}
        if change:
            rows = load(change)(rows, *(() if dose is None else (dose,)))
            changed = {"x": rows} if plan["is_array"] else rows
        write(f"changed-{number}.npz", changed)
        found = {"predictions": predict(rows)}
        if check:
            found["complies"] = load(check)(rows, found["predictions"])
        write(f"answers-{number}.npz", found)


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


def _plain(values: Any) -> Any:
    """Return an array without objects, of a list, a table's column, or a tensor."""
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu()
    found = np.asarray(values)
    return found.astype(str) if found.dtype.kind == "O" else found
