"""The runs of a store: found by id, listed, and kept in the index.

In: a store. Out: a summary of what `core.store` wrote there. Files are the truth: a run that is in
no index is summarized from its folder.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from steptime.app.run.run_end import read_end
from steptime.app.stored import run_index
from steptime.core.process_end import ProcessEnd
from steptime.core.ranges import range_of
from steptime.core.store import Run, read_document, read_value
from steptime.diagnose.ailments.contention import is_of_machine
from steptime.diagnose.values.finding import Diagnosis
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.measure.values.run_summary import RunSummary
from steptime.report.words.run.advice import opening_findings

_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
_MAX_NEAR = 500  # newest ids that a wrong one is compared with: each takes 0.1 ms
_EMPTY_S = 86_400.0  # a training that was started elsewhere may wait in a queue, for some hours

T = TypeVar("T")


def find_run(store: Path, wanted: str) -> Run:
    """Return the run with this id or beginning of an id, the `last`, or `last~1` before it.

    Raises:
        NotFoundError: there is none, or several begin like this.
    """
    (found,) = find_runs(store, [wanted])
    return found


def find_runs(store: Path, wanted: Sequence[str]) -> list[Run]:
    """Return the runs of several such words; the store is listed once for all of them.

    Raises:
        NotFoundError: there is none of one of the words, or several begin like it.
    """
    run_ids = _run_ids(store)
    if not run_ids:
        hint = "Make one: steptime run -- python train.py"
        raise NotFoundError(f"there are no runs in {store}.", hint=hint)
    lasts = [_LAST.fullmatch(word) for word in wanted]
    rows = list_runs(store) if any(lasts) else ()
    return [
        _run(store, match_id(store, word, run_ids, what="run"))
        if last is None
        else _run(store, _nth_last(store, word, int(last[1] or 0), rows))
        for word, last in zip(wanted, lasts, strict=True)
    ]


def _nth_last(store: Path, wanted: str, number: int, runs: Sequence[RunSummary]) -> str:
    if number < len(runs):
        return runs[number].run_id
    hint = f"The oldest is last~{len(runs) - 1}." if len(runs) > 1 else "There is one: `last`."
    raise NotFoundError(f"there is no run `{wanted}` in {store}.", hint=hint)


def run_at(path: Path) -> Run:
    """Return the run whose folder this is, wherever it lies.

    Raises:
        NotFoundError: it is not a run folder.
    """
    if not os.path.isfile(path / "command.json"):
        hint = "A run folder is .steptime/runs/<run id>, with a file command.json in it."
        raise NotFoundError(f"`{path}` is no run folder.", hint=hint)
    folder = path.resolve()
    return Run(run_id=folder.name, folder=folder)


def is_run_id(name: str) -> bool:
    """Return whether a folder has the name of a run, a study or a fit."""
    return _RUN_ID.fullmatch(name) is not None


def match_id(
    store: Path, wanted: str, ids: Sequence[str], *, what: str, words: Sequence[str] = ("last",)
) -> str:
    """Return the id that is wanted, or the one that begins like this.

    Args:
        store: where they are, for the message.
        wanted: the id or the beginning of it.
        ids: all of them, sorted.
        what: what has these ids, `run or study or fit`; `words` may stand in the place of an id.

    Raises:
        NotFoundError: there is none, or several begin like this.
    """
    matches = list(takewhile(lambda i: i.startswith(wanted), ids[bisect_left(ids, wanted) :]))
    if len(matches) == 1 or matches[:1] == [wanted]:
        return matches[0]
    if matches:
        hint = f"Write more of it: {', '.join(matches[-3:])}."
        raise NotFoundError(f"{len(matches)} ids begin with `{wanted}`.", hint=hint)
    import difflib  # only a wrong id needs it

    near = difflib.get_close_matches(wanted, [*words, *ids[-_MAX_NEAR:]], n=3, cutoff=0.4)
    hint = f"Nearest: {', '.join(near)}." if near else "List them: steptime list"
    raise NotFoundError(f"there is no {what} `{wanted}` in {store}.", hint=hint)


def list_runs(store: Path) -> tuple[RunSummary, ...]:
    """Return all runs, newest first; add missing runs to the index, and remove deleted ones."""
    cached = run_index.read_rows(store / "index.sqlite")
    run_ids = _run_ids(store)
    rows = [cached.get(run_id) or summarize(_run(store, run_id)) for run_id in run_ids]
    new = [row for row in rows if row.run_id not in cached and is_settled(row)]
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
    """Put a run that has ended into the index; of one that goes on, the row would grow old."""
    row = summarize(run)
    if is_settled(row):
        run_index.write_rows(run.store / "index.sqlite", [row])


def summarize(run: Run) -> RunSummary:
    """Return what the run's files say, as far as they exist and are whole."""
    command = _read(run.folder / "command.json")
    measurement = _read(run.folder / "measurement.json")
    steady = _field(measurement, "steady", dict) or {}
    training = _field(measurement, "training", dict) or {}
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
        kind=_field(read_document(run.folder / "diagnosis.json"), "kind", str),
        opens_with=_find_opening(run),
        num_trainings=_field(training, "num_trainings", int),
    )


def _find_opening(run: Run) -> str | None:
    """Return what the report of a run opens with, where that is no bottleneck."""
    with suppress(OSError, DamagedRunError):
        return opening_of(read_value(run, "diagnosis.json", Diagnosis))
    return None


def opening_of(diagnosis: Diagnosis) -> str | None:
    """Return the cause of the finding that a report opens with, where that is no bottleneck."""
    first = next(iter(opening_findings(diagnosis)), None)
    if first is None or not (first.kind is None or is_of_machine(first)):
        return None
    return first.cause


def is_settled(row: RunSummary) -> bool:
    """Return whether nothing about the run will change: it ended, and was measured.

    A run without steps may get some for a day, from a training that was started elsewhere.
    """
    if not ProcessEnd(state=row.state).is_over or row.num_steps is None:
        return False
    return row.num_steps > 0 or time.time() - (row.started_unix_s or 0.0) > _EMPTY_S


def _run_ids(store: Path) -> list[str]:
    try:
        names = os.listdir(store / "runs")
    except OSError as error:
        raise StoreError(f"the store cannot be read: {error}") from error
    return sorted(name for name in names if is_run_id(name))


def _run(store: Path, run_id: str) -> Run:
    return Run(run_id=run_id, folder=store / "runs" / run_id)


def _read(path: Path) -> Mapping[str, object]:
    # `_field` checks the numbers that are taken: 10,000 runs have many others.
    return read_document(path, checks_numbers=False)


def _field(document: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    value = document.get(name)
    if isinstance(value, (int, float)):
        low, high = range_of(name)
        if not low <= value <= high:
            return None
        value = float(value) if kind is float else value
    return value if isinstance(value, kind) else None
