"""Whether ranks that lose each other are found out, beside torch's own analysis of its record.

    python benchmarks/verify/desync_plants.py [--times 20] [--at-once 3] [--only KIND ...]

Two to four gloo ranks of tests/specimens/desync.py run under `steptime run`; one of them does
something else in one step. A finding is right if the kind, the rank and both lines are. Before the
ranks of a run that hangs are ended, torch's record of each is dumped and given to
torch.distributed.flight_recorder. gloo's dumps do not name the ranks of the groups, which the
analysis needs, so they are added. Where gloo ends a rank, no dump can be had.
Results go to benchmarks/results/desync_plants.json; with `--only`, theirs are renewed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import random
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ROOT, conditions

SPECIMEN = ROOT / "tests" / "specimens" / "desync.py"
OUT = BENCHMARKS / "results" / "desync_plants.json"
WORDS = ("kind", "rank", "line", "other_line", "right")
"""What of an answer may be right, each by itself, and all of it."""
LIMIT_S = 180


@dataclass(frozen=True, kw_only=True)
class Plant:
    """What is planted: the kind and both lines, by the comments at their ends; torch's words."""

    what: str
    where: str
    expected: str
    torch_says: tuple[str, ...]


PLANTS: Mapping[str, Plant] = {
    "operation": Plant(
        what="operation",
        where="culprit: operation",
        expected="first",
        torch_says=("COLLECTIVE_TYPE_MISMATCH",),
    ),
    "size": Plant(
        what="shape",
        where="culprit: size",
        expected="first",
        torch_says=("SIZE_OR_SYNTAX_MISMATCH",),
    ),
    "type": Plant(
        what="shape",
        where="culprit: type",
        expected="first",
        torch_says=("COLLECTIVE_DTYPE_MISMATCH",),
    ),
    "missing": Plant(what="missing", where="first", expected="first", torch_says=()),
    "missing_alike": Plant(what="missing", where="second", expected="second", torch_says=()),
    "order": Plant(what="order", where="culprit: order", expected="first", torch_says=()),
    "group": Plant(what="group", where="culprit: group", expected="first", torch_says=("missing",)),
    "left": Plant(what="left", where="gradient", expected="first", torch_says=("missing",)),
    "data": Plant(what="data", where="data", expected="first", torch_says=("missing",)),
    "python": Plant(
        what="python", where="culprit: python", expected="first", torch_says=("missing",)
    ),
}
"""torch has no word for a call that is left out or for an order; a rank that did not come is
`missing`, wherever it is."""


def place_of(text: str) -> str:
    lines = SPECIMEN.read_text().splitlines()
    marks = (f"# {text}", f"# {text}: this sample never comes")
    line = next(number for number, line in enumerate(lines, 1) if line.endswith(marks))
    return f"{SPECIMEN}:{line}"


def run_once(kind: str, *, ranks: int, culprit: int) -> dict[str, Any]:
    """One run: what was found, what of it is right, and what torch's analysis says."""
    plant = PLANTS[kind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dumps = folder / "dumps"
        dumps.mkdir()
        options = ["--kind", kind, "--ranks", str(ranks), "--culprit", str(culprit)]
        words = [sys.executable, str(SPECIMEN), *options, "--dump", str(dumps)]
        ours = [sys.executable, "-m", "steptime", "run", "--json", "out.json", "--", *words]
        try:
            subprocess.run(
                ours,
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
            data = json.loads((folder / "out.json").read_text())["data"]
            if data["diagnosis"] is None:
                raise ValueError("the run ended without a diagnosis")
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return {"failed": f"{type(error).__name__}: {error}"}
        return judge(data, plant, culprit) | {
            "torch": ask_torch(dumps, plant, culprit, ranks),
        }


def judge(data: Mapping[str, Any], plant: Plant, culprit: int) -> dict[str, Any]:
    findings = data["diagnosis"]["findings"]
    found = next((one for one in findings if one["cause"] == "desync"), None)
    if found is None:
        return {"right": False, "said": None, "findings": [one["cause"] for one in findings]}
    seen = data["measurement"]
    stalls = [stall["desync"] for stall in seen["stalls"] if stall["desync"] is not None]
    desync = seen["desync"] or stalls[0]
    right = {
        "kind": found["names"]["what"] == plant.what,
        "rank": desync["culprits"] == [culprit],
        "line": found["where"] == place_of(plant.where),
        "other_line": (desync["expected"] or {}).get("where") == place_of(plant.expected),
    }
    return {
        "right": all(right.values()),
        **right,
        "said": found["names"]["told"].replace(f"{SPECIMEN.parent}/", ""),
    }


# -- torch's own analysis


def ask_torch(folder: Path, plant: Plant, culprit: int, ranks: int) -> dict[str, Any]:
    """What torch's analysis says of its dumps; the ranks of the groups are added to them."""
    details = {path.name: _dump(path, ranks) for path in sorted(folder.glob("rank_*"))}
    if not details:
        return {"said": None, "right": False}
    from torch.distributed.flight_recorder.components.builder import build_db

    logging.disable(logging.CRITICAL)  # it prints each call
    options = Namespace(
        verbose=False,
        just_print_entries=False,
        allow_incomplete_ranks=True,
        mismatch_cap=10,
        print_stack_trace=False,
    )
    version = next(iter(details.values()))["version"]
    try:
        found = build_db(details, options, version).collectives
    except Exception as error:  # whatever it is, it is its answer
        return {"said": f"{type(error).__name__}: {error}", "right": False}
    wrong = next((one for one in found if one.mismatch_collectives or one.missing_ranks), None)
    if wrong is None:
        return {"said": "nothing", "right": False}
    other = wrong.mismatch_collectives or {}
    states = sorted({one.type_of_mismatch.state.name for one in other.values()})
    said = states or ["missing"]
    named = sorted(other or wrong.missing_ranks or ())
    return {
        "said": said,
        "ranks": named,
        "kind": any(word in plant.torch_says for word in said),
        "rank": named == [culprit],
        "right": any(word in plant.torch_says for word in said) and named == [culprit],
    }


def _dump(path: Path, ranks: int) -> dict[str, Any]:
    data = pickle.loads(path.read_bytes())
    world = str(list(range(ranks)))
    names = {entry["process_group"] for entry in data["entries"]}
    config = {name: {"name": name, "desc": desc, "ranks": world} for name, desc in names}
    return {
        "host_name": path.name,
        "rank": int(path.name.removeprefix("rank_")),
        "entries": data["entries"],
        "version": data["version"],
        "pg_config": config,
    }


def sum_up(results: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """How often each answer was right for one kind, ours and torch's."""
    own = [one for one in results if one["kind_planted"] == kind]
    torchs = [one.get("torch") or {} for one in own]
    return {
        "n": len(own),
        **{w: sum(bool(one.get(w)) for one in own) for w in WORDS},
        "torch": {w: sum(bool(one.get(w)) for one in torchs) for w in ("kind", "rank", "right")},
    }


def show(results: list[dict[str, Any]]) -> None:
    print(f"{'planted':<14} {'runs':>4}  kind  rank  line  other   all   torch: kind  rank")
    for kind in PLANTS:
        own = [one for one in results if one.get("kind_planted") == kind]
        if not own:
            continue
        counts = [sum(bool(one.get(w)) for one in own) for w in ("kind", "rank", "line")]
        counts += [sum(bool(one.get(w)) for one in own) for w in ("other_line", "right")]
        torchs = [
            sum(bool((one.get("torch") or {}).get(w)) for one in own) for w in ("kind", "rank")
        ]
        cells = "  ".join(f"{count:4}" for count in (*counts, *torchs))
        print(f"{kind:<14} {len(own):4}  {cells}")
        for one in own:
            if not one.get("right"):
                print(f"    {one}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*PLANTS], default=[*PLANTS])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    tasks = []
    for time in range(options.times):
        for kind in options.only:
            ranks = 2 + time % 3
            tasks.append((kind, ranks, chance.randrange(ranks)))

    def run(task: tuple[str, int, int]) -> dict[str, Any]:
        kind, ranks, culprit = task
        found = run_once(kind, ranks=ranks, culprit=culprit)
        return found | {"kind_planted": kind, "ranks": ranks, "culprit": culprit}

    results = []
    with ThreadPoolExecutor(options.at_once) as pool:
        for number, one in enumerate(pool.map(run, tasks), start=1):
            results.append(one)
            print(f"{number} of {len(tasks)}", end="\r", file=sys.stderr, flush=True)
    show(results)
    plants = json.loads(OUT.read_text())["plants"] if OUT.exists() else {}
    plants |= {kind: sum_up(results, kind) for kind in options.only}
    OUT.write_text(json.dumps({"conditions": conditions(), "plants": plants}, indent=1) + "\n")


if __name__ == "__main__":
    main()
