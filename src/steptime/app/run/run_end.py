"""How a run ended, or that a training of it goes on after its command has returned.

In: the folder of a run. Out: a `RunEnd`. A training in the background has no parent: its last
line says that it has ended, and a kill is seen when somebody asks for the run. Whoever sees the end
writes it into `command.json`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run, read_document, read_value, write_value
from steptime.errors import SteptimeError
from steptime.launch.values import CommandRecord, Survivor, Survivors
from steptime.measure.values.outliving import OutlivingProcess, ProcessState
from steptime.record import files
from steptime.record.live.process_identity import read_boot
from steptime.watch.host.training_processes import (
    Sighting,
    TrainingProcess,
    age_s,
    find_marked,
    is_there,
    name_again,
    read_training_processes,
    sight,
)

COMMAND = "command.json"

_FRESH_S = 60.0  # a run writes once a second, less often on a loaded machine with many processes
_STARTING_S = 15.0
"""Beside a training that stepped, a Python without torch may be another one that starts: its
imports take no longer, as they were read before. An older one is something else, such as a
TensorBoard that was left running."""

_LATE_S = 10.0
"""A process that wrote so long after the command's end has outlived it; the clocks of machines that
share a disk may differ by some seconds."""

_UNLOOKED_S = 86_400.0
"""If survivors were not looked for at the end, they are looked for within a day. Folders of older
versions all lack them, and a store may hold thousands."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended, as far as is known now.

    `processes` outlived the command and may still train; `ended_unix_s` is None while the run has
    not ended, or if that is not known.
    """

    end: ProcessEnd
    processes: tuple[OutlivingProcess, ...] = ()
    ended_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """What is left of a command that has returned."""

    trainings: tuple[tuple[TrainingProcess, Sighting], ...]
    others: tuple[Survivor, ...]


def look_for_survivors(run: Run, record: CommandRecord) -> Survivors:
    """Return the processes that are left of a command that has just ended, on this machine."""
    boot = read_boot()
    left = _look(run, Survivors(boot=boot), since_unix_s=record.started_unix_s, is_first=True)
    names = {one.pid: one.name for one in left.others}
    trainings = [
        Survivor(pid=one.pid, name=names.get(one.pid, ""), started=one.started)
        for one, seen in left.trainings
        if seen is Sighting.ALIVE
    ]
    known = {one.pid for one in trainings}
    others = [one for one in _which_may_train(left, record.exit_code) if one.pid not in known]
    return Survivors(boot=boot, processes=(*trainings, *others))


def read_end(run: Run) -> ProcessEnd:
    """Return how the run ended, or that it runs."""
    return look_at_end(run).end


def look_at_end(run: Run) -> RunEnd:
    """Return how a run ended; if a training outlived its command, this looks whether it is over."""
    command = read_document(run.folder / COMMAND)
    code, number = _field(command, "exit_code", int), _field(command, "signal", int)
    if code is None and number is None:
        return RunEnd(end=_without_end(run, command))
    if number is not None:
        end = ProcessEnd(state=RunState.KILLED, signal=number)
    else:
        end = ProcessEnd(state=RunState.FAILED if code else RunState.FINISHED, exit_code=code)
    ended_unix_s = _field(command, "ended_unix_s", float)
    known = _read_survivors(command)
    if known is None:
        is_old = time.time() - (ended_unix_s or 0.0) > _UNLOOKED_S
        if is_old or _field(command, "started_unix_s", float) is None:
            return RunEnd(end=end, ended_unix_s=ended_unix_s)
    elif not known.processes and not _grew_after(run.folder, ended_unix_s):
        return RunEnd(end=end, ended_unix_s=ended_unix_s)
    elif known.ended_unix_s is not None and not _grew_after(run.folder, known.ended_unix_s):
        return RunEnd(end=_outlived(end, known), ended_unix_s=known.ended_unix_s)
    return _look_again(run, command, end, known)


def _grew_after(folder: Path, ended_unix_s: float | None) -> bool:
    """Return whether a process stepped after the end: one that was started elsewhere, perhaps."""
    if ended_unix_s is None:
        return False
    late_s = ended_unix_s + _LATE_S
    with suppress(OSError):
        return any(path.stat().st_mtime > late_s for path in folder.glob(files.RANKS))
    return False


def _without_end(run: Run, command: Mapping[str, object]) -> ProcessEnd:
    """Return whether a run without an end still runs: nobody may be left to write its end."""
    pids = [_field(command, "parent_pid", int), _field(command, "child_pid", int)]
    is_running = _is_fresh(run.folder) and any(pid and is_alive(pid) for pid in pids)
    return ProcessEnd(
        state=RunState.RUNNING if is_running or _trains(run.folder) else RunState.UNKNOWN
    )


def _trains(folder: Path) -> bool:
    """Return whether a training of the run is alive here, though it may be silent for a while."""
    try:
        return any(sight(one) is Sighting.ALIVE for one in read_training_processes(folder))
    except OSError:
        return False


def _look_again(
    run: Run, command: Mapping[str, object], end: ProcessEnd, known: Survivors | None
) -> RunEnd:
    since_unix_s = _field(command, "started_unix_s", float) or 0.0
    is_here = _is_here(command)
    survivors = known or Survivors()
    try:
        left = _look(run, survivors, since_unix_s=since_unix_s, is_first=known is None)
    except (OSError, SteptimeError):
        return RunEnd(end=end)  # the record cannot be read; whoever measures the run says why
    ended_unix_s = _field(command, "ended_unix_s", float) or since_unix_s
    left = _without_strangers(left, is_here=is_here, late_s=ended_unix_s + _LATE_S)
    left = replace(left, others=_which_may_train(left, end.exit_code))
    processes = _describe(left, survivors)
    state = _state_of(left, run.folder)
    if state is not None:
        return RunEnd(end=replace(end, state=state), processes=processes)
    if not is_here and not any(seen is Sighting.GONE for _, seen in left.trainings):
        # What was left there had not trained yet, and cannot be seen from here.
        return RunEnd(end=replace(end, state=RunState.UNKNOWN), processes=processes)
    pids = {one.pid for one in survivors.processes}
    after = [one for one, _ in left.trainings if one.wrote_unix_s > ended_unix_s or one.pid in pids]
    found = replace(
        survivors,
        ended_unix_s=max([ended_unix_s, *(one.wrote_unix_s for one in after)]),
        has_failed=any(one.has_failed for one in after),
        was_cut_short=any(not one.has_ended for one in after),
    )
    _keep(run, found)
    return RunEnd(end=_outlived(end, found), ended_unix_s=found.ended_unix_s)


def _look(run: Run, known: Survivors, *, since_unix_s: float, is_first: bool) -> _Left:
    """Return what is left now; the whole machine is searched if nothing else was found."""
    trainings = tuple((one, sight(one)) for one in read_training_processes(run.folder))
    # One that has written its last line may need a moment to go.
    ended = {(one.pid, one.started) for one, seen in trainings if seen is Sighting.GONE}
    others = [name_again(one) for one in known.processes if is_there(one, boot=known.boot)]
    lives = any(seen is Sighting.ALIVE for _, seen in trainings)
    if is_first or not (others or lives):
        others = list(find_marked(run.folder.absolute(), since_unix_s=since_unix_s))
    others = [one for one in others if (one.pid, one.started) not in ended]
    return _Left(trainings=trainings, others=tuple(others))


def _without_strangers(left: _Left, *, is_here: bool, late_s: float) -> _Left:
    """Leave out what cannot be seen from here, and did not write after the command had ended.

    On another machine, a process that left by `os._exit` looks like one that goes on.
    """
    trainings = tuple(
        (one, seen)
        for one, seen in left.trainings
        if seen is not Sighting.ELSEWHERE or one.wrote_unix_s > late_s
    )
    return _Left(trainings=trainings, others=left.others if is_here else ())


def _state_of(left: _Left, folder: Path) -> RunState | None:
    """Return the state of a run of which something may be left; None if it is over."""
    sightings = {seen for _, seen in left.trainings}
    if Sighting.ALIVE in sightings:
        return RunState.STILL_TRAINING
    if left.others:
        return RunState.RUNNING
    if Sighting.ELSEWHERE in sightings:
        return RunState.STILL_TRAINING if _is_fresh(folder) else RunState.UNKNOWN
    return None


def _which_may_train(left: _Left, exit_code: int | None) -> tuple[Survivor, ...]:
    """Return which processes without torch may still train.

    After a command that failed there are none: its loader workers may need a moment to go. If it
    has trained, or used torch to its end, only a Python that starts may train as well.
    """
    if exit_code != 0:
        return ()
    has_trained = any(one.has_stepped or one.has_ended for one, _ in left.trainings)
    return tuple(filter(_may_start, left.others)) if has_trained else left.others


def _may_start(one: Survivor) -> bool:
    """Return whether a process may be a training that starts."""
    is_young = one.started is not None and age_s(one.started) < _STARTING_S
    return is_young and one.name.startswith("python")


def _describe(left: _Left, known: Survivors) -> tuple[OutlivingProcess, ...]:
    """Return the processes that may still train: those with torch, or else all others."""
    names = {one.pid: one.name for one in (*known.processes, *left.others) if one.name}
    found = [
        OutlivingProcess(
            pid=one.pid,
            state=ProcessState.RUNNING if seen is Sighting.ALIVE else ProcessState.UNKNOWN,
            is_training=True,
            name=names.get(one.pid),
            host=one.host if seen is Sighting.ELSEWHERE else None,
        )
        for one, seen in left.trainings
        if seen is not Sighting.GONE
    ]
    return tuple(found) or tuple(
        OutlivingProcess(
            pid=one.pid, state=ProcessState.RUNNING, is_training=False, name=names.get(one.pid)
        )
        for one in left.others
    )


def _outlived(end: ProcessEnd, survivors: Survivors) -> ProcessEnd:
    """Return the end of a run whose training outlived the command; its exit code nobody saw."""
    if end.state is not RunState.FINISHED:
        return end
    if survivors.has_failed:
        return ProcessEnd(state=RunState.FAILED)
    return ProcessEnd(state=RunState.KILLED) if survivors.was_cut_short else end


def _keep(run: Run, found: Survivors) -> None:
    """Write down that a run is over; a store that cannot be written is asked again."""
    with suppress(OSError, SteptimeError, ValueError):
        record = read_value(run, COMMAND, CommandRecord)
        write_value(run, COMMAND, replace(record, survivors=found))


# -- reading


def _read_survivors(command: Mapping[str, object]) -> Survivors | None:
    raw = command.get("survivors")
    if raw is None:
        return None
    from steptime.core.codec import from_json  # few runs need it, and it takes 12 ms

    try:
        return from_json(Survivors, raw, where=COMMAND)
    except SteptimeError:
        return None


def _is_here(command: Mapping[str, object]) -> bool:
    """Return whether the command was started on this machine."""
    machine = _field(command, "machine", dict) or {}
    here = hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:16]
    return machine.get("hostname_hash") in (here, None)


def _is_fresh(folder: Path) -> bool:
    """Return whether a file changed lately; a process id alone may now be another process."""
    try:
        newest = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
    except OSError:
        return False
    return abs(time.time() - newest) < _FRESH_S


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
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


def _field(document: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    value = document.get(name)
    return value if isinstance(value, kind) else None
