"""How much of a few minutes a study uses beside busy neighbors, and how often it proves the truth.

    python benchmarks/tune/six_minutes.py [--studies 40]

Whole studies over a scripted bench (tests/crowded_bench.py): nine kinds of scripts and levers, six
minutes each (one has four), and neighbors whose load wanders. A row is a kind. *Open* are studies
that ended without a proof and without *nothing helps*; of these, `used` is the least and the median
share of the budget that was spent. Results go to benchmarks/results/six_minutes.json. No process is
started; that the noise is like a real machine's is an assumption.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from crowded_bench import CASES, Case
from steptime.tune.search.search import SearchOptions, search

OUT = Path(__file__).resolve().parents[1] / "results" / "six_minutes.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=40, help="a row")
    options = parser.parse_args()
    print(f"{'study':<38} proven  false  nothing  open  used: least  median")
    rows = [one_row(name, case, options.studies) for name, case in CASES.items()]
    total = Counter({key: sum(row[key] for row in rows) for key in ("proven", "false", "open")})
    print(f"proven {total['proven']}, false {total['false']}, open {total['open']}")
    document = {
        **stamp(),
        "command": f"python benchmarks/tune/six_minutes.py --studies {options.studies}",
        "rows": rows,
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def one_row(name: str, case: Case, count: int) -> dict[str, Any]:
    """Studies that differ in their noise alone."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    used = []
    for seed in range(count):
        bench = case.bench(seed)
        found = search(bench, SearchOptions(levers=case.levers, budget_s=bench.budget_s))
        names = {one.name for one in found.recipe}
        if found.recipe:
            outcomes["proven" if names & set(case.truth) else "false"] += 1
        elif found.outcome is not None and found.outcome.value == "nothing_helps":
            outcomes["nothing"] += 1
        else:
            outcomes["open"] += 1
            reasons[str(found.reason)] += 1
            used.append(min(1.0, bench.used_s / bench.budget_s))
    row = {
        "study": name,
        "studies": count,
        "budget_s": case.budget_s,
        "truth": dict(case.truth),
        **{key: outcomes[key] for key in ("proven", "false", "nothing", "open")},
        "reasons": dict(reasons),
        "least_used": min(used, default=None),
        "median_used": sorted(used)[len(used) // 2] if used else None,
    }
    shares = "" if not used else f"{min(used):11.0%} {row['median_used']:7.0%}"
    counts = f"{row['proven']:6} {row['false']:6} {row['nothing']:8} {row['open']:5}"
    print(f"{name:<38} {counts}  {shares}  {dict(reasons) or ''}", flush=True)
    return row


if __name__ == "__main__":
    main()
