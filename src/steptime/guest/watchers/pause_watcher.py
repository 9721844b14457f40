"""Writes the long collections of garbage; `timeline/gc_pauses.py` counts and times all of them."""

from __future__ import annotations

from json import dumps

from ...record import kinds
from ..timeline.recorder import Recorder


class PauseWatcher:
    """Writes a `gc` line where there were long collections."""

    place = "pauses"

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def reset(self) -> None:
        """Do nothing: the recorder resets the pauses themselves."""

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return a line with the long collections since the last line."""
        pauses = self.recorder.pauses
        failure, pauses.failure = pauses.failure, None
        if failure is not None:
            raise failure
        found = pauses.take_long()
        if not found:
            return ""
        zero_ns = self.recorder.zero_ns
        rows = [[began - zero_ns, ns, generation] for began, ns, generation in found]
        return dumps({"k": kinds.PAUSES, "rows": rows}) + "\n"
