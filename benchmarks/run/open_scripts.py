"""Steptime on public training scripts, unmodified: steps, phases, diagnosis, own cost.

    python benchmarks/run/open_scripts.py --root DIR [--limit 300] [ID ...]
    python benchmarks/run/open_scripts.py --hits

benchmarks/open_scripts.toml says where each script comes from, which packages it needs and how it
is run. DIR holds the checkouts, environments and data, as written there; a script whose folder
is missing is left out. One at a time, each under `steptime run --json`, without the means to
publish anything; Ctrl-C is sent at the limit. Updates and backward calls are compared with those
counted bare. Results go to benchmarks/results/open_scripts.json; with IDs, theirs are renewed.

At the end, and with `--hits` of what was saved, stands the table of hits: how many scripts had each
ailment, and how many recipes of public scripts hold each lever (benchmarks/lever_evidence.toml).
What nobody's script needed has to be asked for by a user's question, or it goes.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import tomllib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, conditions
from _public_scripts import PINS, run_script

OUT = BENCHMARKS / "results" / "open_scripts.json"
EVIDENCE = BENCHMARKS / "lever_evidence.toml"
SMALL_FRACTION = 0.03


def row_of(pin: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What the table says of a script."""
    data = result["data"]
    if data is None:
        return {"counts": "no document"}
    seen = data["measurement"]
    updates, backwards = seen["num_optimizer_updates"], seen["num_backwards"]
    counts = f"{updates}/{backwards}"
    if "updates" in pin:
        is_right = (updates, backwards) == (pin["updates"], pin["backwards"])
        counts += " ok" if is_right else f" WRONG: {pin['updates']}/{pin['backwards']} bare"
    steady, overhead = seen["steady"] or {}, seen["overhead"] or {}
    times = [(steady.get(name) or {}).get("estimate") for name in ("step_time_s", "step_cpu_s")]
    phases = [(p["fraction"], p["name"]) for p in seen["phases"] if p["fraction"]]
    findings = [describe(finding) for finding in data["diagnosis"]["findings"]]
    return {
        "steps": seen["num_steps"],
        "counts": counts,
        "step": " / CPU ".join("-" if t is None else f"{t * 1e3:.3g} ms" for t in times),
        "phases": ", ".join(
            f"{name} {fraction:.0%}"
            for fraction, name in sorted(phases, reverse=True)
            if fraction >= SMALL_FRACTION
        ),
        "kind": data["diagnosis"]["kind"],
        "findings": "; ".join(findings),
        "spans": ", ".join(f"{s['name']} {s['total_s']:.2f} s" for s in seen["spans"]),
        "notes": ", ".join(note["code"] for note in seen["notes"]),
        "overhead": f"{overhead['cpu_s_per_step'] * 1e6:.0f} µs" if overhead else "-",
        "others_cores": (seen["host"] or {}).get("others_cores"),
    }


def describe(finding: dict[str, Any]) -> str:
    words = [f"{finding['kind'] or '-'}/{finding['cause'] or '-'} ({finding['severity']})"]
    if finding["where"]:
        words.append(f"at {finding['where']}")
    if finding["headroom_speedup"]:
        words.append(f"{finding['headroom_speedup']:.2f}x")
    return " ".join(words)


def print_row(name: str, row: dict[str, Any]) -> None:
    print(
        f"{name:<5}" + " | ".join(f"{value}" for value in row.values() if value not in ("", None))
    )


def print_hits(rows: dict[str, Any]) -> None:
    """Print how many public scripts had each ailment, and needed each lever."""
    from steptime.diagnose.ailments.all_ailments import AILMENTS
    from steptime.levers import NAMES

    kinds = [(None if row.kind is None else row.kind.value, row.cause) for row in AILMENTS]
    causes = dict.fromkeys(f"{kind or '-'}/{cause or '-'}" for kind, cause in kinds)
    seen = Counter(
        found.split(" ", 1)[0]
        for row in rows.values()
        for found in (row.get("findings") or "").split("; ")
    )
    levers = tomllib.loads(EVIDENCE.read_text())
    recipes = {
        name: {one["at"][0] for one in levers.get(name, {}).get("measured", ()) if is_foreign(one)}
        for name in NAMES
    }
    print_table(f"ailments in {len(rows)} scripts", {name: seen[name] for name in causes})
    num = len(set().union(*recipes.values()))
    print_table(f"levers in {num} recipes", {name: len(found) for name, found in recipes.items()})


def is_foreign(row: dict[str, Any]) -> bool:
    """Return whether a figure is one of a recipe that `tune` proved on a public script."""
    return bool(row["file"] == "compare_arms" and "tuned over written" in row["at"])


def print_table(title: str, counts: dict[str, int]) -> None:
    """Print what was hit, most often first, and what never was."""
    print(f"\n{title}")
    for name, num in sorted(counts.items(), key=lambda item: -item[1]):
        if num:
            print(f"  {num:>3}  {name}")
    print(f"    0  {', '.join(name for name, num in counts.items() if not num)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="default: all of the file")
    parser.add_argument("--root", type=Path, help="checkouts and environments")
    parser.add_argument("--hits", action="store_true", help="the table of what was saved alone")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one script")
    options = parser.parse_args()
    if options.hits:
        print_hits(json.loads(OUT.read_text())["scripts"])
        return
    if options.root is None:
        parser.error("--root is missing: the folder with the checkouts and environments")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    pins = tomllib.loads(PINS.read_text())["scripts"]
    names = [name for name in options.ids or pins if (options.root / pins[name]["folder"]).is_dir()]
    left_s = float(sum(pins[name]["seconds"] for name in names))
    known = json.loads(OUT.read_text())["scripts"] if options.ids and OUT.exists() else {}
    rows: dict[str, Any] = dict(known)
    before = conditions()
    for name in names:
        print(f"{name}: about {left_s / 60:.0f} min left", file=sys.stderr, flush=True)
        result = run_script(pins[name], options.root.resolve(), options.limit)
        left_s -= pins[name]["seconds"]
        ended = {key: result[key] for key in ("exit_code", "wall_s", "stopped_by")}
        rows[name] = {"script": f"{pins[name]['repository']}: {pins[name]['command']}"} | ended
        rows[name] |= row_of(pins[name], result)
        print_row(name, {k: v for k, v in rows[name].items() if k not in ("script", *ended)})
        text = json.dumps({"conditions": before, "scripts": rows}, indent=1)
        OUT.write_text(text.replace(str(options.root.resolve()), "{root}") + "\n")
    print_hits(rows)


if __name__ == "__main__":
    main()
