"""What stderr shows while something runs: one live line on a terminal, otherwise plain lines."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TextIO

from steptime.cli.output import is_quiet
from steptime.report.blocks.phrasing import shortened
from steptime.report.text.progress_text import (
    describe_containment,
    describe_ended,
    describe_note,
    live_line,
)
from steptime.tune.values.study_progress import StudyProgress

_CLEAR = "\r\x1b[K"


class OverwrittenLine:
    """One line that is overwritten on a terminal; it does not fail if stderr does."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file = None if is_quiet() else file
        self.is_live = _is_terminal(file) and os.environ.get("TERM") not in ("dumb", "")

    def show(self, text: str) -> None:
        """Show the line as it is now; do nothing if this is not a terminal."""
        if self.is_live:
            self._write(_CLEAR + shortened(text, shutil.get_terminal_size().columns - 1))

    def say(self, text: str) -> None:
        """Print a line of its own that stays."""
        self._write(f"{_CLEAR if self.is_live else ''}{text}\n")

    def say_plain(self, text: str) -> None:
        """Print a line if there is no live one."""
        if not self.is_live:
            self.say(text)

    def close(self) -> None:
        """Remove the live line."""
        if self.is_live:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        with suppress(OSError, ValueError):
            self._file.write(text)
            self._file.flush()


class ProgressPrinter:
    """Takes each `StudyProgress` and says what is new."""

    def __init__(self, file: TextIO | None) -> None:
        self._line = OverwrittenLine(file)
        self._said: set[str] = set()
        self._ended: set[int] = set()

    def __call__(self, progress: StudyProgress) -> None:
        """Say what is new."""
        if progress.tier is not None:
            self._say_once(
                describe_containment(progress.tier, progress.tier_reasons, progress.tier_lacks)
            )
        if progress.note is not None:
            self._say_once(describe_note(progress.note))
        ended = progress.ended
        if ended is not None and ended.number not in self._ended:
            self._ended.add(ended.number)
            self._line.say_plain(describe_ended(progress, ended))
        if self._line.is_live:
            width = shutil.get_terminal_size().columns
            self._line.show(live_line(progress, width=width - 1))

    def close(self) -> None:
        """Remove the live line."""
        self._line.close()

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._line.say(f"steptime: {text}")


def _is_terminal(file: TextIO | None) -> bool:
    try:
        return file is not None and file.isatty()
    except ValueError:  # closed
        return False
