"""Gives damaged folders, recipes, studies, variables and arguments to the commands.

    python benchmarks/verify/fuzz.py [--kinds runs recipes ...] [--count 2000] [--seed 0]
        [--only 17]

Each case is made again from a seed, its kind and its number. Most run in a forked child in which
Steptime is loaded; every hundredth runs as processes of its own. A finding is a failure of Steptime
itself (its message, or a traceback), a command that takes longer than the limit of time, or a
process that holds more than 500 MB beyond what it held at its start. Ends with code 1 where there
are any. Results go to benchmarks/results/fuzz.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _mutations import any_word, change_kind, change_text, damage

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
from _conditions import stamp
from _run_folders import write_folder

BENCHMARKS = Path(__file__).resolve().parents[1]
SRC = BENCHMARKS.parent / "src"
sys.path[:0] = [str(SRC), str(BENCHMARKS.parent / "tests")]

MAX_MORE_BYTES = 500_000_000
LIMIT_S = 30.0
"""For all commands of a case, on a machine that others may keep busy. Most take some 40 ms, but
`doctor` starts an interpreter with torch."""

REAL_EVERY, REPORT_EVERY = 100, 20
WORST = ("a failure of Steptime itself", "Traceback (most recent call last)")

VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "COLUMNS"),
    *("LINES", "TERM", "TMPDIR", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NCCL_DEBUG_FILE"),
    *("SLURM_NNODES", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "FORCE_COLOR", "LANG"),
    *("LC_ALL", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD_", "STEPTIME_PLAN", "STEPTIME_PROFILE"),
    *("STEPTIME_RUN", "TORCH_LOGS", "PYTHONMALLOC_", "CONDA_PREFIX", "VIRTUAL_ENV", "PATH", "TZ"),
    *("MASTER_ADDR", "MASTER_PORT", "OMP_WAIT_POLICY", "BROWSER", "DISPLAY", "XDG_CACHE_HOME"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM", "JUPYTER_COLUMNS", "NCCL_SOCKET_IFNAME"),
)

Words = list[str]


@dataclass(frozen=True)
class Case:
    """What is run in the case's folder: commands, with variables; `done` says what was damaged."""

    done: list[str]
    commands: list[Words]
    variables: dict[str, str] = field(default_factory=dict)


# -- what is damaged


class Originals:
    """Whole folders and files, made once by the real commands."""

    def __init__(self, folder: Path) -> None:
        from steptime.core.codec import to_json
        from study_cases import CASES

        self.folder = folder
        self.store = folder / "store"
        self.studies = folder / "studies"
        self.recipe = folder / "tuned.toml"
        made = folder / "made"
        write_folder(made, num_steps=300, num_ranks=2)
        copy = 'cp "$0"/*.jsonl "$STEPTIME_RUN"'
        for _ in range(3):
            self._run("run", "--store", str(self.store), "--", "sh", "-c", copy, str(made))
        shutil.rmtree(made)
        for number, study in enumerate(case() for case in CASES.values()):
            place = self.studies / ".steptime" / "studies" / f"20261120-10150{number}-3fa2"
            place.mkdir(parents=True)
            document = {**to_json(study), "study_id": place.name, "key": "k"}
            (place / "study.json").write_text(json.dumps(document) + "\n")
        self._write_recipe()

    def _run(self, *words: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(SRC)}
        command = [sys.executable, "-m", "steptime", *words]
        subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, check=True)

    def _write_recipe(self) -> None:
        from steptime.core.devices.machine_identity import MachineIdentity
        from steptime.tune.recipe.recipe_file import make_recipe, write_recipe
        from steptime.tune.values.recipe_values import Script
        from study_cases import BF16, faster, on

        script = Script(command=("true",), files=("train.py",), hash="sha256:0")
        machine = MachineIdentity(cpu="x", num_cores=2, memory_bytes=1 << 33)
        study = replace(faster(), recipe=(BF16, on("num_threads", num_threads=1)))
        write_recipe(self.recipe, make_recipe(study, script=script, machine=machine))

    def runs(self) -> list[str]:
        """Return the ids of the runs, the oldest first."""
        return sorted(one.name for one in (self.store / ".steptime" / "runs").iterdir())


def damaged_run(chance: random.Random, originals: Originals, here: Path) -> Case:
    """A run folder beside whole ones; in half of the cases it must be folded again."""
    shutil.copytree(originals.store, here, dirs_exist_ok=True)
    *_, other, name = originals.runs()
    folder = here / ".steptime" / "runs" / name
    for page in (here / ".steptime" / "runs").glob("*/report.html"):
        page.unlink()
    if chance.random() < 0.5:
        (folder / "measurement.json").unlink()
    done = damage(chance, folder)
    if chance.random() < 0.1:
        index = here / ".steptime" / "index.sqlite"
        if index.is_file():
            change = change_text if chance.random() < 0.5 else change_kind
            done.append(change(chance, index))
    commands = [["runs"], ["show", name], ["runs", "--reindex", "--json"]]
    if chance.random() < 0.5:
        commands.append(["show", name, "--json"])
    commands.append(["compare", name, "--", other])
    commands += [["stacks", name]] if chance.random() < 0.2 else []
    if chance.random() < 0.3:
        commands.append(["export", name, "--to", "chrome", "--output", "trace.json"])
    commands += [["doctor"]] if chance.random() < 0.02 else []
    if chance.random() < 1 / REPORT_EVERY:
        commands.append(["report", name, "--no-open"])
    if chance.random() < 0.2:
        commands.append(["attach", name, chance.choice(("--memory", "--count")), "--timeout", "1s"])
    return Case(done, commands)


def damaged_recipe(chance: random.Random, originals: Originals, here: Path) -> Case:
    """A recipe that a command is to train with."""
    path = here / "tuned.toml"
    shutil.copy(originals.recipe, path)
    change = change_text if chance.random() < 0.9 else change_kind
    done = [change(chance, path)]
    if change is change_text and chance.random() < 0.3:
        done.append(change_text(chance, path))
    return Case(done, [["run", "--recipe", "tuned.toml", "--", "true"]])


def damaged_study(chance: random.Random, originals: Originals, here: Path) -> Case:
    """A study among others."""
    shutil.copytree(originals.studies, here, dirs_exist_ok=True)
    folders = sorted((here / ".steptime" / "studies").iterdir())
    folder = chance.choice(folders)
    done = damage(chance, folder)
    commands = [["study", "list"], ["study", "show", folder.name], ["study", "show", "last"]]
    commands += [["study", "list", "--json"], ["study", "show", folder.name, "--json"]]
    return Case(done, commands)


def odd_variables(chance: random.Random, originals: Originals, here: Path) -> Case:
    """Variables that hold anything."""
    shutil.copytree(originals.store, here, dirs_exist_ok=True)
    names = chance.sample(VARIABLES, chance.choice((1, 1, 2, 5)))
    variables = {name: any_word(chance) for name in names}
    commands = [["runs"], ["show", "last"], ["--help"]]
    commands += [["machine", "--inventory"]] if chance.random() < 0.3 else []
    commands += [["doctor"]] if chance.random() < 0.03 else []
    if chance.random() < 0.1 and "PATH" not in variables:
        commands.append(["run", "--", "true"])
    return Case([f"{k}={v[:60]!a}" for k, v in variables.items()], commands, variables)


def odd_arguments(chance: random.Random, originals: Originals, here: Path) -> Case:
    """Names of runs, stores and files that are none."""
    shutil.copytree(originals.store, here, dirs_exist_ok=True)
    word, other = any_word(chance), any_word(chance)
    place = _within(here, word)
    every: tuple[Words, ...] = (
        ["show", word],
        ["show", "last", "--store", word],
        ["show", "last", "--json", place],
        ["runs", "--store", word],
        ["runs", "--json", place],
        ["compare", word, "--", other],
        ["compare", "last", "--", "last~1", "--fail-if-slower", word],
        ["compare", "last", "--", "last~1", "--hourly-price", word],
        ["study", "show", word],
        ["study", "list", "--store", word],
        ["levers", word],
        ["stacks", word],
        ["export", "last", "--to", "chrome", "--output", place],
        ["machine", "--inventory", "--data", word],
        ["machine", "--budget", word],
        ["run", "--recipe", word, "--", "true"],
        ["run", "--store", place, "--", "true"],
        ["tune", "--budget", word, "--", "true"],
        ["tune", "--levers", word, "--budget", "1s", "--", "/no/such"],
        ["report", word],
        [word],
    )
    picked = [chance.choice(every) for _ in range(3)]
    return Case([f"{words}"[:200] for words in picked], picked)


def _within(here: Path, word: str) -> str:
    """Return the word as a place to write to; one outside of the folder gets a twin inside."""
    above = os.path.normpath(here) + "/"
    return (
        word
        if os.path.normpath(here / word).startswith(above)
        else f"{here}/{word}".replace("..", "__")
    )


KINDS: dict[str, Callable[[random.Random, Originals, Path], Case]] = {
    "runs": damaged_run,
    "recipes": damaged_recipe,
    "studies": damaged_study,
    "variables": odd_variables,
    "arguments": odd_arguments,
}


# -- running


@dataclass(frozen=True)
class Ended:
    """How the commands of a case ended."""

    codes: list[int]
    text: str
    wall_s: float
    more_bytes: int
    is_over: bool

    def wrong(self) -> str | None:
        """Return what is wrong with it; None if nothing is."""
        if self.is_over:
            return "hang"
        if self.more_bytes > MAX_MORE_BYTES:
            return "memory"
        return "failure" if any(words in self.text for words in WORST) else None


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_a_fork(case: Case, here: Path, *, limit_s: float = LIMIT_S) -> Ended:
    """Run the commands one after the other in a child that is a copy of this process."""
    output, codes = here / ".fuzz-output", here / ".fuzz-codes"
    before_bytes, began = _resident_bytes(), time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _be_the_child(case, here, output, codes)
        finally:
            os._exit(99)
    status, used, is_over = _wait(pid, began + limit_s)
    numbers = list(map(int, codes.read_text().split())) if codes.exists() else []
    text = output.read_text(errors="replace") if output.exists() else ""
    if os.waitstatus_to_exitcode(status) and not is_over:
        numbers.append(os.waitstatus_to_exitcode(status))
        text += f"\nTraceback (most recent call last): none, it ended with {numbers[-1]}"
    return Ended(
        codes=numbers,
        text=text,
        wall_s=time.monotonic() - began,
        more_bytes=max(0, (used.ru_maxrss << 10) - before_bytes),
        is_over=is_over,
    )


def _be_the_child(case: Case, here: Path, output: Path, codes: Path) -> None:
    os.setsid()  # no terminal
    os.chdir(here)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, file), (2, file)):
        os.dup2(source, target)
    for stream in ("stdout", "stderr"):
        opened = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, stream, opened)
    os.environ["TMPDIR"] = str(here)
    os.environ |= case.variables
    from steptime.cli.main import main

    with codes.open("a", buffering=1) as written:
        for words in case.commands:
            code = main(words)
            sys.stdout.flush()
            written.write(f"{code}\n")
    os._exit(0)


def _wait(pid: int, until: float) -> tuple[int, Any, bool]:
    """Wait for the child, at most so long; then end it and all that it started."""
    while True:
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            return status, used, False
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
            _, status, used = os.wait4(pid, 0)
            return status, used, True
        time.sleep(0.001)


def as_processes(case: Case, here: Path, *, limit_s: float = LIMIT_S) -> Ended:
    """Run each command as a process of its own."""
    environment = {**os.environ, "TMPDIR": str(here), "PYTHONPATH": str(SRC), **case.variables}
    output, codes, most, is_over = here / ".fuzz-output", [], 0, False
    began = time.monotonic()
    with output.open("wb") as file:
        for words in case.commands:
            child = subprocess.Popen(
                [sys.executable, "-m", "steptime", *words],
                cwd=here,
                env=environment,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            status, used, is_late = _wait(child.pid, time.monotonic() + limit_s)
            child.returncode = os.waitstatus_to_exitcode(status)
            codes.append(child.returncode)
            most, is_over = max(most, used.ru_maxrss << 10), is_over or is_late
    text = output.read_text(errors="replace")
    return Ended(codes, text, time.monotonic() - began, most, is_over)


def run_case(
    kind: str, number: int, originals: Originals, *, seed: int, is_real: bool
) -> tuple[Case, Ended]:
    """Make a case again, and run it."""
    chance = random.Random(f"{seed} {kind} {number}")
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=originals.folder) as folder:
        here = Path(folder)
        case = KINDS[kind](chance, originals, here)
        return case, (as_processes if is_real else in_a_fork)(case, here)


def load_everything() -> None:
    """Import what the commands import, so that the forked children need not.

    The libraries that trainings import are not among it.
    """
    from importlib import import_module
    from pkgutil import walk_packages

    import msgspec  # noqa: F401
    import rich.console  # noqa: F401

    import steptime

    skipped = (
        "guest",
        "inject",
        "levers",
        "testing",
        "machine.child",
        "isolate",
        "graph",
        "methods",
    )
    for found in walk_packages(steptime.__path__, "steptime."):
        if not found.name.removeprefix("steptime.").startswith((*skipped, "__main__")):
            import_module(found.name)


def findings_of(
    kind: str, numbers: Sequence[int], originals: Originals, *, seed: int, real_every: int
) -> Iterator[dict[str, Any]]:
    """Run cases of a kind; yield a row for each, with a `wrong` where something is."""
    for number in numbers:
        is_real = real_every > 0 and number % real_every == real_every - 1
        case, ended = run_case(kind, number, originals, seed=seed, is_real=is_real)
        row: dict[str, Any] = {"number": number, "codes": ended.codes, "wall_s": ended.wall_s}
        row |= {"more_bytes": ended.more_bytes, "wrong": ended.wrong(), "is_real": is_real}
        if row["wrong"] is not None:
            row |= {"done": case.done, "commands": [[w[:80] for w in c] for c in case.commands]}
            row["text"] = _tail_of(ended.text)
        yield row


def _tail_of(text: str) -> str:
    """Return the lines that matter: what failed."""
    bad = [line for line in text.splitlines() if any(words in line for words in WORST)]
    return "\n".join(bad[:3])[:600] or text[-300:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="run these cases alone, and show all")
    parser.add_argument("--quick", action="store_true", help="no case as processes of its own")
    parser.add_argument("--out", default=str(BENCHMARKS / "results" / "fuzz.json"))
    options = parser.parse_args()
    load_everything()
    found: dict[str, Any] = {**stamp(), "seed": options.seed, "count": options.count, "kinds": {}}
    out = Path(options.out)
    if out.is_file():  # kinds may be run one after the other
        found["kinds"] = json.loads(out.read_text())["kinds"]
    num_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        originals = Originals(Path(folder))
        for kind in options.kinds:
            if options.only is not None:
                for number in options.only:
                    case, ended = run_case(
                        kind, number, originals, seed=options.seed, is_real=False
                    )
                    print(number, case.done, case.commands, ended.codes, ended.wrong())
                    print(ended.text[-6000:])
                continue
            numbers, every = range(options.first, options.count), 0 if options.quick else REAL_EVERY
            rows: list[dict[str, Any]] = []
            made = findings_of(kind, numbers, originals, seed=options.seed, real_every=every)
            for row in _shown(kind, made):
                rows.append(row)
                if len(rows) % 50 == 0:  # what is done is kept if this is ended
                    found["kinds"][kind] = summarize(rows)
                    out.write_text(json.dumps(found, indent=1) + "\n")
            found["kinds"][kind] = summarize(rows)
            num_wrong += len(found["kinds"][kind]["wrong"])
            print(kind, {k: v for k, v in found["kinds"][kind].items() if k != "wrong"}, flush=True)
    if options.only is None:
        out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if num_wrong else 0


def _shown(kind: str, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["wrong"] is not None:
            print(
                f"{kind} {row['number']}: {row['wrong']} {row['done']} {row['text']!r}", flush=True
            )
        yield row


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts, the slowest case, the most memory, and what is wrong."""
    forked = [row for row in rows if not row["is_real"]]
    codes = Counter(str(code) for row in rows for code in row["codes"])
    return {
        "num_cases": len(rows),
        "num_commands": sum(len(row["codes"]) for row in rows),
        "num_real": len(rows) - len(forked),
        "exit_codes": dict(sorted(codes.items())),
        "slowest_s": max((row["wall_s"] for row in forked), default=0.0),
        "most_bytes": max((row["more_bytes"] for row in forked), default=0),
        "num_wrong": sum(row["wrong"] is not None for row in rows),
        "wrong": [row for row in rows if row["wrong"] is not None],
    }


if __name__ == "__main__":
    sys.exit(main())
