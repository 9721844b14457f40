"""What waits for a GPU, in under nine minutes on a machine that has one: `scripts/check --gpu`.

    scripts/check --gpu [--out FOLDER] [--dry-run]

The machine needs a Python from 3.10 on whose torch sees the device; it needs no network, no pip and
no rights. What else the tests import (pytest, hypothesis, psutil, rich, and the rest of `test` and
`report` in pyproject.toml) may be there, or is carried along and named by a variable:

    STEPTIME_SITE=FOLDER     packages, as `pip install --target FOLDER` leaves them
    STEPTIME_WHEELS=FOLDER   wheels; they are unpacked here

The results go to --out, else to $OUT, else to gpu-results: `summary.json` says of each step what it
ran, how it ended and how long it took, `log.txt` what it printed; beside them lie the documents of
the tests, the demonstration and the machine. A step that would not end in time is left out and says
so. `--dry-run` does the same without a device, with the smallest sizes, to try all of this.
Exit codes: 0 all went well; 1 a step failed; 3 there is no device, and nothing was run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 525.0  # nine minutes, less the time to say how it ended
NEEDED = ("pytest", "hypothesis", "psutil", "rich", "msgspec")
WANTED = ("pytest_cov", "xdist", "jsonschema", "pynvml", "numpy")
DEVICE_QUESTION = """\
import json, torch
found = torch.cuda.is_available()
device = torch.cuda.get_device_properties(0) if found else None
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    "memory_bytes": device.total_memory if found else None,
}))
"""
ON_DEVICE = {
    "model = CharGPT(num_chars)\n": "model = CharGPT(num_chars).to(DEVICE)\n",
    "ids, targets = next(batches)\n": "ids, targets = (x.to(DEVICE) for x in next(batches))\n",
    "cross_entropy(model(ids), targets).item()\n": (
        "cross_entropy(model(ids.to(DEVICE)), targets.to(DEVICE)).item()\n"
    ),
    "import torch\n": "import torch\n\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n",
}
"""The example knows no device: this puts its model and its batches there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, how long it may take at most [s], and whether a failure of it counts."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    folder: Path = ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a step; `exit_code` is None where it was not run or did not end."""

    name: str
    command: tuple[str, ...]
    outcome: str  # ok, failed, out of time, left out, not run
    exit_code: int | None = None
    took_s: float = 0.0
    last_lines: tuple[str, ...] = ()


def main() -> int:
    """Run the steps; the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/check --gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-results")))
    parser.add_argument("--dry-run", action="store_true", help="without a device, smallest sizes")
    options = parser.parse_args()
    began_s = time.monotonic()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="st.") as folder:
        python, env = make_environment(Path(folder))
        facts = ask(python, env)
        has_device = bool(facts.get("devices"))
        steps = make_steps(python, Path(folder), out, is_dry=options.dry_run)
        say(f"gpu check: {facts}")
        if not has_device and not options.dry_run:
            ended = [Ended(name=s.name, command=s.command, outcome="not run") for s in steps]
            return finish(out, facts, ended, began_s, why="this torch sees no CUDA device")
        missing = facts.get("missing_needed")
        if missing:
            ended = [Ended(name=s.name, command=s.command, outcome="not run") for s in steps]
            return finish(out, facts, ended, began_s, why=f"no {missing} here: {__doc__}")
        ended = []
        for step in steps:
            ended.append(run(step, env, out / "log.txt", until_s=began_s + BUDGET_S))
            say(f"gpu check: {step.name}: {ended[-1].outcome}, {ended[-1].took_s:.0f} s")
        return finish(out, facts, ended, began_s)


def make_environment(folder: Path) -> tuple[str, dict[str, str]]:
    """A Python that sees this one's packages, what was carried along, and our sources."""
    home = folder / "env"
    venv.create(home, symlinks=True, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    lines = [str(ROOT / "src")]
    if carried := os.environ.get("STEPTIME_SITE"):
        lines.append(str(Path(carried).resolve()))
    if wheels := os.environ.get("STEPTIME_WHEELS"):
        unpacked = folder / "carried"
        for wheel in sorted(Path(wheels).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        for program in unpacked.glob("*.data/scripts/*"):
            program.chmod(0o755)
            program.rename(home / "bin" / program.name)
        lines.append(str(unpacked))
    # Those of the Python that runs this; of an environment, its own and no others.
    lines += [path for path in sys.path if path.endswith("-packages")]
    (site / "steptime_check.pth").write_text("\n".join(dict.fromkeys(lines)) + "\n")
    for name in ("tmp", "home"):
        (folder / name).mkdir()
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    own |= {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "OMP_NUM_THREADS": "1"}
    own["PATH"] = f"{home / 'bin'}:{own['PATH']}"
    return str(home / "bin" / "python"), own


def ask(python: str, env: Mapping[str, str]) -> dict[str, object]:
    """What this machine has: the device, torch, and the packages that are there or not."""
    facts: dict[str, object] = {"python": platform.python_version(), "machine": platform.node()}
    done = subprocess.run([python, "-c", DEVICE_QUESTION], env=env, capture_output=True, text=True)
    if done.returncode == 0:
        facts |= json.loads(done.stdout)
    else:
        facts["torch_failed"] = done.stderr.strip().splitlines()[-1:]
    for key, names in (("missing_needed", NEEDED), ("missing_wanted", WANTED)):
        code = "from importlib.util import find_spec\n"
        code += f"print(*[name for name in {names} if not find_spec(name)])"
        said = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True)
        facts[key] = said.stdout.split()
    return facts


def make_steps(python: str, folder: Path, out: Path, *, is_dry: bool) -> list[Step]:
    """What is run, dearest knowledge first."""
    steptime = (python, "-m", "steptime")
    demo = folder / "demo"
    demo.mkdir()
    make_demo(demo)
    num_steps, budget, repeat = ("20", "12s", "1") if is_dry else ("400", "60s", "3")
    profiled = (*steptime, "run", "--profile", "10", "--json", str(out / "profile.json"))
    train = (python, "train.py", "--steps", num_steps)
    ailments = ("healthy",) if is_dry else ("GPU sync", "GPU copies")
    pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "minversion=8")
    return [
        Step(name="nvidia-smi", command=("nvidia-smi",) if not is_dry else ("true",), limit_s=20),
        Step(
            name="gpu tests",
            command=(*pytest, "-m", "gpu", f"--junitxml={out / 'tests.xml'}", "--durations=0"),
            limit_s=240,
        ),
        Step(
            name="demonstration",
            command=(*steptime, "run", "--json", str(out / "demo.json"), "--", *train),
            limit_s=60,
            folder=demo,
        ),
        Step(
            name="demonstration, profiled",
            command=(*profiled, "--", *train),
            limit_s=90,
            folder=demo,
        ),
        Step(
            name="the machine's ceilings",
            command=(*steptime, "machine", "--budget", budget, "--json", str(out / "machine.json")),
            limit_s=100,
            folder=demo,
        ),
        Step(
            name="benchmark: ailments of a device",
            command=(python, "benchmarks/run/ailments.py", "--repeat", repeat, "--only", *ailments),
            limit_s=120,
        ),
    ]


def make_demo(folder: Path) -> None:
    """The example, with its model and batches on the device."""
    example = ROOT / "examples" / "gpt"
    text = (example / "train.py").read_text()
    for old, new in ON_DEVICE.items():
        if old not in text:
            raise SystemExit(f"error: examples/gpt/train.py has no line `{old.strip()}` any more.")
        text = text.replace(old, new, 1)
    (folder / "train.py").write_text(text)
    for file in example.glob("*.txt"):
        (folder / file.name).symlink_to(file)


def run(step: Step, env: Mapping[str, str], log: Path, *, until_s: float) -> Ended:
    """Run a step if it would end in time; what it says goes to the log."""
    began_s = time.monotonic()
    left_s = until_s - began_s
    if left_s < min(20.0, step.limit_s):
        return Ended(name=step.name, command=step.command, outcome="left out")
    outcome, code = "out of time", None
    with log.open("a") as file:
        file.write(f"\n===== {step.name}: {' '.join(step.command)}\n")
        file.flush()
        position = file.tell()
        process = subprocess.Popen(
            step.command,
            cwd=step.folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(min(step.limit_s, left_s))
            outcome = "ok" if code == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
    said = log.read_text(errors="replace")[position:].strip().splitlines()
    return Ended(
        name=step.name,
        command=step.command,
        outcome=outcome,
        exit_code=code,
        took_s=round(time.monotonic() - began_s, 1),
        last_lines=tuple(said[-5:]),
    )


def finish(
    out: Path,
    facts: Mapping[str, object],
    ended: Sequence[Ended],
    began_s: float,
    *,
    why: str | None = None,
) -> int:
    """Say how it ended, on stderr and in summary.json; the exit code."""
    took_s = time.monotonic() - began_s
    summary = {
        "facts": dict(facts),
        "took_s": round(took_s, 1),
        "not_run_because": why,
        "steps": [asdict(one) for one in ended],
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    if why is not None:
        say(f"gpu check: nothing was run: {why}")
        say("gpu check: it would run")
        for one in ended:
            say(f"    {one.name}: {' '.join(one.command)}")
        return 3
    for one in ended:
        say(f"gpu check: {one.outcome:12} {one.took_s:5.0f} s  {one.name}")
        for line in one.last_lines if one.outcome != "ok" else ():
            say(f"               {line}")
    say(f"gpu check: {took_s:.0f} s; everything that was found is in {out}")
    return int(any(one.outcome != "ok" for one in ended))


def say(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
