"""A fork of the server is to a script, and to Steptime, what a new process is."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from end_to_end.harness import (
    Done,
    fork_bare,
    needs_linux,
    needs_torch,
    rows,
    run_folder,
    run_forked,
    run_truly,
    start_bare,
)

pytestmark = [needs_torch, needs_linux]

IGNORED = ("STEPTIME_RUN", "PATH", "_", "PYTHON_SHIM", "PWD")
"""Of this run, or of the shim in front of an interpreter, which is a part of launching."""

SEEN = (
    f"IGNORED = {IGNORED}\n"
    """\
import atexit, gc, json, os, signal, sys, threading

atexit.register(lambda: print("at exit", flush=True))
def dynamo():
    return [name in sys.modules for name in ("torch", "torch.nn", "torch._dynamo", "sympy")]
before = dynamo()
import torch
with_torch = dynamo()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with_optimizer = dynamo()
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
ignored = [n for n in range(1, 32) if signal.getsignal(n) is signal.SIG_IGN]
handled = [n for n in range(1, 32) if callable(signal.getsignal(n))]
print(json.dumps({
    "modules": [before, with_torch, with_optimizer],
    "path": sys.path,
    "flags": str(sys.flags),
    "argv": [sys.argv, sys.orig_argv[1:]],
    "file": __file__,
    "main": [__name__, __spec__ is None, sys.modules["__main__"].__dict__ is globals()],
    "places": [sys.prefix, sys.executable, os.getcwd()],
    "environment": {k: v for k, v in os.environ.items() if k not in IGNORED},
    "signals": [ignored, handled, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))],
    "threads": threading.active_count(),
    "descriptors": sorted(set(map(int, os.listdir("/proc/self/fd")[:3]))),
    "parent": open(f"/proc/{os.getppid()}/status").readline(),
    "random": torch.rand(2).tolist(),
    "version": torch.__version__,
    "spec": [torch.__spec__.name, torch.nn.__spec__.name, torch.__spec__.origin],
    "gc": gc.isenabled(),
    "stdin": sys.stdin.read(),
}))
sys.stderr.write("to stderr\\n")
"""
)

ENDS = {
    "nothing": "pass",
    "a number": "raise SystemExit(7)",
    "a word": "raise SystemExit('a word')",
    "an exception": "def f(): raise ValueError('theirs')\nf()",
    "at once": "import os; os._exit(5)",
    "a signal": "import os; os.kill(os.getpid(), 11)",
    "a thread that goes on": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()"
    ),
}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


def seen(done: Done) -> Mapping[str, Any]:
    said = done.stdout.decode().splitlines()
    assert done.stderr.startswith(b"to stderr\n"), done.stderr.decode()
    assert said[1:] == ["at exit"]
    found: Mapping[str, Any] = json.loads(said[0])
    return found


def test_a_bare_script_sees_what_it_sees_in_a_new_process(tmp_path: Path) -> None:
    script = write(tmp_path / "seen.py", SEEN)
    variables = {"PYTHONPATH": str(tmp_path / "more"), "MINE": "1"}
    true = start_bare(tmp_path, "python", script, "--lr", "3", **variables).finish()
    forked = fork_bare(tmp_path, "python", script, "--lr", "3", **variables).finish()

    assert without_parent(seen(forked)) == without_parent(seen(true))


def test_an_observed_script_sees_what_it_sees_in_a_new_process(tmp_path: Path) -> None:
    script = write(tmp_path / "seen.py", SEEN)
    true = run_truly(tmp_path, "python", script)
    before = {path.name for path in tmp_path.glob(".steptime/runs/2*")}
    forked = run_forked(tmp_path, "python", script)

    assert without_parent(seen(forked)) == without_parent(seen(true))
    assert (forked.exit_code, forked.data["num_steps"]) == (0, 5)
    assert forked.notes == true.notes == {}
    (folder,) = [p for p in tmp_path.glob(".steptime/runs/2*") if p.name not in before]
    (first,) = [p for p in tmp_path.glob(".steptime/runs/2*") if p.name in before]
    for name in ("rank-0.jsonl", "processes.jsonl"):
        assert kinds(folder / name) == kinds(first / name)
    assert {p.name for p in folder.iterdir()} == {p.name for p in first.iterdir()}


def without_parent(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "parent"}


def kinds(path: Path) -> list[str]:
    """The kinds of the lines, and what each says, without how often it was said.

    Collections of garbage have a line if they took a millisecond, which is a matter of chance.
    """
    return sorted({f"{line['k']}: {sorted(line)}" for line in rows(path) if line["k"] != "gc"})


def test_the_script_is_a_child_of_its_steptime(tmp_path: Path) -> None:
    code = "import os, torch; print(os.getppid(), os.getpgid(0))\n"
    done = run_forked(tmp_path, "python", write(tmp_path / "x.py", code))

    parent, group = done.stdout.split()
    assert parent == group  # `steptime run` leads the group that its command is in
    (line,) = [one for one in rows(run_folder(tmp_path) / "processes.jsonl") if one["k"] == "start"]
    assert line["ppid"] == int(parent)


@pytest.mark.parametrize("end", ENDS)
def test_a_script_ends_as_in_a_new_process(tmp_path: Path, end: str) -> None:
    script = write(tmp_path / "x.py", f"print('ran')\n{ENDS[end]}\n")
    true = start_bare(tmp_path, "python", script).finish()
    forked = fork_bare(tmp_path, "python", script).finish()

    assert (forked.exit_code, forked.stdout) == (true.exit_code, true.stdout)
    assert forked.stderr == true.stderr


def test_what_asks_for_a_new_interpreter_gets_one(tmp_path: Path) -> None:
    code = "import sys; print(sys.flags.dont_write_bytecode, sys.flags.isolated)\n"
    script = write(tmp_path / "x.py", code)
    written = fork_bare(tmp_path, "python", script, PYTHONDONTWRITEBYTECODE="1").finish()
    isolated = fork_bare(tmp_path, "python", "-I", script).finish()
    elsewhere = fork_bare(tmp_path, sys.executable, script).finish()

    assert [done.stdout for done in (written, isolated, elsewhere)] == [
        b"1 0\n",
        b"0 1\n",
        b"0 0\n",
    ]


# -- torchrun

LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

RANK = """\
import json, os, sys, time
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if "fail" in sys.argv and rank == 1:
    sys.exit(3)
if "fail" in sys.argv:
    time.sleep(600)
seen = {k: v for k, v in os.environ.items() if "RANK" in k or "WORLD" in k or "RESTART" in k}
said = json.dumps([rank, dist.get_world_size(), sys.argv, seen], sort_keys=True)
os.write(1, f"{said}\\n".encode())  # at once: the ranks share the pipe
dist.barrier()
"""


@pytest.mark.slow("torchrun and two ranks import torch")
def test_forked_ranks_see_what_torchrun_would_tell_them(tmp_path: Path) -> None:
    command = (sys.executable, *LAUNCHER, write(tmp_path / "rank.py", RANK), "--lr", "3")
    true = start_bare(tmp_path, *command).finish()
    forked = fork_bare(tmp_path, *command).finish()

    assert (true.exit_code, forked.exit_code) == (0, 0), true.stderr + forked.stderr
    said = [sorted(done.stdout.splitlines()) for done in (true, forked)]
    assert len(said[0]) == 2
    assert said[0] == said[1]


def test_a_forked_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    command = (sys.executable, *LAUNCHER, write(tmp_path / "rank.py", RANK), "fail")
    assert fork_bare(tmp_path, *command).finish().exit_code == 1
