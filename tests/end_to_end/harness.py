"""Starts commands bare and under `steptime run`, and reads what is left of them."""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from end_to_end.forked import ForkedJob, can_ask, can_fork
from rotation import FAST
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
SPECIMENS = HERE.parent / "specimens"
STEPTIME = (sys.executable, "-m", "steptime")
"""The same where the extra for pages is not installed: to draw one takes two seconds."""
EVERYWHERE = "num_threads,fused_optimizer,autocast"
"""Levers of which some apply on any processor with two cores: a study has something to try."""
LIMIT_S = 300
LONGEST_FOLDER = 107 - len("/pymp-abcdefgh/listener-abcdefgh")
"""Of temporary files: a socket's path has 107 characters, and multiprocessing puts one below it."""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes and /proc as on Linux")


def has_gpu() -> bool:
    """Whether torch has a CUDA device here; torch is asked only where there is a driver."""
    has_driver = any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))
    if not has_driver or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that has ended; `document` is the JSON envelope, None for a bare run."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    document: Mapping[str, Any] | None = None

    @property
    def data(self) -> Mapping[str, Any]:
        assert self.document is not None, self.stderr.decode()
        return by_name(self.document["data"])

    @property
    def notes(self) -> dict[str, Mapping[str, str]]:
        return {note["code"]: note["facts"] for note in self.data["notes"]}


def by_name(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run's document as the tests ask for it: the measurement, with phases and spans by name.

    Beside it is what was concluded; another document stays as it is.
    """
    if "measurement" not in data:
        return data.get("study", data)
    seen = data["measurement"]
    ranks = [{**rank, "phases": _observed(rank["phases"])} for rank in seen["ranks"]]
    return {
        **data,
        **seen,
        "ranks": ranks,
        "phases": _observed(seen["phases"]),
        "phases_missing": {p["name"]: p["missing"] for p in seen["phases"] if p["missing"]},
        "memory": seen["memory"]
        and {
            **seen["memory"],
            **data["memory_fit"],
            "parts": {part["name"]: part for part in seen["memory"]["parts"]},
        },
        "spans": dict.fromkeys(SPANS) | {span["name"]: span for span in seen["spans"]},
    }


def _observed(phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = {phase["name"]: phase for phase in phases if phase["median_s"] is not None}
    return dict.fromkeys((*PHASES, *INNER_PHASES)) | found


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The tests' own, cleaned; this Python first on PATH, a temporary folder and a home apart."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    for name in ("tmp", "home"):
        (folder / name).mkdir(exist_ok=True, parents=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own |= {"TMPDIR": _short(folder / "tmp"), "HOME": str(folder / "home"), "PATH": path}
    return own | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"} | variables


@functools.cache
def _short(folder: Path) -> str:
    """The folder by a name with room for a socket's below it; the same one each time.

    A loader's worker that cannot make one loses its batch, and the script waits forever. Where the
    environment differs, a study is another one.
    """
    if len(str(folder)) <= LONGEST_FOLDER:
        return str(folder)
    links, started_by = tempfile.mkdtemp(prefix="st."), os.getpid()
    atexit.register(lambda: os.getpid() != started_by or shutil.rmtree(links))
    (link := Path(links, "tmp")).symlink_to(folder)
    return str(link)


class Job:
    """A started command in a session of its own; killed with all its children when let go."""

    def __init__(self, folder: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        self.folder = folder
        self.process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def finish(self) -> Done:
        """Wait for the end."""
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        finally:
            self.kill_group()
        return Done(
            exit_code=self.process.returncode,
            stdout=out,
            stderr=err,
            document=_document(self.folder),
        )

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left and let go of the pipes."""
        self.kill_group()
        self.process.communicate()


def start_bare(folder: Path, *command: str | Path, **variables: str) -> Job:
    """The command as it is."""
    return Job(folder, [str(word) for word in command], environment(folder, **variables))


def start_observed(
    folder: Path, *command: str | Path, options: Sequence[str] = (), **variables: str
) -> Job:
    """The command under `steptime run`; its envelope goes to result.json in the folder."""
    words = [*STEPTIME, "run", "--json", str(folder / "result.json"), *options, "--"]
    words += [str(word) for word in command]
    return Job(folder, words, environment(folder, **variables))


def run_truly(
    folder: Path, *command: str | Path, options: Sequence[str] = (), **variables: str
) -> Done:
    """The same, waited for."""
    return start_observed(folder, *command, options=options, **variables).finish()


def run_observed(
    folder: Path, *command: str | Path, options: Sequence[str] = (), **variables: str
) -> Done:
    """The same; in the fast check a fork where that will do, as in `run_forked`."""
    run = run_forked if is_fast() else run_truly
    return run(folder, *command, options=options, **variables)


def run_both_truly(folder: Path, *command: str | Path, **variables: str) -> tuple[Done, Done]:
    """Bare in folder/bare and observed in folder/observed, side by side."""
    return _both_ended(
        start_bare(folder / "bare", *command, **variables),
        start_observed(folder / "observed", *command, **variables),
    )


def run_both(folder: Path, *command: str | Path, **variables: str) -> tuple[Done, Done]:
    """The same; in the fast check forks where they will do."""
    run = run_both_forked if is_fast() else run_both_truly
    return run(folder, *command, **variables)


def _both_ended(*jobs: Job | Fork) -> tuple[Done, Done]:
    try:
        bare, observed = [job.finish() for job in jobs]
    finally:
        for job in jobs:
            job.close()
    return bare, observed


def is_fast() -> bool:
    """Whether this is the fast check, where forks stand in for the processes of `--all`."""
    return FAST in os.environ


# -- the same from a process that has torch in memory, where launching is not what is tested


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A command that the fork server started."""

    folder: Path
    job: ForkedJob

    def finish(self) -> Done:
        """Wait for the end."""
        code, out, err = self.job.communicate(LIMIT_S)
        return Done(exit_code=code, stdout=out, stderr=err, document=_document(self.folder))

    def close(self) -> None:
        """Kill what is left."""
        self.job.close()


def fork_bare(folder: Path, *command: str | Path, **variables: str) -> Fork | Job:
    """The command as it is; a true process where a fork will not do (`forked.py` says when)."""
    env = environment(folder, **variables)
    words = [str(word) for word in command]
    if not can_fork(words, env, folder):
        return Job(folder, words, env)
    return Fork(folder=folder, job=ForkedJob(words, env, folder, is_observed=False))


def fork_observed(
    folder: Path, *command: str | Path, options: Sequence[str] = (), **variables: str
) -> Fork | Job:
    """The command under `steptime run` with these options, likewise.

    Steptime itself is a fork also where the command is none.
    """
    env = environment(folder, **variables)
    words = [str(word) for word in command]
    ours = ["run", "--json", str(folder / "result.json"), *options, "--", *words]
    if not can_ask(env):
        return Job(folder, [*STEPTIME, *ours], env)
    forks_script = can_fork(words, env, folder)
    job = ForkedJob(["steptime", *ours], env, folder, is_observed=True, forks_script=forks_script)
    return Fork(folder=folder, job=job)


def run_forked(
    folder: Path, *command: str | Path, options: Sequence[str] = (), **variables: str
) -> Done:
    """The same, waited for."""
    return fork_observed(folder, *command, options=options, **variables).finish()


def run_both_forked(folder: Path, *command: str | Path, **variables: str) -> tuple[Done, Done]:
    """Bare in folder/bare and observed in folder/observed, side by side."""
    return _both_ended(
        fork_bare(folder / "bare", *command, **variables),
        fork_observed(folder / "observed", *command, **variables),
    )


def ask_steptime(folder: Path, *words: str | Path, **variables: str) -> Done:
    """A command of Steptime's that starts no script, `show` say, as a fork where that will do."""
    env = environment(folder, **variables)
    if not can_ask(env):
        return Job(folder, [*STEPTIME, *map(str, words)], env).finish()
    job = ForkedJob(["steptime", *map(str, words)], env, folder, is_observed=True)
    code, out, err = job.communicate(LIMIT_S)
    return Done(exit_code=code, stdout=out, stderr=err)


def _document(folder: Path) -> Mapping[str, Any] | None:
    path = folder / "result.json"
    return json.loads(path.read_bytes()) if path.exists() else None


def show(folder: Path, run: str = "last") -> Mapping[str, Any]:
    """What `steptime show` says of a run."""
    done = ask_steptime(folder, "show", run, "--json")
    assert done.exit_code == 0, done.stderr.decode()
    return by_name(json.loads(done.stdout)["data"])


def run_folder(folder: Path) -> Path:
    """The one run in the folder's store."""
    (found,) = (folder / ".steptime" / "runs").iterdir()
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of the run folder; those cut short are left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def updates(path: Path) -> list[list[int]]:
    """The rows of all optimizer updates in a stream, without those of backward calls before."""
    found = [row for line in rows(path) if line["k"] == "u" for row in line["rows"]]
    return [row for row in found if row[2] >= 0]


def wait_until(is_so: Callable[[], object], *, limit_s: float = 60) -> None:
    """Wait until something is so; it is polled, because another process makes it so."""
    until = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def names_in(script: str, tuple_name: str) -> list[str]:
    """The names in a tuple of functions of a script, read without importing it."""
    tree = ast.parse((SCRIPTS / script).read_text())
    return list(_names(tree, tuple_name))


def _names(tree: ast.Module, tuple_name: str) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == tuple_name:
            assert isinstance(node.value, ast.Tuple)
            yield from (ast.unparse(item) for item in node.value.elts)
