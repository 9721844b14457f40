"""Adds up the time of operators by their name, and by the class of the module that they ran in.

In: operators that ran, each with its innermost module. Out: a row of a tally for each, which takes
its time, and tables of the largest. What a model consists of by FLOP says little about its time: a
dropout has no product, and may take most of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

MAX_ROWS = 12
"""As many are written: those that explain a step, and lines stay short."""

MAX_NAME = 80
_OUTSIDE = ("", "")

SumsOf = Callable[[str, list[int]], dict[str, Any]]


class TimeSums:
    """Rows of sums by operator, its class and its module; `num_sums` is the length of a row."""

    def __init__(self, num_sums: int) -> None:
        self.num_sums = num_sums
        self.rows: dict[tuple[str, str, int | None], list[int]] = {}

    def row(self, func: Any, kind: str, module: int | None) -> list[int]:
        """Return the row to which an operator is added.

        Args:
            func: the operator.
            kind: its class.
            module: the number of the innermost module in whose call it, or its forward, ran.
        """
        name = ".".join(str(func).split(".")[:2])[:MAX_NAME]  # without the overload
        return self.rows.setdefault((name, kind, module), [0] * self.num_sums)

    def tables(
        self, names: Mapping[int, tuple[str, str]], sums_of: SumsOf, at: int
    ) -> dict[str, Any]:
        """Return the largest sums by operator, and by class of module.

        Args:
            names: path and class of each module by its number.
            sums_of: makes the columns of a row.
            at: the column by which rows are large.
        """
        placed = [
            (name, kind, *(_OUTSIDE if key is None else names.get(key, _OUTSIDE)), row)
            for (name, kind, key), row in self.rows.items()
        ]
        of_operators = self._largest((((n, k), p, m, row) for n, k, p, m, row in placed), at)
        of_modules = self._largest(((m, p, m, row) for _, _, p, m, row in placed), at)
        return {
            "operators": [
                _times(sums_of(key[0], row)) | {"kind": key[1], "module": path, "module_kind": kind}
                for key, path, kind, row in of_operators
            ],
            "module_times": [
                _times(sums_of(path, row)) | {"kind": key} for key, path, _, row in of_modules
            ],
        }

    def _largest(
        self, rows: Iterable[tuple[Any, str, str, list[int]]], at: int
    ) -> list[tuple[Any, str, str, list[int]]]:
        """Return the sums of the rows by their key, with path and class of the largest module."""
        sums: dict[Any, list[int]] = {}
        modules: dict[Any, dict[tuple[str, str], int]] = {}
        for key, path, kind, row in rows:
            summed = sums.setdefault(key, [0] * self.num_sums)
            summed[:] = [old + new for old, new in zip(summed, row)]
            inside = modules.setdefault(key, {})
            inside[path, kind] = inside.get((path, kind), 0) + row[at]
        largest = sorted(sums.items(), key=lambda item: -item[1][at])[:MAX_ROWS]
        tops = {key: max(modules[key], key=lambda one: modules[key][one]) for key, _ in largest}
        return [(key, *tops[key], row) for key, row in largest]


def _times(columns: dict[str, Any]) -> dict[str, Any]:
    return {key: columns[key] for key in ("name", "num", "time_s", "device_time_s")}
