"""Eight studies beside neighbors who keep the machine busy in stretches: what is proven of them.

    python benchmarks/tune/busy_studies.py [--src before=DIR after=DIR] [--budget 360]
        [--only NAME ...]
    python benchmarks/tune/busy_studies.py --oracle [--only NAME ...] [--pairs 8]
    python benchmarks/tune/busy_studies.py --check-claims [--only NAME ...] [--pairs 6]
    python benchmarks/tune/busy_studies.py --show

`--src` names checkouts as NAME=DIR or NAME=DIR,PYTHON: the folder that holds `steptime`, and the
interpreter that runs it and the scripts. No other Steptime may be installed for that interpreter.

Each script of `busy_scripts/` is tuned by each checkout of `--src` in turn, in a fresh store, while
planted processes burn CPU in stretches; their schedule has a seed, and is the same for each
checkout. Told are the outcome, what was claimed, and the share of the budget that was used; at the
end how much was proven and falsely claimed. What is on file is not done again, so the studies can
be run one at a time (`--only`).

The truth is measured without neighbors: run these on a quiet machine. `--oracle` runs each script
with its remedy made by hand (`--remedy`) and without, in turns, with no Steptime in it.
`--check-claims` runs what a study claimed under `steptime run --recipe` and without, in turns. A
claim is false if its interval lies wholly above the checked one, or if its script is one where
nothing helps or that fails. Results go to benchmarks/results/busy_studies.json after each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _busy_cases import CASES, Case, neighbors

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
SCRIPTS = HERE / "busy_scripts"
OUT = BENCHMARKS / "results" / "busy_studies.json"
OVERTIME_S = 600.0  # beyond the budget, after which a study is ended: that would be a fault of ours

Row = dict[str, Any]


# -- a study


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """One version of Steptime, and the Python that runs it."""

    name: str
    folder: Path
    python: str


def read_checkouts(given: Sequence[str]) -> list[Checkout]:
    """Return the checkouts of `--src`; end where trials would mix two versions."""
    found = []
    for one in given:
        name, _, rest = one.partition("=")
        folder, _, python = rest.partition(",")
        checkout = Checkout(
            name=name, folder=Path(folder).resolve(), python=python or sys.executable
        )
        installed = subprocess.run(
            [checkout.python, "-I", "-c", "import steptime; print(steptime.__path__[0])"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
        if installed and Path(installed).resolve().parent != checkout.folder:
            raise SystemExit(
                f"--src {one}: {checkout.python} has the Steptime of {installed}, so the trials "
                f"would mix two versions. Name an interpreter without it: {name}={folder},PYTHON"
            )
        found.append(checkout)
    return found


def study(case: Case, src: Checkout, budget_s: float, levers: str | None) -> Row:
    """Tune one script with one checkout, in a store of its own."""
    with tempfile.TemporaryDirectory(prefix="busy-") as name:
        folder = Path(name)
        words = [
            *("tune", "--budget", f"{budget_s:.0f}s", "--json=result.json"),
            *("--output", "tuned.toml", *(("--levers", levers) if levers else ())),
            *("--", src.python, str(SCRIPTS / f"{case.name}.py")),
        ]
        began_s = time.monotonic()
        code, said = steptime(src, words, folder, limit_s=budget_s + OVERTIME_S)
        took_s = time.monotonic() - began_s
        result = read_json(folder / "result.json")
        recipe = folder / "tuned.toml"
        text = recipe.read_text() if recipe.is_file() else None
    return {
        **describe(result),
        "exit_code": code,
        "budget_s": budget_s,
        "took_s": round(took_s, 1),
        "used_fraction": round(took_s / budget_s, 3),
        "recipe_file": text,
        "said": said[-400:] if result is None else None,
    }


def steptime(
    src: Checkout, words: Sequence[str], folder: Path, *, limit_s: float
) -> tuple[int | None, str]:
    """Run a command of a checkout; return its exit code (None: it took too long), and stderr."""
    ours = {"PYTHONPATH": str(src.folder), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    environment = os.environ | ours
    with subprocess.Popen(
        [src.python, "-m", "steptime", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            _, said = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            return None, "it took too long"
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.wait()
            raise
    return child.returncode, said


def describe(result: Row | None) -> Row:
    """Return what a study says, in few words."""
    found = ((result or {}).get("data") or {}).get("study")
    if found is None:
        return {"outcome": "failure of ours", "levers": []}
    quality = found.get("quality") or {}
    return {
        "outcome": found["outcome"],
        "reason": found.get("reason"),
        "tier": found.get("tier"),
        "levers": [describe_lever(one) for one in found["recipe"]],
        "speedup": found["speedup"],
        "loop_speedup": found.get("loop_speedup"),
        "noise_floor": found["noise_floor"],
        "quality": quality.get("outcome"),
        "unproven": found.get("unproven"),
        "num_trials": len(found["trials"]),
        "not_tried": {one["name"]: one.get("text") or one["reason"] for one in found["not_tried"]},
        "first_end": found["trials"][0]["reason"] if found["trials"] else None,
    }


def describe_lever(one: Row) -> str:
    """Return a lever with its settings."""
    settings = ", ".join(f"{name}={value}" for name, value in one["settings"].items())
    return f"{one['name']}({settings})" if settings else str(one["name"])


def read_json(path: Path) -> Row | None:
    """Return a document; None where there is none."""
    try:
        found: Row = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


# -- the truth


def oracle(case: Case, pairs: int) -> Row:
    """Compare the script with its remedy by hand and without, in turns; no Steptime is in it."""
    ratios: dict[str, list[float]] = {"mean_s": [], "median_s": []}
    for number in range(pairs):
        sides = {}
        for has_remedy in (False, True) if number % 2 == 0 else (True, False):
            sides[has_remedy] = by_hand(case, has_remedy=has_remedy)
        for name, found in ratios.items():
            found.append(math.log(sides[False][name] / sides[True][name]))
    return {
        "step": interval(ratios["median_s"]),
        "loop": interval(ratios["mean_s"]),
        "load_after": os.getloadavg()[0],
    }


def by_hand(case: Case, *, has_remedy: bool) -> dict[str, float]:
    """Run a script of its own accord; return the mean and the median time of its steps."""
    words = [sys.executable, str(SCRIPTS / f"{case.name}.py"), "--steps", str(case.steps)]
    done = subprocess.run(
        [*words, *(["--remedy"] if has_remedy else [])],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    words = done.stdout.split()
    return {name: float(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def check_claim(case: Case, row: Row, src: Checkout, pairs: int) -> Row | None:
    """Compare what a study claimed with the command as written, in turns; None where it fails."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="busy-") as name:
        folder = Path(name)
        (folder / "tuned.toml").write_text(row["recipe_file"])
        for number in range(pairs):
            sides: dict[bool, float | None] = {}
            for has_recipe in (False, True) if number % 2 == 0 else (True, False):
                sides[has_recipe] = step_under(case, src, folder, has_recipe=has_recipe)
            before_s, after_s = sides[False], sides[True]
            if before_s is None or after_s is None:
                return None
            ratios.append(math.log(before_s / after_s))
    return {"step": interval(ratios), "load_after": os.getloadavg()[0]}


def step_under(case: Case, src: Checkout, folder: Path, *, has_recipe: bool) -> float | None:
    """Return the median step of a run under Steptime, with the recipe or without."""
    recipe = ["--recipe", "tuned.toml"] if has_recipe else []
    script = [src.python, str(SCRIPTS / f"{case.name}.py"), "--steps", str(case.steps)]
    words = ["run", *recipe, "--json=run.json", "--", *script]
    steptime(src, words, folder, limit_s=900.0)
    document = read_json(folder / "run.json") or {}
    steady = (((document.get("data") or {}).get("measurement")) or {}).get("steady") or {}
    found = steady.get("step_time_s")
    return None if found is None else float(found["estimate"])


def interval(log_ratios: Sequence[float]) -> list[float]:
    """Return estimate, low, high of the median and the number of pairs.

    The interval is that of order statistics, or of all pairs where there are fewer than nine.
    """
    ordered = sorted(log_ratios)
    num = len(ordered)
    middle = (ordered[(num - 1) // 2] + ordered[num // 2]) / 2
    cut = max(0, math.floor((num - 1.96 * math.sqrt(num)) / 2)) if num > 8 else 0
    return [*(round(math.exp(v), 3) for v in (middle, ordered[cut], ordered[-1 - cut])), num]


# -- the file, and what is said


def load(path: Path, *, is_fresh: bool) -> Row:
    """Return what is on file."""
    known = None if is_fresh else read_json(path)
    return known or {"studies": {}, "oracle": {}}


def save(path: Path, document: Row) -> None:
    """Write the file, whole or not at all."""
    document |= {
        **stamp(),
        "command": " ".join(["python", "benchmarks/tune/busy_studies.py", *sys.argv[1:]]),
        "python": platform.python_version(),
        "num_cores": os.cpu_count(),
        "totals": totals(document),
    }
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document, indent=1) + "\n")
    new.replace(path)


def is_proven(row: Row) -> bool:
    """Return whether the study claims a speedup."""
    return row["outcome"] == "faster" and row.get("speedup") is not None


def is_false(case: Case, row: Row) -> bool | None:
    """Return whether a claim is false; None where nobody has checked it."""
    if not is_proven(row):
        return False
    if case.remedy is None:
        return True
    checked = row.get("checked")
    return None if checked is None else row["speedup"]["low"] > checked["step"][2]


def totals(document: Row) -> Row:
    """Return, for each checkout, what its studies came to."""
    by_name = {case.name: case for case in CASES}
    found: Row = {}
    for key, row in document["studies"].items():
        name, src, _ = key.split("/")
        case = by_name[name]
        total = found.setdefault(src, {"studies": 0, "proven": 0, "false": 0, "unchecked": 0})
        total["studies"] += 1
        total["proven"] += is_proven(row)
        total["false"] += is_false(case, row) is True
        total["unchecked"] += is_false(case, row) is None
        # Where the command fails, or nothing is open any more, time is left for good reason.
        is_open = row["outcome"] not in ("faster", "nothing_helps") and not case.fails
        if is_open:
            total.setdefault("used_where_open", []).append(row["used_fraction"])
        for name, value in (("used_s", row["took_s"]), ("granted_s", row["budget_s"])):
            total[name] = round(total.get(name, 0.0) + value, 1)
    return found


def show(case: Case, src: str, row: Row) -> None:
    """Print one line."""
    claim = "-"
    if is_proven(row):
        claim = words_of(row["speedup"])
        if row.get("loop_speedup"):
            claim += f" (loop {words_of(row['loop_speedup'])})"
    truth = {True: "FALSE", False: "", None: "unchecked"}[is_false(case, row)]
    why = row.get("reason") or row.get("first_end") or ""
    print(
        f"{case.name:<13} {src:<8} {row['outcome'] or 'no outcome':<14} {why:<18} "
        f"{row['used_fraction']:6.0%} of the budget  {claim}  {' + '.join(row['levers'])} {truth}",
        flush=True,
    )


def words_of(found: Row) -> str:
    """Return an interval of a document as text."""
    return f"{found['estimate']:.2f} [{found['low']:.2f}, {found['high']:.2f}], n {found['n']}"


def print_all(document: Row) -> None:
    """Print everything that is on file."""
    for case in CASES:
        truth = document["oracle"].get(case.name)
        if truth is not None:
            print(f"{case.name:<13} by hand: a step {truth['step']}, the loop {truth['loop']}")
        for key, row in document["studies"].items():
            if key.split("/")[0] == case.name:
                show(case, key.split("/")[1], row)
    for src, total in document.get("totals", {}).items():
        print(f"{src}: {total}")


def run_studies(options: argparse.Namespace, cases: Sequence[Case], document: Row) -> None:
    """Run what is not on file, the checkouts in turn."""
    turn = read_checkouts(options.src)
    for number in range(options.rounds):
        for index, case in enumerate(cases):
            for src in turn if (number + index) % 2 == 0 else reversed(turn):
                key = f"{case.name}/{src.name}/{number}"
                if key not in document["studies"]:
                    with neighbors(options.neighbors, CASES.index(case) + 10 * number):
                        row = study(case, src, options.budget, options.levers)
                    found = {"src": src.name, "levers_asked": options.levers, **row}
                    document["studies"][key] = found
                    save(options.out, document)
                show(case, src.name, document["studies"][key])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--src", nargs="+", default=[f"after={BENCHMARKS.parent / 'src'}"])
    parser.add_argument("--budget", type=float, default=360.0, help="of each study [s]")
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1, help="studies of each script")
    parser.add_argument("--neighbors", type=int, default=2, help="processes that burn CPU")
    parser.add_argument("--levers", help="handed to `steptime tune`")
    parser.add_argument("--pairs", type=int, default=8, help="of --oracle and --check-claims")
    parser.add_argument("--oracle", action="store_true")
    parser.add_argument("--check-claims", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="forget what is on file")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    document = load(options.out, is_fresh=options.fresh)
    cases = [case for case in CASES if options.only is None or case.name in options.only]
    if options.oracle:
        for case in cases:
            if case.remedy is not None and case.name not in document["oracle"]:
                document["oracle"][case.name] = oracle(case, options.pairs)
                save(options.out, document)
    elif options.check_claims:
        sources = {one.name: one for one in read_checkouts(options.src)}
        newest = next(reversed(sources.values()))
        for key, row in document["studies"].items():
            case = next((one for one in cases if one.name == key.split("/")[0]), None)
            if case is not None and row.get("recipe_file") and "checked" not in row:
                src = sources.get(row["src"], newest)
                row["checked"] = check_claim(case, row, src, options.pairs)
                del row["recipe_file"]
                save(options.out, document)
    elif not options.show:
        run_studies(options, cases, document)
    print_all(document)


if __name__ == "__main__":
    main()
