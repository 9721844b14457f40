"""How much of the reachable gain a study finds, and the blocks and processes that it takes.

    python benchmarks/tune/search_design.py [--studies 200] [--label after] [--only WORD]
    python benchmarks/tune/search_design.py --show

Whole studies over a scripted bench with known truth (tests/design_cases.py): several small gains,
pairs that help only together, one lever that slows down, crashes or changes the numbers, slow
steps. *Share* is the mean share of the best log speedup that the recipes truly give; *false* are
recipes that truly give nothing. *Needless* are studies whose recipe holds a lever that gives
nothing there. A label is a version of the search: to have another one, put its `src` first on
PYTHONPATH. Results go to benchmarks/results/search_design.json, by label. No process is started;
that the noise is like a real machine's is an assumption.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from design_cases import CASES, Case, useless
from steptime.tune.search.search import SearchOptions, search

OUT = Path(__file__).resolve().parents[1] / "results" / "search_design.json"
HEAD = f"{'study':<38} {'label':<7} share proven false needless  blocks processes  minutes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200, help="a case")
    parser.add_argument("--label", default="after", help="which search this is")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--show", action="store_true", help="print what is on file")
    options = parser.parse_args()
    document: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"rows": []}
    print(HEAD)
    for name, case in CASES.items():
        if options.only in name and not options.show:
            row = one_row(name, case, options.studies, options.label)
            kept = [it for it in document["rows"] if not is_same(it, row)]
            document = {
                **stamp(),
                "command": f"python benchmarks/tune/search_design.py --studies {options.studies}",
                "rows": [*kept, row],
            }
            show(row)
            OUT.write_text(json.dumps(document, indent=1) + "\n")
        elif options.show:
            for row in document["rows"]:
                if row["case"] == name:
                    show(row)


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are of the same case and label."""
    return (one["case"], one["label"]) == (other["case"], other["label"])


def one_row(name: str, case: Case, count: int, label: str) -> dict[str, Any]:
    """Studies that differ in their noise alone."""
    shares, blocks, processes, minutes = [], [], [], []
    num_proven = num_false = num_useless = 0
    for seed in range(count):
        bench = case.bench(seed)
        found = search(bench, SearchOptions(levers=case.levers, budget_s=bench.budget_s))
        gain = bench.true_gain(found.recipe)
        shares.append(gain / case.reachable if case.reachable else 0.0)
        blocks.append(bench.num_blocks)
        processes.append(bench.num_processes)
        minutes.append(bench.used_s / 60)
        num_proven += bool(found.recipe)
        num_false += bool(found.recipe) and gain <= 0
        num_useless += bool(useless(case, bench, found.recipe))
    return {
        "case": name,
        "label": label,
        "studies": count,
        "best": list(case.best),
        "reachable_log_speedup": round(case.reachable, 4),
        "mean_share": round(statistics.fmean(shares), 4),
        "proven": num_proven,
        "false": num_false,
        "with_a_needless_lever": num_useless,
        "median_blocks": statistics.median(blocks),
        "median_processes": statistics.median(processes),
        "median_minutes": round(statistics.median(minutes), 2),
    }


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    print(
        f"{row['case']:<38} {row['label']:<7} {row['mean_share']:5.2f} {row['proven']:6}"
        f" {row['false']:5} {row['with_a_needless_lever']:8} {row['median_blocks']:7.0f}"
        f" {row['median_processes']:9.0f} {row['median_minutes']:8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
