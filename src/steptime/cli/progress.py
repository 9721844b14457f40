"""What a study says on stderr while it runs: one live line on a terminal, else plain lines."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TextIO

from steptime.core.progress import Progress
from steptime.report.progress import describe_ended, describe_note, describe_tier, live_line

_CLEAR = "\r\x1b[K"


class Teller:
    """Takes each `Progress` and says what is new; a stderr that fails is no reason to fail."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._is_live = _is_terminal(file) and os.environ.get("TERM") not in ("dumb", "")
        self._said: set[str] = set()
        self._ended: set[int] = set()

    def __call__(self, progress: Progress) -> None:
        """Say what is new."""
        if progress.tier is not None:
            self._say_once(describe_tier(progress.tier, progress.tier_reasons))
        if progress.note is not None:
            self._say_once(describe_note(progress.note, dict(progress.facts)))
        ended = progress.ended
        if ended is not None and ended.number not in self._ended:
            self._ended.add(ended.number)
            if not self._is_live:
                self._write(describe_ended(progress, ended) + "\n")
        if self._is_live:
            width = shutil.get_terminal_size().columns
            self._write(_CLEAR + live_line(progress, width=width - 1))

    def close(self) -> None:
        """Take the live line away."""
        if self._is_live:
            self._write(_CLEAR)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            clear = _CLEAR if self._is_live else ""
            self._write(f"{clear}steptime: {text}\n")

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        with suppress(OSError, ValueError):
            self._file.write(text)
            self._file.flush()


def _is_terminal(file: TextIO | None) -> bool:
    try:
        return file is not None and file.isatty()
    except ValueError:  # closed
        return False
