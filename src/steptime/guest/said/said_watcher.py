"""Notes what libraries say: each text once, with how often, in which updates and from which line.

In: calls from the hooks in `hear.py`. Out: lines `sd`, of which the last one counts. What the
script itself says is its own, and is not noted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from json import dumps
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...record import kinds
from ..sites.file_owners import USERS
from ..sites.frames import MAX_FRAMES

if TYPE_CHECKING:
    from ..frameworks.torch.torch_context import TorchContext

MAX_TEXTS = 50
"""Different texts that are kept; further ones are only counted."""

MAX_LENGTH = 600
"""Characters of a text: dynamo's longest message of several lines has fewer."""

DUE_NS = 2_000_000_000
MAX_DUE_NS = 64_000_000_000
"""A text that comes in each step is written less and less often: 50 of them are 30 kB."""

_DIGITS = re.compile(r"\d+")


class SaidWatcher:
    """Counts what was said, by who said it and by its text without the numbers in it."""

    place = "said"

    def __init__(self, context: TorchContext, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.context = context
        self.places = context.frames.places
        self.clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.rows: dict[tuple[Any, ...], list[Any]] = {}
        self.num_more = 0
        self.due_ns = 0
        self.wait_ns = DUE_NS
        self.is_new = self.has_changed = False

    def hear(self, channel: str, who: str, text: str, file: str, frame: FrameType | None) -> None:
        """Take a text.

        Args:
            channel: `warning` or `log`.
            who: the category of a warning, or the name of a logger.
            text: what was said.
            file: the file that said it.
            frame: of the thread that said it; None where only a registry tells.
        """
        text = " ".join(text[: 2 * MAX_LENGTH].split())[:MAX_LENGTH]
        key = (who, _DIGITS.sub("", text))
        update = None if frame is None else self._update()
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MAX_TEXTS:
                self.num_more += 1
                self.has_changed = True
                return
            line = self.line_of(frame)
            self.rows[key] = [channel, who, text, file, *line, 1, update, update]
            self.is_new = self.has_changed = True
        elif frame is not None:
            row[-3] += 1
            row[-1] = update
            self.has_changed = True

    def line_of(self, frame: FrameType | None) -> tuple[str, int] | tuple[None, None]:
        """Return the innermost line of the user's code from which this was reached."""
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            if self.is_users(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno
            frame = frame.f_back
        return None, None

    def is_users(self, file: str) -> bool:
        """Return whether a file is the user's own."""
        return self.places.owner(file) == USERS

    def _update(self) -> int:
        """Return how many updates the first thread has made."""
        journal = self.context.first_journal
        if journal is None:
            return 0
        resting = journal.resting
        unwritten = 0 if resting is None else resting.num_unwritten
        # Backward calls before the optimizer's first step have rows of their own.
        claimed = self.context.recorder.num_by_hand if journal.has_stepped else 0
        return max(0, int(journal.num_updates + unwritten - claimed))

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return all that was said so far, if something was said since the last line."""
        now = self.clock()
        if self.is_new:
            self.wait_ns = DUE_NS
            self.due_ns = min(self.due_ns, now + DUE_NS)
        if not self.has_changed or (now < self.due_ns and not is_last):
            return ""
        self.due_ns = now + self.wait_ns
        self.wait_ns = min(2 * self.wait_ns, MAX_DUE_NS)
        self.is_new = self.has_changed = False
        line = {"k": kinds.SAID, "rows": list(self.rows.values()), "more": self.num_more}
        return dumps(line) + "\n"

    def read_registries(self) -> None:
        """Add what was shown before the hooks were there: modules remember their warnings.

        They remember what was shown to nobody as well (`catch_warnings(record=True)`), so later
        ones are only heard.
        """
        for module in list(sys.modules.values()):
            space = getattr(module, "__dict__", {})
            file, known = space.get("__file__"), space.get("__warningregistry__")
            if type(file) is not str or type(known) is not dict or self.is_users(file):
                continue
            for key in list(known):
                if type(key) is tuple and len(key) == 3 and type(key[0]) is str:
                    self.hear("warning", getattr(key[1], "__name__", ""), key[0], file, None)
