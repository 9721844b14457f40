"""The runs of a store: found by id, listed, and kept in the index.

In: a store. Out: a summary of what `core.store` wrote there. Files are the truth: a run that is in
no index is summarized from its folder.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from steptime.app import run_index
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.core.store import Run
from steptime.errors import NotFoundError, StoreError
from steptime.measure.values.run_summary import RunSummary

_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
_FRESH_S = 60.0  # a run writes once a second, less often on a loaded machine with many processes

T = TypeVar("T")


def find_run(store: Path, wanted: str) -> Run:
    """Return the run with this id or beginning of an id, the `last`, or `last~1` before it.

    Raises:
        NotFoundError: there is none, or several begin like this.
    """
    run_ids = _run_ids(store)
    if not run_ids:
        hint = "Make one: steptime run -- python train.py"
        raise NotFoundError(f"there are no runs in {store}.", hint=hint)
    if (found := _LAST.fullmatch(wanted)) is not None:
        return _run(store, _nth_last(store, wanted, int(found[1] or 0)))
    return _run(store, match_id(store, wanted, run_ids, what="run"))


def _nth_last(store: Path, wanted: str, number: int) -> str:
    runs = list_runs(store)
    if number < len(runs):
        return runs[number].run_id
    hint = f"The oldest is last~{len(runs) - 1}." if len(runs) > 1 else "There is one: `last`."
    raise NotFoundError(f"there is no run `{wanted}` in {store}.", hint=hint)


def run_at(path: Path) -> Run:
    """Return the run whose folder this is, wherever it lies.

    Raises:
        NotFoundError: it is not a run folder.
    """
    if not (path / "command.json").is_file():
        hint = "A run folder is .steptime/runs/<run id>, with a file command.json in it."
        raise NotFoundError(f"`{path}` is no run folder.", hint=hint)
    folder = path.resolve()
    return Run(run_id=folder.name, folder=folder)


_MANY = {"run": ("runs", "steptime runs"), "study": ("studies", "steptime study list")}


def match_id(store: Path, wanted: str, ids: Sequence[str], *, what: str) -> str:
    """Return the id of a `run` or `study` that is wanted, or the one that begins like this.

    Raises:
        NotFoundError: there is none, or several begin like this.
    """
    many, lister = _MANY[what]
    matches = [i for i in ids if i == wanted] or [i for i in ids if i.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        hint = f"Write more of it: {', '.join(matches[-3:])}."
        raise NotFoundError(f"{len(matches)} {many} begin with `{wanted}`.", hint=hint)
    import difflib  # only a wrong id needs it

    near = difflib.get_close_matches(wanted, ["last", *ids], n=3, cutoff=0.4)
    hint = f"Nearest: {', '.join(near)}." if near else f"List them: {lister}"
    raise NotFoundError(f"there is no {what} `{wanted}` in {store}.", hint=hint)


def list_runs(store: Path) -> tuple[RunSummary, ...]:
    """Return all runs, newest first; add missing runs to the index, and remove deleted ones."""
    cached = run_index.read_rows(store / "index.sqlite")
    run_ids = _run_ids(store)
    rows = [cached.get(run_id) or summarize(_run(store, run_id)) for run_id in run_ids]
    new = [row for row in rows if row.run_id not in cached and _is_settled(row)]
    if new:
        run_index.write_rows(store / "index.sqlite", new)
    gone = cached.keys() - set(run_ids)
    if gone:
        run_index.delete_rows(store / "index.sqlite", gone)
    return tuple(sorted(rows, key=lambda r: (r.started_unix_s or 0.0, r.run_id), reverse=True))


def reindex(store: Path) -> tuple[RunSummary, ...]:
    """Build the index again from the folders."""
    run_index.discard(store / "index.sqlite")
    return list_runs(store)


def add_to_index(run: Run) -> None:
    """Put a run that has ended into the index."""
    run_index.write_rows(run.store / "index.sqlite", [summarize(run)])


def summarize(run: Run) -> RunSummary:
    """Return what the run's files say, as far as they exist and are whole."""
    command = _read(run.folder / "command.json")
    measurement = _read(run.folder / "measurement.json")
    steady = _field(measurement, "steady", dict) or {}
    argv = _field(command, "argv", list) or []
    end = read_end(run)
    return RunSummary(
        run_id=run.run_id,
        started_unix_s=_field(command, "started_unix_s", float),
        command=tuple(str(word) for word in argv),
        state=end.state,
        exit_code=end.exit_code,
        signal=end.signal,
        num_steps=_field(measurement, "num_steps", int),
        step_time_s=_field(_field(steady, "step_time_s", dict) or {}, "estimate", float),
        kind=_field(_read(run.folder / "diagnosis.json"), "kind", str),
    )


def read_end(run: Run) -> ProcessEnd:
    """Return how the run's command ended, from `command.json`; it is running if files are fresh."""
    command = _read(run.folder / "command.json")
    code, number = _field(command, "exit_code", int), _field(command, "signal", int)
    if number is not None:
        return ProcessEnd(state=RunState.KILLED, signal=number)
    if code is not None:
        return ProcessEnd(state=RunState.FAILED if code else RunState.FINISHED, exit_code=code)
    pids = [_field(command, "parent_pid", int), _field(command, "child_pid", int)]
    is_running = _is_fresh(run.folder) and any(pid and _is_alive(pid) for pid in pids)
    return ProcessEnd(state=RunState.RUNNING if is_running else RunState.UNKNOWN)


def _is_settled(row: RunSummary) -> bool:
    """Return whether nothing about the run will change: it ended, and was measured."""
    has_ended = row.state not in (RunState.RUNNING, RunState.UNKNOWN)
    return has_ended and row.num_steps is not None


def _is_fresh(folder: Path) -> bool:
    """Return whether a file changed lately; a process id alone may now be another process."""
    try:
        newest = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
    except OSError:
        return False
    return abs(time.time() - newest) < _FRESH_S


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    # A dead process stays as a zombie if the first process of a container never waits for it.
    return not status.rpartition(b")")[2].lstrip().startswith(b"Z")


def _run_ids(store: Path) -> list[str]:
    try:
        names = os.listdir(store / "runs")
    except OSError as error:
        raise StoreError(f"the store cannot be read: {error}") from error
    return sorted(name for name in names if _RUN_ID.fullmatch(name))


def _run(store: Path, run_id: str) -> Run:
    return Run(run_id=run_id, folder=store / "runs" / run_id)


def _read(path: Path) -> Mapping[str, object]:
    """Return the object in a JSON file; it is empty if there is none of our schema."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(document, dict) and document.get("schema") == SCHEMA
    return document if is_ours else {}


def _field(document: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    value = document.get(name)
    return value if isinstance(value, kind) else None
