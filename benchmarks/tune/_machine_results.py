"""Keeps the rows of a benchmark by machine: a later run replaces those of its own machine alone.

A file holds a list of `{"conditions": ..., "cases": [...]}`. A row has the `lever` and the `name`
of its case, and says when it was measured and how busy the machine was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SAME = ("cpu", "torch", "accelerator")
"""What makes it the same machine."""


class Results:
    """The rows in a file, seen from a machine with these conditions."""

    def __init__(self, path: Path, here: dict[str, Any]) -> None:
        self.path = path
        self.when = {name: here[name] for name in ("date", "commit", "load_average")}
        self.here = {name: here[name] for name in here if name not in self.when}
        self.machines: list[dict[str, Any]] = []
        if path.exists():
            self.machines = json.loads(path.read_text(encoding="utf-8"))

    def is_known(self, lever: str, name: str) -> bool:
        """Return whether this machine has the row."""
        return any((one["lever"], one["name"]) == (lever, name) for one in self.mine()["cases"])

    def mine(self) -> dict[str, Any]:
        """Return what there is of this machine."""
        for one in self.machines:
            if all(one["conditions"].get(name) == self.here.get(name) for name in SAME):
                return one
        return {"conditions": self.here, "cases": []}

    def save(self, row: dict[str, Any]) -> None:
        """Put a row in the place of an older one of its case, and write the file."""
        mine, key = self.mine(), (row["lever"], row["name"])
        if mine not in self.machines:
            self.machines.append(mine)
        kept = [one for one in mine["cases"] if (one["lever"], one["name"]) != key]
        mine["cases"] = [*kept, row | self.when]
        self.path.write_text(json.dumps(self.machines, indent=1) + "\n", encoding="utf-8")
