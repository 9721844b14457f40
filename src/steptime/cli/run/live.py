"""The live line of `steptime run --live`: on the terminal, never among the script's own output.

The command may hold no descriptor of this terminal, because their output would be mixed up.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from steptime.cli.output import tell
from steptime.diagnose.ailments.ranks.desynced import describe_desync
from steptime.measure.wall.rank_progress import RankProgress
from steptime.measure.wall.stall_file import desync_in
from steptime.record import files
from steptime.record.lines import LineReader
from steptime.report.text.live_text import Pace, live_line

_TERMINAL = "/dev/tty"
_CLEAR = "\r\x1b[K"
_INTERVAL_S = 1.0
_WIDTH = 80  # used if the terminal does not tell its width


def why_no_line(outputs: Sequence[int] = (1, 2)) -> str | None:
    """Say why no live line can be shown, or return None; this is asked before the command starts.

    No one can know what the command does with its descriptors: one that leads to a terminal counts
    as
    written to, and the reader of a pipe may write there (`tee`). Only files are safe.
    """
    elsewhere = "Send its output to a file: steptime run --live -- ... > train.log 2>&1"
    if os.environ.get("TERM", "dumb") == "dumb":
        return "this terminal cannot overwrite a line (see the variable TERM)."
    if any(map(_is_terminal, outputs)):
        return f"the command may write to this terminal as well. {elsewhere}"
    if not all(map(_is_file, outputs)):
        return f"the command writes to a pipe, which may end in this terminal. {elsewhere}"
    try:
        os.close(os.open(_TERMINAL, os.O_WRONLY | os.O_NOCTTY))
    except OSError:
        return "there is no terminal."
    return None


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _is_file(descriptor: int) -> bool:
    """Return whether the descriptor is a file or the null device, or is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return True  # closed
    if stat.S_ISREG(found.st_mode):
        return True
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev


class Troubles:
    """Says once on stderr that numbers became infinite or NaN, and how ranks lost each other."""

    def __init__(
        self, folder: Path, newest: Callable[[], Sequence[Sequence[RankProgress]]]
    ) -> None:
        self._newest = newest
        self._told: set[int] = set()
        self._stalls = LineReader(folder / files.STALLS)

    def show(self) -> float:
        """Say what is new; return the time until it is due again [s]."""
        for number, ranks in enumerate(self._newest(), start=1):
            bad = [rank.bad_update for rank in ranks if rank.bad_update is not None]
            if bad and number not in self._told:
                self._told.add(number)
                of = f" of training {number}" if number > 1 else ""
                tell(f"the loss or the gradients{of} are not finite in update {min(bad):,}.")
        for line in self._stalls.read():
            if (found := desync_in(line)) is not None:
                tell(f"the ranks stand still: {describe_desync(found)}.")
        return _INTERVAL_S

    def clear(self) -> None:
        """Print what has come since; earlier lines stay."""
        self.show()


class RunLine:
    """Shows how far the run is; if the terminal goes away, this does not fail."""

    def __init__(
        self, folder: Path, newest: Callable[[], Sequence[Sequence[RankProgress]]]
    ) -> None:
        self._newest = newest
        self._troubles = Troubles(folder, newest)
        # Writing never waits for a terminal that was stopped (Ctrl-S).
        self._terminal = os.open(_TERMINAL, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        self._began_s = time.monotonic()
        self._host = LineReader(folder / files.HOST)
        self._cores: tuple[float | None, int | None] = (None, None)

    def show(self) -> float:
        """Show the line again; return the time until it is due again [s]."""
        for row in self._host.read():
            job, num = self._cores
            self._cores = (row.get("job_cores", job), row.get("num_cores", num))
        self._troubles.show()
        self._write(live_line(self._pace(time.monotonic()), width=self._width()))
        return _INTERVAL_S

    def clear(self) -> None:
        """Remove the line when the command has ended."""
        self._troubles.clear()
        # The terminal stays open: if nobody else holds it, closing it would hang up on our report.
        self._write("")

    def _pace(self, now_s: float) -> Pace:
        elapsed_s, (job_cores, num_cores) = now_s - self._began_s, self._cores
        trainings = self._newest()
        if not trainings:
            return Pace(elapsed_s=elapsed_s, job_cores=job_cores, num_cores=num_cores)
        going = [ranks for ranks in trainings if not all(rank.has_ended for rank in ranks)]
        stepped = (going or trainings)[-1]
        last = min(stepped, key=lambda rank: rank.num_updates)
        return Pace(
            training=trainings.index(stepped) + 1 if len(trainings) > 1 else None,
            num_beside=max(0, len(going) - 1),
            elapsed_s=elapsed_s,
            num_updates=last.num_updates,
            usual_s=last.usual_s,
            silent_s=now_s - last.seen_s,
            num_ranks=len(stepped),
            job_cores=job_cores,
            num_cores=num_cores,
        )

    def _width(self) -> int:
        with suppress(OSError):
            return (os.get_terminal_size(self._terminal).columns or _WIDTH) - 1
        return _WIDTH - 1

    def _write(self, text: str) -> None:
        """Write only in the foreground: a terminal may stop a background job that writes."""
        with suppress(OSError):
            if os.tcgetpgrp(self._terminal) == os.getpgrp():
                os.write(self._terminal, (_CLEAR + text).encode())
