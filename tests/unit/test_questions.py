"""How a process finds a question at a write, answers it between two steps, and lets go of it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from steptime.guest.asked.answer_files import mark_of, write_answer
from steptime.guest.asked.question_watcher import QuestionWatcher, RefusedError
from steptime.record.live.questions import (
    ANSWERS,
    MAX_ANSWER_BYTES,
    QUESTION,
    Question,
    is_question_id,
    parse_question,
    stream_of,
)

ID = "0123456789abcdef"
FAR = 4e9
"""Nobody stops waiting before the tests are over [s since 1970]."""


def make_question(**fields: Any) -> Question:
    usual: dict[str, Any] = {
        "id": ID,
        "what": "memory",
        "num_steps": 1,
        "begin_at": 0,
        "until_unix_s": FAR,
        "streams": ("rank-0",),
    }
    return Question(**(usual | fields))


@dataclass
class FakeRecorder:
    run: str
    path: str | None = "rank-0.jsonl"
    pid: int = 101
    zero_ns: int = 0
    num_by_hand: int = 0
    journals: list[Any] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def fail(self, place: str) -> None:
        self.failures.append(place)


@dataclass
class FakeJournal:
    num_updates: int = 0
    has_stepped: bool = True
    asked: Any = None
    disturbed: list[int] = field(default_factory=list)

    def disturb(self) -> None:
        self.disturbed.append(self.num_updates)


class FakeInquiry:
    """Examines two updates."""

    def __init__(self) -> None:
        self.is_over = self.is_recording = False
        self.must_wait = self.begins_late = False
        self.seen: list[int] = []
        self.num_given_up = 0
        self.fails_at: str | None = None
        self.refuses_at: str | None = None

    def _pass(self, word: str) -> None:
        if self.fails_at == word:
            raise ValueError(word)
        if self.refuses_at == word:
            raise RefusedError("compiled")

    def begin(self, journal: FakeJournal) -> bool:
        self._pass("begin")
        self.is_recording = not (self.must_wait or self.begins_late)
        return not self.must_wait

    def end_update(self, journal: FakeJournal, optimizer: int) -> None:
        self._pass("end_update")
        self.seen.append(journal.num_updates)
        self.is_over = len(self.seen) == 2 + self.begins_late
        self.is_recording = not self.is_over

    def result(self) -> dict[str, Any]:
        self._pass("result")
        return {"found": self.seen}

    def give_up(self) -> None:
        self.num_given_up += 1
        self._pass("give_up")


class Process:
    """A process whose updates and writes come when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = FakeJournal()
        self.recorder = FakeRecorder(str(folder), journals=[self.journal])
        self.inquiries: list[FakeInquiry] = []
        self.lines: list[dict[str, Any]] = []
        self.watcher = QuestionWatcher(self.recorder, self._make)  # type: ignore[arg-type]
        self.prepare = lambda inquiry: None

    def _make(self, question: Question) -> FakeInquiry:
        inquiry = FakeInquiry()
        self.prepare(inquiry)
        self.inquiries.append(inquiry)
        return inquiry

    def ask(self, **fields: Any) -> Question:
        question = make_question(**fields)
        (self.folder / ANSWERS / question.id).mkdir(parents=True)
        (self.folder / QUESTION).write_text(question.text)
        return question

    def write(self, *, is_last: bool = False) -> None:
        text = self.watcher.poll(0, is_last=is_last)
        self.lines += [json.loads(line) for line in text.splitlines()]

    def update(self, num: int = 1) -> None:
        for _ in range(num):
            self.journal.num_updates += 1
            if self.journal.asked is not None:
                self.journal.asked.end_update(self.journal, 0)

    def answer(self, question_id: str = ID) -> dict[str, Any] | None:
        path = self.folder / ANSWERS / question_id / "rank-0.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


# -- the question


def test_a_question_survives_being_written() -> None:
    question = make_question(streams=("rank-0", "rank-1-77"), begin_at=12)

    assert parse_question(question.text.encode()) == question


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"id": "../../elsewhere"},
        {"id": 7},
        {"what": "weights"},
        {"num_steps": 0},
        {"num_steps": 10_000},
        {"what": "profile", "num_steps": 51},
        {"begin_at": 1.5},
        {"until_unix_s": "soon"},
        {"streams": [1]},
        {"streams": None},
    ],
    ids=str,
)
def test_anything_else_is_no_question(change: dict[str, Any]) -> None:
    found = json.loads(make_question().text) | change

    assert parse_question(json.dumps(found).encode()) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_half_a_question_is_none(text: bytes) -> None:
    assert parse_question(text) is None


def test_names_of_streams_and_questions() -> None:
    assert stream_of("/runs/a/rank-3-77.jsonl") == "rank-3-77"
    assert is_question_id(ID)
    assert not is_question_id("..")


# -- an answer


def test_a_process_answers_between_updates_and_writes_what_it_took(process: Process) -> None:
    process.update(4)
    process.ask()
    process.write()
    process.update(5)
    process.write()

    (inquiry,) = process.inquiries
    assert inquiry.seen == [6, 7]
    answer = process.answer()
    assert answer is not None
    assert (answer["first"], answer["num_updates"]) == (5, 2)
    assert (answer["missing"], answer["facts"]) == (None, {"found": [6, 7]})
    (line,) = process.lines
    assert (line["k"], line["what"], line["missing"]) == ("asked", "memory", None)
    assert line["t"][0] <= line["t"][1]
    assert process.journal.disturbed == [7]
    assert process.journal.asked is None


def test_backward_calls_before_the_first_update_are_no_updates(process: Process) -> None:
    process.recorder.num_by_hand = 2
    process.update(4)
    process.ask()
    process.write()
    process.update(5)

    answer = process.answer()
    assert answer is not None
    assert (answer["first"], answer["num_updates"]) == (3, 2)


def test_one_question_is_answered_once(process: Process) -> None:
    process.ask()
    for _ in range(4):
        process.write()
        process.update(3)

    assert len(process.inquiries) == 1


def test_a_second_question_is_another_one(process: Process) -> None:
    process.ask()
    process.write()
    process.update(3)
    process.ask(id="f" * 16)
    process.write()
    process.update(3)

    assert len(process.inquiries) == 2
    assert process.answer("f" * 16) is not None


def test_the_time_before_something_is_examined_is_not_told(process: Process) -> None:
    process.prepare = lambda inquiry: setattr(inquiry, "begins_late", True)
    process.ask()
    process.write()
    process.update(6)

    answer = process.answer()
    assert answer is not None
    assert (answer["first"], answer["num_updates"]) == (2, 2)


def test_only_those_who_are_named_answer(process: Process) -> None:
    process.ask(streams=("rank-1",))
    process.write()
    process.update(5)

    assert process.inquiries == []


def test_ranks_begin_with_the_update_that_all_have_before_them(process: Process) -> None:
    process.ask(begin_at=6)
    process.write()
    process.update(9)

    assert process.inquiries[0].seen == [7, 8]


def test_something_in_the_way_is_waited_for(process: Process) -> None:
    process.prepare = lambda inquiry: setattr(inquiry, "must_wait", True)
    process.ask()
    process.write()
    process.update(5)
    assert process.inquiries[0].seen == []
    process.inquiries[0].must_wait = False
    process.update(3)

    assert process.inquiries[0].seen == [7, 8]


def test_the_thread_that_steps_most_answers(process: Process) -> None:
    other = FakeJournal(num_updates=50)
    process.recorder.journals.append(other)
    process.ask()
    process.write()

    assert (process.journal.asked, other.asked is None) == (None, False)


def test_before_the_first_update_nobody_answers(process: Process) -> None:
    process.recorder.journals = []
    process.ask()
    process.write()

    assert process.inquiries == []


# -- no answer


@pytest.mark.parametrize("where", ["begin", "end_update", "result"])
def test_a_refusal_is_an_answer_with_its_reason(process: Process, where: str) -> None:
    process.prepare = lambda inquiry: setattr(inquiry, "refuses_at", where)
    process.ask()
    process.write()
    process.update(5)
    process.write()

    answer = process.answer()
    assert answer is not None
    assert (answer["missing"], answer["facts"]) == ("compiled", None)
    assert ("t" in process.lines[0]) is (where != "begin")
    assert process.recorder.failures == []


@pytest.mark.parametrize("where", ["begin", "end_update", "result"])
def test_a_failure_is_counted_and_reaches_nobody(process: Process, where: str) -> None:
    process.prepare = lambda inquiry: setattr(inquiry, "fails_at", where)
    process.ask()
    process.write()
    process.update(5)

    answer = process.answer()
    assert answer is not None
    assert answer["missing"] == "failed"
    assert process.recorder.failures == ["asked"]
    assert process.inquiries[0].num_given_up == 1
    assert process.journal.asked is None


def test_a_question_that_is_taken_back_is_left_alone(process: Process) -> None:
    process.ask()
    process.write()
    process.update(2)
    (process.folder / QUESTION).unlink()
    process.write()
    process.update(3)

    assert process.inquiries[0].num_given_up == 1
    assert process.answer() is None
    assert process.journal.asked is None


def test_after_one_that_was_taken_back_the_next_is_answered(process: Process) -> None:
    process.ask()
    process.write()
    process.update(2)
    process.ask(id="f" * 16)
    process.write()  # the first is taken back
    process.update(1)
    process.write()  # the second is found
    process.update(3)

    assert process.answer() is None
    assert process.answer("f" * 16) is not None


def test_a_question_whose_time_is_over_is_not_begun(process: Process) -> None:
    process.ask(until_unix_s=1.0)
    process.write()
    process.update(5)

    answer = process.answer()
    assert answer is not None
    assert answer["missing"] == "too_late"
    assert process.inquiries[0].seen == []


def test_a_process_that_ends_says_so(process: Process) -> None:
    process.ask()
    process.write()
    process.update(2)
    process.write(is_last=True)

    answer = process.answer()
    assert answer is not None
    assert answer["missing"] == "ended"
    assert process.inquiries[0].num_given_up == 1
    assert process.lines[-1]["missing"] == "ended"


def test_a_forked_child_forgets_the_question(process: Process) -> None:
    process.ask()
    process.write()
    process.watcher.reset()

    assert process.watcher.asked is None


# -- a folder that is not as it should be


def test_a_question_of_another_user_is_none(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.ask()
    path = process.folder / QUESTION
    real = os.lstat

    def lstat(name: Any) -> os.stat_result:
        found = list(real(name))
        found[4] = os.geteuid() + 7
        return os.stat_result(found)

    assert mark_of(str(process.folder)) is not None
    monkeypatch.setattr(os, "lstat", lstat)
    assert path.exists()
    assert mark_of(str(process.folder)) is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_question_that_is_no_file_is_passed_over(process: Process, make: Any) -> None:
    make(process.folder / QUESTION)
    process.write()
    process.update(3)

    assert process.inquiries == []
    assert process.recorder.failures == []


def test_a_large_file_is_no_question(process: Process) -> None:
    (process.folder / QUESTION).write_bytes(b" " * (1 << 20))
    process.write()

    assert process.inquiries == []


def test_where_the_folder_for_answers_is_gone_nothing_is_written(process: Process) -> None:
    process.ask()
    (process.folder / ANSWERS / ID).rmdir()
    process.write()
    process.update(5)

    assert list((process.folder / ANSWERS).iterdir()) == []
    assert process.recorder.failures == []


def test_no_answer_goes_through_a_link(process: Process, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    process.ask()
    (process.folder / ANSWERS / ID).rmdir()
    (process.folder / ANSWERS / ID).symlink_to(elsewhere)
    process.write()
    process.update(5)

    assert list(elsewhere.iterdir()) == []
    assert process.recorder.failures == ["asked"]


def test_an_answer_that_is_too_large_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / ANSWERS / ID).mkdir(parents=True)
    write_answer(str(tmp_path), ID, "rank-0", {"facts": "x" * MAX_ANSWER_BYTES, "missing": None})

    found = json.loads((tmp_path / ANSWERS / ID / "rank-0.json").read_text())
    assert found == {"facts": None, "missing": "too_large"}
