"""Finds the question of a run at a write, and lets the thread that steps answer it.

The recorder writes five times a second at most, or once a step where steps are longer; the question
is looked for then, which takes a call of the kernel. What examines the training begins and ends
where updates end, and the time that it takes is marked as disturbed.
"""

from __future__ import annotations

from collections.abc import Callable
from json import dumps
from time import perf_counter_ns
from time import time as unix_time
from typing import TYPE_CHECKING, Any, Protocol

from ...record import kinds
from ...record.live.questions import Question, stream_of
from ..timeline.recorder import Recorder
from .answer_files import Mark, mark_of, read_question, write_answer

if TYPE_CHECKING:
    from ..timeline.journal import Journal


class RefusedError(Exception):
    """A question cannot be answered now; the text is the reason, as a machine word."""


class Inquiry(Protocol):
    """Examines one update or a few of them, from update to update."""

    is_over: bool

    @property
    def is_recording(self) -> bool:
        """Whether updates take longer now, because they are examined."""

    def begin(self, journal: Journal) -> bool:
        """Begin with the update that begins here; return False if something is in the way.

        Raises:
            RefusedError: it will never be possible.
        """

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take the end of an update."""

    def result(self) -> dict[str, Any]:
        """Return the facts that were found.

        Raises:
            RefusedError: there are none.
        """

    def give_up(self) -> None:
        """Leave everything as it was: nobody waits any longer, or the process ends."""


class OpenQuestion:
    """A question under way in the thread that steps.

    Args:
        question: what is asked.
        inquiry: finds the answer.
        recorder: of this process.
        tell: takes the line for the record.
        clock: [s since 1970].
    """

    def __init__(
        self,
        question: Question,
        inquiry: Inquiry,
        recorder: Recorder,
        tell: Callable[[dict[str, Any]], None],
        clock: Callable[[], float] = unix_time,
    ) -> None:
        self.question = question
        self.inquiry = inquiry
        self.recorder = recorder
        self.tell = tell
        self.clock = clock
        self.has_begun = self.is_over = False
        self.is_taken_back = False
        self.began_ns: int | None = None  # when the first update that is examined began,
        self.first = 0  # and its number
        self.ended_ns: int | None = None  # when the last one ended,
        self.after = 0  # and the number of the one behind it

    def end_update(self, journal: Journal, optimizer: int) -> None:
        """Take the end of an update: begin, continue or answer."""
        try:
            if self.is_over or self.is_taken_back:
                self.end(None)
            elif self.has_begun:
                self.inquiry.end_update(journal, optimizer)
            elif journal.num_updates >= self.question.begin_at:
                self._begin(journal)
            self._note_time(journal)
            if not self.is_over and self.has_begun and self.inquiry.is_over:
                self._answer(journal, self.inquiry.result(), None)
        except RefusedError as refused:
            self._answer(journal, None, str(refused))
        except BaseException:
            self.recorder.fail("asked")
            self.end("failed")
        if self.is_over:
            journal.asked = None

    def _note_time(self, journal: Journal) -> None:
        """Note when updates began to be examined, and when that ended."""
        number = journal.num_updates - self._num_claimed(journal)
        if self.inquiry.is_recording:
            if self.began_ns is None:
                self.began_ns, self.first = perf_counter_ns(), number
            self.ended_ns = None
        elif self.began_ns is not None and self.ended_ns is None:
            self.ended_ns, self.after = perf_counter_ns(), number

    def end(self, missing: str | None) -> None:
        """End it early, with a reason; None: the question was taken back."""
        if self.is_over:
            return
        try:
            self.inquiry.give_up()
        except BaseException:
            self.recorder.fail("asked")
        self._answer(None, None, missing)

    def _begin(self, journal: Journal) -> None:
        if self.clock() > self.question.until_unix_s:
            self.end("too_late")
            return
        self.has_begun = self.inquiry.begin(journal)

    def _num_claimed(self, journal: Journal) -> int:
        """Return how many rows of backward calls belong to the optimizer's first update."""
        return self.recorder.num_by_hand if journal.has_stepped else 0

    def _answer(
        self, journal: Journal | None, facts: dict[str, Any] | None, missing: str | None
    ) -> None:
        """Write the answer, and say in the record which time it took."""
        self.is_over = True
        recorder, question = self.recorder, self.question
        ended_ns = perf_counter_ns() if self.ended_ns is None else self.ended_ns
        line: dict[str, Any] = {
            "k": kinds.ASKED,
            "what": question.what,
            "id": question.id,
            "missing": missing,
        }
        if self.began_ns is not None:
            line["t"] = [self.began_ns - recorder.zero_ns, ended_ns - recorder.zero_ns]
            if journal is not None:
                journal.disturb()  # the time it takes to write belongs to no step
        self.tell(line)
        if facts is None and missing is None:
            return  # nobody waits for it
        answer = {
            "id": question.id,
            "what": question.what,
            "pid": recorder.pid,
            "first": self.first,
            "num_updates": 0 if self.ended_ns is None else self.after - self.first,
            "missing": missing,
            "facts": facts,
        }
        try:
            write_answer(recorder.run, question.id, stream_of(recorder.path or ""), answer)
        except OSError:
            recorder.fail("asked")


class QuestionWatcher:
    """Looks for a question when the recorder writes; there is one at a time.

    Args:
        recorder: of this process.
        make: makes what answers a question.
    """

    place = "asked"

    def __init__(self, recorder: Recorder, make: Callable[[Question], Inquiry]) -> None:
        self.recorder = recorder
        self.make = make
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.mark: Mark | None = None
        self.asked: OpenQuestion | None = None
        self.lines: list[str] = []

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Take a new question or the end of one; return the lines on what was answered."""
        if is_last:
            if self.asked is not None:
                self.asked.end("ended")
        else:
            mark = mark_of(self.recorder.run)
            if mark != self.mark:
                self._take(mark)
        lines, self.lines = self.lines, []
        return "".join(lines)

    def _take(self, mark: Mark | None) -> None:
        question = None if mark is None else read_question(self.recorder.run)
        asked, path = self.asked, self.recorder.path
        if asked is not None and not asked.is_over:
            if question is None or question.id != asked.question.id:
                asked.is_taken_back = True  # the thread that steps ends it; then we look again
                return
            self.mark = mark
            return
        self.mark, self.asked = mark, None
        if question is None or not path or stream_of(path) not in question.streams:
            return
        # Of several threads that step, the one that made most updates is the training.
        journal = max(self.recorder.journals, key=lambda one: one.num_updates, default=None)
        if journal is not None:
            inquiry = self.make(question)
            self.asked = OpenQuestion(question, inquiry, self.recorder, self._tell)
            journal.asked = self.asked

    def _tell(self, line: dict[str, Any]) -> None:
        self.lines.append(dumps(line) + "\n")
