"""Ends a run that is doomed, and tells somebody of findings, while the command runs.

In: what the user wants, and judgements of the run so far. Out: a `StoppedRun`; a process of the
user's for each new finding. What fails here is a note, and never harms the run.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run.run_end import is_alive
from steptime.app.run.run_judge import Judge, JudgedFinding, Judgement
from steptime.app.run.stop_wish import StopWish
from steptime.core.codec import encode
from steptime.core.process_end import RunState
from steptime.measure.values.stopped import StoppedRun
from steptime.record.live.process_identity import descendants
from steptime.record.regular_file import MAX_DOCUMENT_BYTES, open_regular

if TYPE_CHECKING:
    from steptime.measure.values.run_summary import RunSummary

GRACE_S = 30.0
"""From SIGTERM to SIGKILL: a trainer that saves its state at SIGTERM writes some GB in it."""

FIRST_S = 10.0
SHARE = 20.0
"""A judgement is followed by twenty times its CPU time without one: 5 % of a core at most. After a
first suspicion, the second judgement comes soon."""

TELL_S = 30.0
"""The time that `--on-finding` has for one finding."""

MAX_TOLD = 20
LOG = "on-finding.log"


class Stopper:
    """Judges a run again and again; `take` is called when it is due.

    A fault has to be there in two judgements, one after the other: numbers that come back doom
    nothing. A stall has to be there once, for it lasted ten times the usual step already.
    """

    def __init__(
        self,
        folder: Path,
        wish: StopWish,
        *,
        root_pid: int,
        note: Callable[[str], None],
        past: Callable[[], RunSummary | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._wish, self._root = folder, wish, root_pid
        self._note, self._past, self._clock = note, past, clock
        self._judge = Judge(folder)
        self._began_s = 0.0
        self._suspect: str | None = None
        self._told: set[str] = set()
        self._tellers: list[tuple[subprocess.Popen[bytes], float]] = []
        self._pids: list[int] = []
        self._kill_s: float | None = None
        self.stopped: StoppedRun | None = None

    def take(self) -> float:
        """Do what is due; return the time until the next call [s]."""
        self._end_late_tellers()
        if self._kill_s is not None:
            return self._kill_when_due()
        if not self._judge.is_busy:
            self._began_s = _children_s()
            self._judge.start()
            return 0.5
        found = self._judge.take()
        if found is None:
            return 0.5
        self.consider(found)
        is_settled = self._suspect is None
        return max(FIRST_S, SHARE * (_children_s() - self._began_s)) if is_settled else FIRST_S

    def consider(self, found: Judgement) -> None:
        """Tell of new findings, and end the run if one of them is what the user named."""
        for one in found.findings if found.num_steps else ():
            self._tell(one, found)
        if found.num_steps < self._wish.after_steps:
            return
        doomed = next((one for one in found.findings if one.stops in self._wish.on), None)
        before, self._suspect = self._suspect, None if doomed is None else doomed.cause
        if doomed is not None and (doomed.stops == "stall" or before == doomed.cause):
            self.stopped = self._describe(doomed, found)
            self._terminate()

    def _describe(self, one: JudgedFinding, found: Judgement) -> StoppedRun:
        """Say what ended the run, what was lost until then, and what the end saves."""
        wasted = None if one.first_update is None else max(0, found.num_steps - one.first_update)
        of_steps = None if wasted is None or found.step_s is None else wasted * found.step_s
        past = self._past()
        total = None if past is None else past.num_steps
        left = None if total is None else max(0, total - found.num_steps)
        return StoppedRun(
            reason=one.stops or "",
            cause=one.cause,
            finding=one.text,
            num_steps=found.num_steps,
            wasted_steps=wasted,
            wasted_s=of_steps if one.lasted_s is None else one.lasted_s,
            left_steps=left,
            left_s=None if left is None or found.step_s is None else left * found.step_s,
        )

    # -- ending it

    def _terminate(self) -> None:
        self._pids = _tree(self._root)
        self._kill_s = self._clock() + GRACE_S
        self._suspect = None
        _send(signal.SIGTERM, [self._root])

    def _kill_when_due(self) -> float:
        assert self._kill_s is not None
        if self._clock() < self._kill_s:
            return 0.5
        self._kill()
        return GRACE_S

    def _kill(self) -> None:
        self._pids = list(dict.fromkeys([*self._pids, *_tree(self._root)]))
        left = [pid for pid in self._pids if is_alive(pid)]
        if left and self.stopped is not None:
            self.stopped = replace(self.stopped, signal="SIGKILL")
        _send(signal.SIGKILL, left)

    def finish(self) -> StoppedRun | None:
        """End what is left when the command has ended: a shell leaves its child behind."""
        self._judge.stop()
        if self._wish.tell:
            self._judge.start()
            for one in (found := self._judge.wait(TELL_S)).findings:
                self._tell(one, found)
        if self.stopped is not None:
            left = [pid for pid in self._pids[1:] if is_alive(pid)]
            _send(signal.SIGTERM, left)
            until_s = self._clock() + GRACE_S
            while any(map(is_alive, left)) and self._clock() < until_s:
                time.sleep(0.05)
            if any(map(is_alive, left)):
                self._kill()
        for process, until_s in self._tellers:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until_s - self._clock()))
        self._end_late_tellers(is_last=True)
        return self.stopped

    def give_up(self) -> None:
        """Leave no process of ours behind, whatever went wrong."""
        self._judge.stop()
        self._end_late_tellers(is_last=True)

    # -- telling somebody

    def _tell(self, one: JudgedFinding, found: Judgement) -> None:
        if not self._wish.tell or one.cause in self._told or len(self._told) >= MAX_TOLD:
            return
        self._told.add(one.cause)
        place = self._folder / f"finding-{len(self._told)}.json"
        try:
            place.write_text(encode(replace(found, findings=(one,))), encoding="utf-8")
            with (
                open_regular(place, max_bytes=MAX_DOCUMENT_BYTES) as file,
                (self._folder / LOG).open("ab") as log,
            ):
                process = subprocess.Popen(
                    self._wish.tell,
                    stdin=file,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, ()),  # noqa: PLW1509
                )
        except OSError as error:
            self._note(f"--on-finding {self._wish.tell[0]} could not be started: {error}")
            return
        self._tellers.append((process, self._clock() + TELL_S))

    def _end_late_tellers(self, *, is_last: bool = False) -> None:
        going = []
        for process, until_s in self._tellers:
            code = process.poll()
            if code is None and self._clock() < until_s and not is_last:
                going.append((process, until_s))
            elif code is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self._note(f"--on-finding took longer than {TELL_S:.0f} s and was ended")
            elif code:
                self._note(f"--on-finding ended with exit code {code}; see {self._folder / LOG}")
        self._tellers = going


def last_finished(runs: tuple[RunSummary, ...], command: tuple[str, ...]) -> RunSummary | None:
    """Return the newest run of a command that came to its own end."""
    same = (one for one in runs if one.command == command and one.state is RunState.FINISHED)
    return next((one for one in same if one.num_steps), None)


def _children_s() -> float:
    """Return the CPU time of our ended children [s]; the command is not one of them yet."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(root: int) -> list[int]:
    """Return a process and all below it."""
    return [root, *descendants(root)]


def _send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
