"""Writes src/steptime/levers/evidence.json: what levers gave, by benchmarks/lever_evidence.toml.

Run it after a benchmark has saved other results, and then `scripts/gen_lever_reference.py`. Our
figures are read from benchmarks/results, never typed. With `--stdout` it prints the file instead of
writing it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
ROWS = ROOT / "benchmarks" / "lever_evidence.toml"
FILE = ROOT / "src" / "steptime" / "levers" / "evidence.json"

ESTIMATES = ("speedup", "estimate", "median", "gain", "measured", "ratio")
ENDS = (("low", "high"), ("speedup_low", "speedup_high"), ("q1", "q3"), ("least", "most"))
PAIRS = ("quartiles", "range")
"""How our benchmarks name a figure and its range."""

Path_ = Sequence[Any]


def evidence() -> dict[str, list[dict[str, Any]]]:
    """All figures by the name of their lever, the published ones first."""
    levers = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return {
        name: [
            *rows.get("published", ()),
            *(f for row in rows.get("measured", ()) for f in ours(row)),
        ]
        for name, rows in levers.items()
    }


def ours(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the figures of a row: one, or one of each machine."""
    source = f"benchmarks/results/{row['file']}.json"
    words = {"training": row["training"], "source": source}
    if "at" not in row:
        yield words | {"remark": row["remark"]}
        return
    results = json.loads((ROOT / source).read_text(encoding="utf-8"))
    for found, machine in follow(results, row["at"]):
        numbers = figure(found)
        if "over" in row:
            ((other, _),) = follow(results, row["over"])
            numbers = {"speedup": numbers["speedup"] / other}
        if row.get("inverse"):
            numbers = {"speedup": 1 / numbers["speedup"]}
        remark = " ".join(filter(None, (row.get("remark"), kept(found), machine)))
        rounded = {name: float(f"{value:.2f}") for name, value in numbers.items()}
        yield words | rounded | ({"remark": remark} if remark else {})


def follow(found: Any, at: Path_, machine: str = "") -> Iterator[tuple[Any, str]]:
    """Yield what lies at a path, and in words the machine of each one behind a star."""
    if not at:
        yield found, machine
    elif at[0] == "*":
        for one in found:
            cpu = describe_cpu(one["conditions"]["cpu"])
            yield from follow(one, at[1:], f"{cpu}.")
    elif isinstance(at[0], Mapping):
        those = [one for one in found if all(one.get(k) == v for k, v in at[0].items())]
        if len(those) > 1 or not (those or machine):
            raise SystemExit(f"{len(those)} items, not one, have {at[0]} in benchmarks/results")
        for one in those:  # not each case was measured on each machine
            yield from follow(one, at[1:], machine)
    else:
        yield from follow(found[at[0]], at[1:], machine)


def figure(found: Any) -> dict[str, float]:
    """Return the speedup that was saved, with its range if there is one."""
    if not isinstance(found, Mapping):
        return {"speedup": found}
    numbers = {"speedup": next(found[name] for name in ESTIMATES if name in found)}
    for low, high in ENDS:
        if low in found and high in found:
            return numbers | {"low": found[low], "high": found[high]}
    for name in PAIRS:
        if name in found:
            return numbers | {"low": min(found[name]), "high": max(found[name])}
    return numbers


def kept(found: Any) -> str:
    """Return in words how much is kept for the backward, where that was measured."""
    share = found.get("kept") if isinstance(found, Mapping) and "lever" in found else None
    return "" if share is None else f"It keeps {share:.1f} times as much for the backward."


def describe_cpu(name: str) -> str:
    """Return the short name of a processor: `Intel Xeon`."""
    for word in ("(R)", "(TM)", "Processor"):
        name = name.replace(word, "")
    return " ".join(name.split()[:2])


def text() -> str:
    """The whole file, a figure on each line."""
    levers = [
        f"{json.dumps(name)}: [\n"
        + ",\n".join(f" {json.dumps(row, ensure_ascii=False)}" for row in rows)
        + "\n]"
        for name, rows in evidence().items()
    ]
    return "{\n" + ",\n".join(levers) + "\n}\n"


if __name__ == "__main__":
    if "--stdout" in sys.argv[1:]:
        sys.stdout.write(text())
    else:
        FILE.write_text(text(), encoding="utf-8")
