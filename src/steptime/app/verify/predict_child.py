"""Runs a user's predictor in the user's Python, where Steptime may not be installed.

In: a plan of predictions, and a folder with their inputs. Out: a file of NumPy for each of them.
It knows the standard library and NumPy alone; an exception ends it, and its traceback is shown.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast


def answer(plan: Mapping[str, Any]) -> None:
    """Predict everything that the plan names.

    Args:
        plan: `predictor` (FILE.py:FUNCTION), `folder`, `is_array`, and `tasks`, each with the
            number of its `inputs`, its `change`, `dose` and `check`.
    """
    import numpy as np

    folder, is_array = plan["folder"], plan["is_array"]
    functions: dict[str, Callable[..., Any]] = {}

    def function(name: str) -> Callable[..., Any]:
        if name not in functions:
            functions[name] = load(name)
        return functions[name]

    with np.load(os.path.join(folder, "base.npz"), allow_pickle=False) as file:
        base = {name: file[name] for name in file.files}
    predict = function(plan["predictor"])
    for number, task in enumerate(plan["tasks"]):
        columns = dict(base)
        if task["has_inputs"]:
            path = os.path.join(folder, f"inputs-{number}.npz")
            with np.load(path, allow_pickle=False) as file:
                columns.update({name: file[name] for name in file.files})
        rows = columns["x"] if is_array else columns
        found = {}
        if task["change"]:
            dose = () if task["dose"] is None else (task["dose"],)
            rows = function(task["change"])(rows.copy() if is_array else dict(rows), *dose)
            kept = {"x": rows} if is_array else rows
            path = os.path.join(folder, f"changed-{number}.npz")
            np.savez(path, **{name: plain(kept[name]) for name in kept})
        predictions = predict(rows if is_array else dict(rows))
        if task["check"]:
            found["complies"] = plain(function(task["check"])(rows, predictions))
        found["predictions"] = plain(predictions)
        np.savez(os.path.join(folder, f"answers-{number}.npz"), **found)


def load(name: str) -> Callable[..., Any]:
    """Return the function of `FILE.py:FUNCTION`."""
    path, _, function = name.rpartition(":")
    folder, file = os.path.split(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_name = os.path.splitext(file)[0]
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.get(module_name)
    if getattr(module, "__file__", None) != os.path.abspath(path):
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise LookupError(f"`{path}` has no function `{function}`")
    return cast("Callable[..., Any]", getattr(module, function))


def plain(values: Any) -> Any:
    """Return an array without objects, of a list, a table's column, or a tensor."""
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu()
    found = np.asarray(values)
    return found.astype(str) if found.dtype.kind == "O" else found
