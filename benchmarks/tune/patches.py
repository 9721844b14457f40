"""`steptime patch` on whole scripts: does the edit apply, and does it do what the recipe does?

    python benchmarks/tune/patches.py [--root DIR] [--only NAME ...] [--leave-out LEVER ...]
        [--budget 60] [--check]

For each script: one contained trial of the command as written notes its places and facts; a recipe
is made of every lever that applies here, keeps the training and is not left out, each with its
first settings, and what has no edit is named and taken out of it; then `steptime patch` makes the
edit, `git apply` applies it to a copy, and with `--check` contained trials compare the patched
script with the recipe: losses, then speed (by CPU time where no lever of the recipe forbids it;
`--leave-out dataloader num_threads wait_policy` on a busy machine). The recipe is not one that a
study proved: this asks whether the edit equals the recipe, not whether the recipe is fast.

Our scripts are always tried; those of benchmarks/open_scripts.toml where DIR holds their checkout
and environment (see benchmarks/run/open_scripts.py). Results go to benchmarks/results/patches.json;
with `--only`, those rows are renewed. Each has its machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import tomllib

from steptime.app.study.patch import check, patch
from steptime.core.interval import Interval
from steptime.errors import SteptimeError
from steptime.isolate.child import start_contained
from steptime.isolate.probe import probe
from steptime.levers import load_all
from steptime.levers.base import Lever, Preserves
from steptime.patch.values import Handover, PatchCheck
from steptime.tune.recipe.proof_scope import describe_machine, describe_script
from steptime.tune.recipe.recipe_file import write_recipe
from steptime.tune.search.bench import Baseline
from steptime.tune.study.study_folder import open_study
from steptime.tune.trials.facts.libraries import find_libraries
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.real_bench import RealBench, Subject, step_s_of
from steptime.tune.values.recipe_values import Proof, Recipe
from steptime.tune.values.study_values import Applied, State
from steptime.verify.values import Outcome

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ROOT, conditions

PINS = BENCHMARKS / "open_scripts.toml"
OUT = BENCHMARKS / "results" / "patches.json"
SPECIMENS = ROOT / "tests" / "specimens"
EXAMPLES = ROOT / "examples"

OURS = {
    "textbook": "textbook.py",
    "tensor_rows": "tensor_rows.py --epochs 200",
    "small_convnet": "small_convnet.py --steps 2000",
    "accumulation": "accumulation.py",
    "gan": "gan.py",
    "closure": "closure.py",
}
"""Commands after `python`, in tests/specimens."""

LEFT_OUT = ("compile", "allocator", "dataset_cache", "length_grouping", "trim_padding")
"""Levers that are not in the recipe: compiling takes minutes, the others have no edit or library
everywhere, or need a proof first."""

EXCLUSIVE = {"matmul_precision": "autocast"}
"""A lever that has nothing to do where another one is on."""


def observe(command: tuple[str, ...], environment: dict[str, str], budget_s: float) -> Baseline:
    """One contained trial of the command as written, in the current folder."""
    levers = {lever.name: lever for lever in load_all()}
    with tempfile.TemporaryDirectory() as store:
        folder = open_study(Path(store), "places", budget_s=budget_s)
        containment = probe(folder.folder)
        subject = Subject(
            argv=command,
            environment=environment,
            levers=levers,
            surroundings=ParentFacts(
                cwd=Path.cwd(),
                libraries=find_libraries(command, environment),
                environment_names=tuple(sorted(environment)),
            ),
            budget_s=budget_s,
        )

        def begin(environment: Any, *, folder: Path, stdin: Path | None) -> Any:
            return start_contained(
                command,
                environment,
                cwd=Path.cwd(),
                folder=folder,
                containment=containment,
                stdin=stdin,
            )

        bench = RealBench(subject, folder, begin, lambda: None)
        try:
            return bench.observe()
        finally:
            bench.close()


def choose(baseline: Baseline, levers: dict[str, Lever], left_out: tuple[str, ...]) -> State:
    """Every lever that applies, with its first settings."""
    state: list[Applied] = []
    for name, lever in levers.items():
        has_other = EXCLUSIVE.get(name) in [one.name for one in state]
        is_out = name in left_out or lever.preserves is Preserves.NOTHING
        if is_out or has_other or lever.applies(baseline.facts) is not None:
            continue
        space = lever.space(baseline.facts)
        if space:
            state.append(Applied(name=name, settings=space[0]))
    return tuple(state)


def make_recipe(command: tuple[str, ...], baseline: Baseline, state: State) -> Recipe:
    """A recipe as a study writes it, but for its proof."""
    step_s = step_s_of(baseline)
    return Recipe(
        version="benchmark",
        date="",
        script=describe_script(command, folder=Path.cwd()),
        machine=describe_machine(),
        levers=state,
        proof=Proof(
            study_id="none",
            speedup=Interval(estimate=1.0, low=1.0, high=1.0, n=0),
            noise_floor=None,
            quality=Outcome.INCONCLUSIVE,
            level=None,
            tuned_step_s=step_s,
            device=baseline.facts.device,
        ),
        sites=baseline.sites,
    )


def try_script(
    command: tuple[str, ...], environment: dict[str, str], options: argparse.Namespace
) -> dict[str, Any]:
    """One script, in the current folder: its edit, and what came of it."""
    began = time.monotonic()
    levers = {lever.name: lever for lever in load_all()}
    baseline = observe(command, environment, options.budget)
    if not baseline.ending.is_well:
        return {"failed": f"as written: {baseline.ending.word}"}
    left_out = (*LEFT_OUT, *options.leave_out)
    state = choose(baseline, levers, left_out)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "tuned.toml"
        write_recipe(path, make_recipe(command, baseline, state))
        handover = patch(path, folder=Path.cwd())
        row = describe(state, handover) | {"applies": applies(handover)}
        if handover.by_hand:  # what the edit lacks would make it slower than the recipe
            lost = {one.lever for one in handover.by_hand}
            kept = tuple(one for one in state if one.name not in lost)
            write_recipe(path, make_recipe(command, baseline, kept))
            handover = patch(path, folder=Path.cwd())
        if options.check and (handover.files or handover.variables):
            try:
                found = check(
                    path,
                    handover,
                    folder=Path.cwd(),
                    budget_s=options.budget,
                    tell=lambda _: None,
                )
            except SteptimeError as error:
                row["check"] = {"failed": str(error)}
            else:
                row["check"] = describe_check(found)
    return row | {"seconds": round(time.monotonic() - began)}


def applies(handover: Handover) -> bool | None:
    """Whether `git apply` makes of copies what the edit says; None where no file changes."""
    if not handover.diff:
        return None
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for file in handover.files:
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            (copy / file).write_bytes(Path(file).read_bytes())
        done = subprocess.run(["git", "apply", "-"], input=handover.diff, cwd=copy)
        same = all((copy / file).read_bytes() == data for file, data in handover.files.items())
    return done.returncode == 0 and same


def describe(state: State, handover: Handover) -> dict[str, Any]:
    """Which levers are where."""
    lines = handover.diff.decode("utf-8", "replace").splitlines()
    return {
        "recipe": [one.name for one in state],
        "placed": {one.name: list(one.places) for one in handover.placed},
        "by_hand": {one.lever: one.reason for one in handover.by_hand},
        "files": list(handover.files),
        "added_lines": sum(line[:1] == "+" and line[:4] != "+++ " for line in lines),
        "removed_lines": sum(line[:1] == "-" and line[:4] != "--- " for line in lines),
        "variables": dict(handover.variables),
    }


def describe_check(found: PatchCheck) -> dict[str, Any]:
    """What the trials said."""
    speed = found.speed
    return {
        "outcome": found.outcome.value,
        "losses": found.losses.outcome.value,
        "bit_for_bit": found.is_exact and found.losses.outcome is Outcome.PASS,
        "updates": max((check.n or 0 for check in found.losses.checks), default=0),
        "speed": None if speed is None else [speed.estimate, speed.low, speed.high, speed.n],
        "judged_by": found.judged_by,
        "reason": found.reason,
    }


def cases(root: Path | None) -> dict[str, tuple[Path, tuple[str, ...], dict[str, str]]]:
    """Folder, command and variables of each script that is here, by its name."""
    found = {
        name: (SPECIMENS, (sys.executable, *shlex.split(words)), {}) for name, words in OURS.items()
    }
    if root is None:
        return found
    for name, pin in tomllib.loads(PINS.read_text())["scripts"].items():
        folder = root / pin["folder"]
        if not folder.is_dir() or pin["command"].startswith("bash"):
            continue
        path = f"{root / pin['venv'] / 'bin'}{os.pathsep}{os.environ['PATH']}"
        more = {k: v.replace("{root}", str(root)) for k, v in pin.get("env", {}).items()}
        words = tuple(shlex.split(pin["command"].replace("{root}", str(root))))
        found[name] = (folder, words, {"PATH": path, "WANDB_MODE": "disabled", **more})
    return found


def main() -> None:
    """Try the scripts, one at a time, and write down what came of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="LEVER")
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    with suppress(OSError, KeyError):
        rows = json.loads(OUT.read_text())["scripts"]
    for name, (folder, command, variables) in cases(options.root).items():
        if options.only and name not in options.only:
            continue
        own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
        with chdir(folder):
            os.environ.clear()
            os.environ.update(own | variables)
            try:
                row = try_script(command, dict(os.environ), options)
            except SteptimeError as error:
                row = {"failed": str(error)}
        rows[name] = row | {"conditions": conditions()}
        print(f"{name}: {json.dumps(row)}", flush=True)
        text = json.dumps({"scripts": rows}, indent=1)
        OUT.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
