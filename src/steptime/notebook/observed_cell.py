"""One run of a cell: the folder of a run, the guest in this process, and the report afterwards.

In: the text of a cell, and what is to be observed. Out: an `ObservedRun`. IPython runs the cell
between `begin` and `end`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.run.attempt import attempt
from steptime.app.run.beside_process import BesideProcess, start_beside_process
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run, create_run, write_value
from steptime.guest.late import Visit
from steptime.launch.origin import describe_run
from steptime.launch.values import CELL, CommandRecord, Survivors
from steptime.measure.values.model.profiled import FOLDER, ProfileWish
from steptime.record.live.process_identity import read_boot

if TYPE_CHECKING:
    from steptime.app.run.observed_run import ObservedRun

_RAISED = 1
_INTERRUPT = 2
"""SIGINT: what a kernel is sent when somebody interrupts a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """What to observe of a cell, and how closely.

    Attributes:
        words: the options as they were written.
        store: the folder that holds `.steptime`.
        profile: the profiler that runs around a few steps.
        peaks: dense peaks of the device that the user gives, by type [FLOP/s].
    """

    words: tuple[str, ...] = ()
    store: Path = Path(".")
    profile: ProfileWish | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)


class ObservedCell:
    """A cell that is about to run, runs, or has run. `notes` say what went wrong.

    Args:
        options: what to observe.
        text: the cell as it was written.
    """

    def __init__(self, options: CellOptions, *, text: str) -> None:
        self.options = options
        self.text = text
        self.notes: list[str] = []
        self._run: Run | None = None
        self._record: CommandRecord | None = None
        self._beside: BesideProcess | None = None
        self._visit: Visit | None = None

    def begin(self) -> None:
        """Make the run's folder and let the guest in. A failure leaves the cell unobserved."""
        with attempt(self.notes.append):
            self._run = run = self._make_run()
            with attempt(self.notes.append):
                self._beside = start_beside_process(run.folder, child_pid=os.getpid())
            wish = self.options.profile
            visit = Visit(str(run.folder), profile=None if wish is None else wish.variable)
            self._visit = visit
            visit.begin()

    def _make_run(self) -> Run:
        started_unix_s = time.time()
        run = create_run(self.options.store, started_unix_s=started_unix_s)
        record = describe_run(
            run.run_id,
            (CELL, *self.options.words),
            environment=dict(os.environ),
            started_unix_s=started_unix_s,
        )
        self._record = replace(
            record,
            child_pid=os.getpid(),
            profile=self.options.profile,
            peaks=dict(self.options.peaks) or None,
            script_hash=hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest(),
        )
        write_value(run, "command.json", self._record)
        if self.options.profile is not None:
            (run.folder / FOLDER).mkdir()
        return run

    def end(self, error: BaseException | None) -> ObservedRun | None:
        """Take the guest out again, measure, and save; None if the cell was not observed.

        Args:
            error: what ended the cell; None if it ran to its end.
        """
        try:
            with attempt(self.notes.append):
                if self._visit is not None:
                    self._visit.end(error)
        finally:
            num_failures = None
            with attempt(self.notes.append):
                if self._beside is not None:
                    num_failures = self._beside.stop()
                    self.notes += self._beside.notes
        with attempt(self.notes.append):
            return self._conclude(error, num_failures)
        return None

    def _conclude(
        self, error: BaseException | None, num_failures: int | None
    ) -> ObservedRun | None:
        run, record = self._run, self._record
        if run is None or record is None:
            return None
        end = _end_of(error)
        # No process outlives a cell: the kernel is nobody's survivor.
        record = replace(
            record,
            ended_unix_s=time.time(),
            exit_code=end.exit_code,
            signal=end.signal,
            num_sample_failures=num_failures,
            survivors=Survivors(boot=read_boot()),
        )
        write_value(run, "command.json", record)
        from steptime.app.run.run_end import RunEnd
        from steptime.app.stored.load import fold, save
        from steptime.app.stored.run_listing import add_to_index
        from steptime.measure.source.scan import write_source

        with attempt(self.notes.append):
            write_source(run.folder, cwd=record.cwd)
        if record.profile is not None:
            from steptime.measure.profile.profile_fold import pack_traces

            with attempt(self.notes.append):
                pack_traces(run.folder)
        observed = fold(run, RunEnd(end=end, ended_unix_s=record.ended_unix_s))
        with attempt(self.notes.append):
            save(observed)
            add_to_index(run)
        return observed


def _end_of(error: BaseException | None) -> ProcessEnd:
    """Return how a cell ended, in the words of a command."""
    if error is None:
        return ProcessEnd(state=RunState.FINISHED, exit_code=0)
    if isinstance(error, KeyboardInterrupt):
        return ProcessEnd(state=RunState.KILLED, signal=_INTERRUPT)
    return ProcessEnd(state=RunState.FAILED, exit_code=_RAISED)


def is_observed_already() -> bool:
    """Return whether this whole process runs under `steptime run`, which put the guest in."""
    return "_steptime" in sys.modules
