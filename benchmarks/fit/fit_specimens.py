"""Trainings that die under a memory limit: do they run afterwards, and train as well?

    python benchmarks/fit/fit_specimens.py [--root DIR] [--only NAME ...] [--budget 5m]

Five scripts of our own (benchmarks/fit/fit_scripts) and, with DIR, nanoGPT, makemore and pytorch's
ImageNet example, unmodified (benchmarks/open_scripts.toml says where they come from and what DIR
holds). Each is run bare under the limit (RLIMIT_DATA), which it does not survive; then `steptime
fit --memory-limit` makes it fit; then it is run with the recipe under the limit, on its own. For
each: how it died, the recipe, how many real runs that took, the verdict on quality, and how the run
with the recipe ended. Results go to benchmarks/results/fit_specimens.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import BENCHMARKS, ENVIRONMENT, conditions

SCRIPTS = Path(__file__).resolve().parent / "fit_scripts"
OUT = BENCHMARKS / "results" / "fit_specimens.json"
MIB = 1 << 20
QUIET = {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Specimen:
    """A command, the folder it runs in, the limit [MiB], and where its Python is below DIR."""

    name: str
    words: tuple[str, ...]
    limit_mib: int
    folder: str = ""
    venv: str = ""


def own(name: str, limit_mib: int) -> Specimen:
    return Specimen(name, (str(SCRIPTS / f"{name}.py"), "20"), limit_mib)


SPECIMENS = (
    own("wide_rows", 500),
    own("gpt", 420),
    own("lstm", 330),
    own("unet", 400),
    own("batch_norm", 400),
    Specimen(
        "nanoGPT",
        (
            *("train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False"),
            *("--eval_iters=1", "--log_interval=1", "--block_size=128", "--batch_size=32"),
            *("--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=30", "--dropout=0.0"),
            *("--lr_decay_iters=30",),
        ),
        430,
        folder="nanoGPT",
        venv="venv",
    ),
    Specimen(
        "makemore",
        (
            *("makemore.py", "-i", "names.txt", "-o", "out", "--device", "cpu"),
            *("--max-steps", "60", "-b", "512", "--num-workers", "1"),
        ),
        700,
        folder="makemore",
        venv="venv",
    ),
    Specimen(
        "ImageNet example, ResNet-18",
        (
            *("main.py", "-a", "resnet18", "-b", "8", "--epochs", "1", "-j", "1"),
            "../../hymenoptera",
        ),
        620,
        folder="examples/imagenet",
        venv="venv",
    ),
)


def limited(limit_bytes: int) -> Any:
    """What sets the limit in a child before it begins."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    return limit


def run_under(words: list[str], limit_bytes: int, cwd: Path, env: dict[str, str]) -> dict[str, Any]:
    """A command under the limit, without Steptime or with a recipe."""
    begun_s = time.monotonic()
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        preexec_fn=limited(limit_bytes),
        timeout=1800,
    )
    last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
    return {
        "exit_code": done.returncode,
        "last_line": last[0][:160] if done.returncode else None,
        "wall_s": round(time.monotonic() - begun_s, 1),
    }


def try_one(one: Specimen, root: Path | None, budget: str) -> dict[str, Any] | None:
    """One specimen; None where what it needs is not there."""
    cwd = Path(tempfile.mkdtemp()) if root is None or not one.folder else root / one.folder
    if one.folder and (root is None or not cwd.is_dir()):
        return None
    python = str(root / one.venv / "bin" / "python") if root and one.venv else sys.executable
    limit = one.limit_mib * MIB
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    env |= ENVIRONMENT | QUIET
    command = [python, *one.words]
    bare = run_under(command, limit, cwd, env)
    with tempfile.TemporaryDirectory() as folder:
        recipe, out = Path(folder) / "fit.toml", Path(folder) / "fit.json"
        ours = [sys.executable, "-m", "steptime"]
        fit = [*ours, "fit", "--memory-limit", f"{one.limit_mib}MiB", "--budget", budget]
        fit += ["--output", str(recipe), "--json", str(out), "--store", folder]
        begun_s = time.monotonic()
        done = subprocess.run(
            [*fit, "--", *command],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        took_s = round(time.monotonic() - begun_s, 1)
        data = json.loads(out.read_text())["data"] if out.exists() else None
        after = None
        if recipe.exists():
            with_recipe = [*ours, "run", "--store", folder, "--recipe", str(recipe), "--", *command]
            after = run_under(with_recipe, limit, cwd, env)
    if not one.folder:
        shutil.rmtree(cwd, ignore_errors=True)
    return {
        "name": one.name,
        "command": " ".join(["python", *one.words]).replace(str(BENCHMARKS), "benchmarks"),
        "limit_mib": one.limit_mib,
        "bare_under_limit": bare,
        "fit_exit_code": done.returncode,
        "fit_wall_s": took_s,
        "stderr": done.stderr.strip().splitlines()[-1:] if data is None else [],
        **summarize(data),
        "with_recipe_under_limit": after,
    }


def summarize(data: dict[str, Any] | None) -> dict[str, Any]:
    if data is None:
        return {"fits": None}
    quality = data["quality"]
    return {
        "fits": data["fits"],
        "peak": data["peak"],
        "recipe": data["recipe"],
        "proven": data["proven"],
        "quality": None if quality is None else quality["outcome"],
        "level": None if quality is None else quality["level"],
        "num_runs": len(data["runs"]),
        "runs": [
            {
                key: run[key]
                for key in ("state", "estimate_bytes", "peak_bytes", "end", "reason", "num_steps")
            }
            for run in data["runs"]
        ],
        "baseline_step_s": data["baseline_step_s"],
        "fitted_step_s": data["fitted_step_s"],
        "short_bytes": data["short_bytes"],
        "reason": data["reason"],
    }


def show(row: dict[str, Any]) -> str:
    recipe = " + ".join(one["name"] for one in row.get("recipe") or ()) or "none"
    after = row["with_recipe_under_limit"]
    return (
        f"{row['name']}: bare exit {row['bare_under_limit']['exit_code']}; {recipe}; "
        f"{row.get('num_runs')} runs; quality {row.get('quality')}; with the recipe under the "
        f"limit: exit {None if after is None else after['exit_code']}; "
        f"fit took {row['fit_wall_s']} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    before = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = {row["name"]: row for row in before}
    for one in SPECIMENS:
        if options.only and one.name not in options.only:
            continue
        row = try_one(one, options.root, options.budget)
        if row is None:
            print(f"{one.name}: not here", flush=True)
            continue
        rows[one.name] = row
        print(show(row), flush=True)
        ordered = [rows[s.name] for s in SPECIMENS if s.name in rows]
        document = {"command": "python benchmarks/fit/fit_specimens.py --root DIR", **conditions()}
        options.out.write_text(json.dumps({**document, "rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
