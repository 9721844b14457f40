"""How often `steptime compare --fail-if-slower 5%` is right when the truth is known.

    python benchmarks/verify/compare_runs.py equal --folder DIR [--rounds 36] [--limit-s 110]
    python benchmarks/verify/compare_runs.py real --folder DIR [--rounds 12] [--limit-s 110]
    python benchmarks/verify/compare_runs.py scripted [--sets 100]
    python benchmarks/verify/compare_runs.py noises [--sets 500]
    python benchmarks/verify/compare_runs.py table

`equal` trains a small script again and again in DIR and compares sets of consecutive runs, taken
in turns for A and B, whose B is made slower by arithmetic. `real` trains in turns as it is, as it
is, and with 10 % and 30 % more work a step. Given the same DIR both go on where they stopped.
`scripted` writes run folders whose step times deviate as those of `equal` did (drawn anew from
them) and compares them with the command itself. `noises` asks the comparison alone, for noise of
other shapes. With one run a side, and with two where it says so, 20 other runs are in the store.
Each adds its part to benchmarks/results/compare_runs.json, of which `table` prints what
docs/explanation/how-we-compare.md shows.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import cpu_name, stamp

from compare_cases import make_compared, run_id_of, store_run
from steptime.app.stored.compare import read_run
from steptime.app.stored.run_listing import list_runs
from steptime.cli.main import main as steptime
from steptime.compare.judge import compare
from steptime.compare.values import ComparedRun, CompareOutcome, GateOutcome
from steptime.core.store import Run

OUT = Path(__file__).resolve().parents[1] / "results" / "compare_runs.json"
LIMIT = 0.05
SIZES = (2, 3, 5)
SLOWDOWNS = (0.0, 0.03, 0.05, 0.10, 0.30)
NUM_STORED = 20
STEP_S = 0.1
WORDS = {0: "pass", 5: "fail", 4: "too noisy"}
NUM_EQUAL_TIMES = 4
"""How many times as many equal sets as slowed ones: a rate of 5 % needs them."""


@dataclass(frozen=True)
class Case:
    """So many runs a side, alone or beside stored repeats."""

    size: int
    has_store: bool = False

    @property
    def title(self) -> str:
        return f"{self.size}{' stored' if self.has_store else ''}"

    def row(self, slowdown: float, outcomes: Counter[str]) -> dict[str, Any]:
        num = sum(outcomes.values())
        shares = "".join(f"{outcomes[word] / num:>9.1%} {word}" for word in WORDS.values())
        print(f"{self.title:>8} a side, {slowdown:4.0%} slower, n={num:5}:{shares}", flush=True)
        return {
            "runs_a_side": self.size,
            "has_store": self.has_store,
            "slowdown": slowdown,
            "sets": num,
            "outcomes": dict(outcomes),
        }


CASES = (Case(1, True), Case(2), Case(2, True), Case(3), Case(5))

SCRIPT = """\
import sys, time
import torch
from torch import nn

extra = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(19200, 256), torch.randint(0, 10, (19200,)))
for x, y in torch.utils.data.DataLoader(data, batch_size=64, shuffle=True):
    began = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    until = time.perf_counter() + extra * (time.perf_counter() - began)
    while time.perf_counter() < until:
        pass
"""


# -- real runs


def equal(folder: Path, rounds: int, limit_s: float) -> None:
    """Train, then compare sets of consecutive runs, those of B made slower by arithmetic."""
    prepare(folder)
    began = time.monotonic()
    while len(stored_in(folder)) < rounds and time.monotonic() - began < limit_s:
        train(folder, ())
    runs = [read_run(run) for run in stored_in(folder)]
    rows = []
    for case in CASES:
        for slowdown in SLOWDOWNS:
            outcomes: Counter[str] = Counter()
            for i in range(len(runs) - 2 * case.size + 1):
                taken = runs[i : i + 2 * case.size]
                others = [run for run in runs if run not in taken] if case.has_store else []
                b = [slowed(run, slowdown) for run in taken[1::2]]
                outcomes[gate_word(taken[::2], b, others)] += 1
            rows.append(case.row(slowdown, outcomes))
    found = {"conditions": conditions(), **described(runs), "rows": rows}
    save("equal", found)


def prepare(folder: Path) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    if not (folder / "train.py").exists():
        (folder / "train.py").write_text(SCRIPT)


def slowed(run: ComparedRun, slowdown: float) -> ComparedRun:
    phases = {name: value * (1 + slowdown) for name, value in run.phases_s.items()}
    return replace(run, step_s=(run.step_s or 0.0) * (1 + slowdown), phases_s=phases)


def described(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """How far equal runs lie apart, in the order they were made, and on what machine."""
    logs = [math.log(run.step_s) for run in runs if run.step_s]
    middle = statistics.median(logs)
    return {
        "num_runs": len(runs),
        "steps": sorted({run.num_steps for run in runs}),
        "median_step_s": round(math.exp(middle), 6),
        "deviations": [round(value - middle, 4) for value in logs],
        "standard_deviation": round(statistics.stdev(logs), 4),
        "others_cores": [round(run.others_cores or 0.0, 2) for run in runs],
    }


def real(folder: Path, rounds: int, limit_s: float) -> None:
    """Train in turns, then compare sets of consecutive rounds."""
    prepare(folder)
    began = time.monotonic()
    arms = ((), (), ("0.1",), ("0.3",))
    for number in range(len(stored_in(folder)), rounds * len(arms)):
        if time.monotonic() - began > limit_s:
            break
        train(folder, arms[number % len(arms)])
    runs = stored_in(folder)
    whole = len(runs) // len(arms)
    by_arm = [[read_run(runs[r * len(arms) + i]) for r in range(whole)] for i in range(len(arms))]
    found: dict[str, Any] = {
        "conditions": conditions(),
        "rounds": whole,
        **described([*by_arm[0], *by_arm[1]]),
        "sets": [],
    }
    for name, of_b in (("0 %", 1), ("10 %", 2), ("30 %", 3)):
        for size in SIZES:
            outcomes = Counter(
                gate_word(by_arm[0][i : i + size], by_arm[of_b][i : i + size], ())
                for i in range(whole - size + 1)
            )
            row = {"slowdown": name, "runs_a_side": size, "outcomes": dict(outcomes)}
            found["sets"].append(row)
            print(f"real, {name:>5}, {size} a side: {dict(outcomes)}")
    save("real", found)


def train(folder: Path, arm: Sequence[str]) -> None:
    command = [sys.executable, "-m", "steptime", "run", "--", sys.executable, "train.py", *arm]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)


def stored_in(folder: Path) -> list[Run]:
    """Its runs, the oldest first."""
    store = folder / ".steptime"
    if not store.is_dir():
        return []
    rows = sorted(list_runs(store), key=lambda row: row.started_unix_s or 0.0)
    return [Run(run_id=row.run_id, folder=store / "runs" / row.run_id) for row in rows]


def gate_word(a: Sequence[Any], b: Sequence[Any], stored: Sequence[Any]) -> str:
    found = compare(a, b, stored=stored, limit=LIMIT)
    assert found.gate is not None
    words = {GateOutcome.PASSED: "pass", GateOutcome.FAILED: "fail"}
    return words.get(found.gate.outcome, "too noisy")


# -- runs whose noise is drawn from the real ones


def scripted(num_sets: int) -> None:
    """Run folders, and the command itself."""
    noise = drawn_from(json.loads(OUT.read_text())["equal"]["deviations"])
    rows = []
    for case in CASES:
        for slowdown in SLOWDOWNS:
            outcomes: Counter[str] = Counter()
            for seed in range(num_sets if slowdown else NUM_EQUAL_TIMES * num_sets):
                outcomes[WORDS[one_set(noise, case, slowdown, seed)]] += 1
            rows.append(case.row(slowdown, outcomes))
    save("scripted", {"sets": num_sets, "limit": LIMIT, "stored": NUM_STORED, "rows": rows})


def drawn_from(deviations: Sequence[float]) -> Callable[[random.Random], float]:
    """Deviations drawn anew, each smeared a little so that no two are the same."""
    return lambda source: source.choice(deviations) + source.gauss(0, 0.003)


def one_set(noise: Callable[[random.Random], float], case: Case, slowdown: float, seed: int) -> int:
    """The exit code of one comparison."""
    source = random.Random(seed)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        for i in range(2 * case.size):
            step_s = STEP_S * math.exp(noise(source)) * (1 + slowdown if i % 2 else 1)
            store_run(place, step_s, number=i)
        for i in range(NUM_STORED if case.has_store else 0):
            store_run(place, STEP_S * math.exp(noise(source)), number=100 + i)
        ids = [run_id_of(i) for i in range(2 * case.size)]
        words = ["compare", *ids[::2], "--", *ids[1::2], "--store", folder]
        with contextlib.redirect_stdout(io.StringIO()):
            return steptime([*words, "--fail-if-slower", f"{LIMIT:.0%}"])


# -- noise of other shapes


def hit(source: random.Random, probability: float) -> float:
    """Now and then a neighbor takes a share of the run."""
    return source.expovariate(5) if source.random() < probability else 0.0


NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal, 1 %": lambda s: s.gauss(0, 0.01),
    "normal, 3 %": lambda s: s.gauss(0, 0.03),
    "normal, 8 %": lambda s: s.gauss(0, 0.08),
    "Student t3, 2 %": lambda s: 0.02 * s.gauss(0, 1) / math.sqrt(s.gammavariate(1.5, 2 / 3)),
    "1 %, 5 % hit by 20 %": lambda s: s.gauss(0, 0.01) + hit(s, 0.05),
    "1 %, 10 % hit by 20 %": lambda s: s.gauss(0, 0.01) + hit(s, 0.1),
    "1 %, 20 % hit by 20 %": lambda s: s.gauss(0, 0.01) + hit(s, 0.2),
    "two speeds 10 % apart": lambda s: s.gauss(0, 0.005) + 0.1 * (s.random() < 0.5),
    "two speeds 25 % apart": lambda s: s.gauss(0, 0.005) + 0.25 * (s.random() < 0.5),
}


def noises(num_sets: int) -> None:
    """The comparison alone: false alarms and claims over equal sets, and detection."""
    rows = []
    print(
        f"{'noise':<24}{'a side':>12}{'false fail':>12}{'false claim':>12}  fail at 3, 5, 10, 30 %"
    )
    for name, noise in NOISES.items():
        for case in CASES:
            row = noise_row(name, noise, case, num_sets if case.has_store else 4 * num_sets)
            rows.append(row)
            found = "".join(f"{row['fails'][str(s)]:6.0%}" for s in SLOWDOWNS[1:])
            fails, claims = row["fails"]["0.0"], row["false_claims"]
            print(f"{name:<24}{case.title:>12}{fails:12.1%}{claims:12.1%}  {found}", flush=True)
    save("noises", {"sets": num_sets, "limit": LIMIT, "stored": NUM_STORED, "rows": rows})


def noise_row(
    name: str, noise: Callable[[random.Random], float], case: Case, num_sets: int
) -> dict[str, Any]:
    fails: Counter[float] = Counter()
    claims = 0
    num_planted = max(1, num_sets // 5)
    for seed in range(num_sets):
        source = random.Random(seed)
        values = [STEP_S * math.exp(noise(source)) for _ in range(2 * case.size)]
        stored = [
            make_compared(STEP_S * math.exp(noise(source)), number=100 + i)
            for i in range(NUM_STORED if case.has_store else 0)
        ]
        for slowdown in SLOWDOWNS if seed < num_planted else SLOWDOWNS[:1]:
            runs = [
                make_compared(value * (1 + slowdown if i % 2 else 1), number=i)
                for i, value in enumerate(values)
            ]
            found = compare(runs[::2], runs[1::2], stored=stored, limit=LIMIT)
            assert found.gate is not None
            fails[slowdown] += found.gate.outcome is GateOutcome.FAILED
            is_claim = found.outcome in (CompareOutcome.SLOWER, CompareOutcome.FASTER)
            claims += is_claim and slowdown == 0
    return {
        "noise": name,
        "runs_a_side": case.size,
        "has_store": case.has_store,
        "sets": num_sets,
        "false_claims": claims / num_sets,
        "fails": {str(s): fails[s] / (num_sets if s == 0 else num_planted) for s in SLOWDOWNS},
    }


# -- all


def conditions() -> dict[str, Any]:
    import torch

    return {
        "cpu": cpu_name(),
        "num_cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **stamp(),
    }


def save(part: str, found: dict[str, Any]) -> None:
    """Put the part beside the others."""
    document = json.loads(OUT.read_text()) if OUT.exists() else {}
    document[part] = found
    OUT.write_text(json.dumps(document, indent=1) + "\n")


def table() -> None:
    """The parts as Markdown: how often the gate fails."""
    document = json.loads(OUT.read_text())
    for part in ("scripted", "equal"):
        print(f"\n{part}: failed, of sets\n\n| runs a side | equal | 3 % | 5 % | 10 % | 30 % |")
        print("|---|---|---|---|---|---|")
        for case in CASES:
            rows = [
                row
                for row in document[part]["rows"]
                if (row["runs_a_side"], row["has_store"]) == (case.size, case.has_store)
            ]
            cells = [f"{row['outcomes'].get('fail', 0)} of {row['sets']}" for row in rows]
            print(f"| {case.title} | {' | '.join(cells)} |")
    print("\nnoises: equal sets that fail; in brackets 10 % and 30 % slower ones that do\n")
    rows = document["noises"]["rows"]
    print("| noise | " + " | ".join(case.title for case in CASES) + " |")
    print("|---" * (len(CASES) + 1) + "|")
    for name in dict.fromkeys(row["noise"] for row in rows):
        cells = [
            f"{row['fails']['0.0']:.1%} ({row['fails']['0.1']:.0%}, {row['fails']['0.3']:.0%})"
            for row in rows
            if row["noise"] == name
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("equal", "real", "scripted", "noises", "table"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--limit-s", type=float, default=1e9)
    parser.add_argument("--sets", type=int)
    options = parser.parse_args()
    if options.part == "equal":
        equal(options.folder, options.rounds or 36, options.limit_s)
    elif options.part == "real":
        real(options.folder, options.rounds or 12, options.limit_s)
    elif options.part == "table":
        table()
    elif options.part == "scripted":
        scripted(options.sets or 100)
    else:
        noises(options.sets or 500)


if __name__ == "__main__":
    main()
