"""Waits for the answers to a question that was put to the processes of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from steptime.errors import DamagedRunError
from steptime.record.live.questions import Question
from steptime.report.words.run.answer_words import describe_waiting
from steptime.watch import asking
from steptime.watch.asking import Answer, AskedProcess

_POLL_S = 0.1
_GONE_S = 1.0
"""So long an answer may take to be seen after its process has ended."""


@dataclass(slots=True, kw_only=True)
class Heard:
    """What was heard of one process: its answer, or why there is none."""

    answer: Answer | None = None
    missing: str | None = None
    gone_at_s: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected."""
        return self.answer is not None or self.missing is not None


class Conversation:
    """A question, and what was heard so far; `clock` and `sleep` count in seconds."""

    def __init__(
        self,
        folder: Path,
        question: Question,
        processes: Sequence[AskedProcess],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._question = question
        self._processes = processes
        self._clock = clock
        self._sleep = sleep
        self._heard = [Heard() for _ in processes]

    def wait(self, timeout_s: float, show: Callable[[str], None]) -> list[Heard]:
        """Return what was heard when every process has answered or ended, or the time is over."""
        until_s = self._clock() + timeout_s
        while (left_s := until_s - self._clock()) > 0:
            for process, heard in zip(self._processes, self._heard, strict=True):
                self._listen(process, heard)
            num_over = sum(heard.is_over for heard in self._heard)
            if num_over == len(self._heard):
                break
            what, num = self._question.what, len(self._heard)
            show(describe_waiting(what, num_over, num, left_s=left_s))
            self._sleep(min(_POLL_S, left_s))
        for heard in self._heard:
            if not heard.is_over:
                heard.missing = "no_answer"
        return self._heard

    def _listen(self, process: AskedProcess, heard: Heard) -> None:
        if heard.is_over:
            return
        try:
            heard.answer = asking.read_answer(self._folder, self._question, process)
        except (DamagedRunError, OSError):
            heard.missing = "damaged"
        if heard.is_over or not process.is_gone:
            return
        now_s = self._clock()
        heard.gone_at_s = now_s if heard.gone_at_s is None else heard.gone_at_s
        if now_s - heard.gone_at_s >= _GONE_S:
            heard.missing = "process_ended"
