"""How much of a step no phase explains, in loops that make what they train on.

    python benchmarks/run/unattributed.py [--root DIR] [--rounds 3]

PPO, DQN, GRPO and an actor-critic of tests/specimens, a training that another process feeds, and,
with DIR, cleanrl's ppo.py and dqn.py, unmodified; benchmarks/open_scripts.toml says where those
come from and what DIR holds. Each runs under `steptime run --json`. For each: the shares of all
steps' time that are `other`, `rollout` and `process_wait`, as median over the rounds with least and
most. Results go to benchmarks/results/unattributed.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import tomllib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ROOT, conditions
from _public_scripts import PINS, run_script

OUT = BENCHMARKS / "results" / "unattributed.json"
SPECIMENS = ROOT / "tests" / "specimens"
LOOPS = ("ppo", "dqn", "grpo", "actor_critic", "fed")
SCRIPTS = {"09": "cleanrl ppo.py", "25": "cleanrl dqn.py"}
SHARES = ("other", "rollout", "process_wait")
MOST_OTHER = 0.10
LIMIT_S = 120.0


def specimen(name: str) -> dict[str, Any]:
    """A pin as in open_scripts.toml."""
    return {"folder": str(SPECIMENS), "venv": sys.prefix, "command": f"python {name}.py"}


def shares_of(pin: dict[str, Any], root: Path) -> dict[str, float]:
    """The shares of one run, and the number of its steps."""
    data = run_script(pin, root, LIMIT_S)["data"]
    if data is None:
        sys.exit(f"{pin['command']} in {root / pin['folder']} left no document; run it by hand")
    seen = data["measurement"]
    found = {phase["name"]: phase["fraction"] or 0.0 for phase in seen["phases"]}
    return {"steps": seen["num_steps"]} | {name: found[name] for name in SHARES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="checkouts and environments of real scripts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    pins = {name: specimen(name) for name in LOOPS}
    if options.root is not None:
        known = tomllib.loads(PINS.read_text())["scripts"]
        pins |= {title: known[number] for number, title in SCRIPTS.items()}
    root = (options.root or BENCHMARKS).resolve()
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in pins}
    for _ in range(options.rounds):  # in turn, so that a busy minute does not meet one loop alone
        for name, pin in pins.items():
            rows[name].append(shares_of(pin, root))
    for name, runs in rows.items():
        print(f"{name:<16}{runs[0]['steps']:>5.0f} steps", end="")
        for share in SHARES:
            values = [run[share] for run in runs]
            print(
                f"  {share} {median(values):.1%} ({min(values):.1%} to {max(values):.1%})", end=""
            )
        print(flush=True)
    figures = {"conditions": conditions(), "rounds": options.rounds, "runs": rows}
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(any(median(run["other"] for run in runs) > MOST_OTHER for runs in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
