"""Asking a run: who is asked, one question at a time, and what is made of the answers."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from steptime.app.run import attach as app_attach
from steptime.app.run.attach import ask_run
from steptime.app.run.conversation import Conversation
from steptime.cli import main
from steptime.core.store import Run
from steptime.errors import NotAnsweredError, NotFoundError, StoreError, UsageError
from steptime.measure.values.stall import StackFrame, StalledRank, ThreadStack
from steptime.record.live.process_identity import describe_own_process
from steptime.record.live.questions import ANSWERS, QUESTION, Question, parse_question
from steptime.report.blocks.run.answer_report import RunAnswer
from steptime.watch import asking
from steptime.watch.asking import AskedProcess, put_question, take_back
from unit.builders import Line, make_head, make_update, measure_lines, write_run
from unit.test_questions import make_question

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes and /proc as on Linux")

Capture = pytest.CaptureFixture[str]
RUN_ID = "20261120-101500-3fa2"
ME = {"pid": os.getpid(), **describe_own_process()}
GONE = {**ME, "started": 1}
ALL = ["memory", "count", "profile", "health"]

MEMORY_FACTS: dict[str, Any] = {
    "memory": {
        "moment": "update",
        "n": 12,
        "num_parameters": 1000,
        "num_trainable": 1000,
        "parts": {
            name: {"bytes": size, "num": 2, "by_dtype": {"fp32": size}, "by_device": {"cpu": size}}
            for name, size in (("weights", 4000), ("gradients", 4000), ("activations", 9000))
        },
        "kinds": [{"name": "AddmmBackward0", "bytes": 8000}],
        "optimizers": ["AdamW"],
    },
    "others_bytes": 204800,
    "others": [{"name": "fp32 [1000]", "bytes": 200000, "num": 50}],
    "resident_bytes": 250_000_000,
}
COUNT_LINE: dict[str, Any] = {
    "k": "count",
    "n": 12,
    "updates": 1,
    "optimizer": 0,
    "sizes": [64, 2048, 65536, 5, 0, 1386, 2048],
    "forward": 1200,
    "backward": 2400,
    "recomputed": 0,
    "macs": 1800,
    "by_dtype": {"fp32": 3600},
    "is_executed": True,
}


def make_run(
    folder: Path, *processes: Line, is_over: bool = False, answers: Sequence[str] | None = ALL
) -> Run:
    """A run of as many ranks, each 20 updates of 10 ms far."""
    now = time.time()
    files: dict[str, list[Line]] = {
        "processes.jsonl": [
            {"k": "torch", "t": now, "version": "2.13.0", **process} for process in processes
        ]
    }
    for rank, process in enumerate(processes):
        told = {} if answers is None else {"answers": list(answers)}
        shared = {"world_size": len(processes), "group": "g", "group_source": "store", "ppid": 1}
        head = make_head(t_unix_s=now, rank=rank, rank_source="distributed", **shared, **told)
        files[f"rank-{rank}.jsonl"] = [head | process, *map(make_update, range(20))]
    (folder / ".steptime" / "runs").mkdir(parents=True)
    place = folder / ".steptime" / "runs" / RUN_ID
    code = 0 if is_over else None
    write_run(place, files, exit_code=code, parent_pid=os.getpid(), started_unix_s=now)
    return Run(run_id=RUN_ID, folder=place)


def make_process(**fields: Any) -> AskedProcess:
    usual: dict[str, Any] = {
        "stream": "rank-0",
        "rank": 0,
        "pid": 101,
        "training": 1,
        "num_updates": 20,
        "usual_s": 0.01,
        "process": None,
        "answers": tuple(ALL),
    }
    return AskedProcess(**(usual | fields))


def answer_of(question: Question, **fields: Any) -> str:
    usual = {"id": question.id, "what": question.what, "pid": 101, "first": 30, "num_updates": 1}
    return json.dumps(usual | {"missing": None, "facts": None} | fields)


class Guest(threading.Thread):
    """Answers the first question in a run's folder as the processes would."""

    def __init__(self, run: Run, answer: Callable[[Question], dict[str, str]]) -> None:
        super().__init__(daemon=True)
        self.run_asked = run
        self.answer = answer
        self.question: Question | None = None
        self.start()

    def run(self) -> None:
        path = self.run_asked.folder / QUESTION
        for _ in range(3000):
            question = parse_question(path.read_bytes()) if path.exists() else None
            if question is not None:
                self.question = question
                folder = self.run_asked.folder / ANSWERS / question.id
                for stream, text in self.answer(question).items():
                    (folder / f"{stream}.part").write_text(text)
                    (folder / f"{stream}.part").rename(folder / f"{stream}.json")
                return
            time.sleep(0.01)


# -- one question at a time


def test_a_question_can_be_put_once_and_is_taken_back_with_its_answers(tmp_path: Path) -> None:
    question = make_question()
    put_question(tmp_path, question)
    assert parse_question((tmp_path / QUESTION).read_bytes()) == question
    with pytest.raises(NotAnsweredError, match="about its memory is under way"):
        put_question(tmp_path, make_question(id="f" * 16))
    assert [one.name for one in (tmp_path / ANSWERS).iterdir()] == [question.id]

    take_back(tmp_path, question)
    assert list(tmp_path.iterdir()) == []


def test_nobody_takes_back_the_question_of_another(tmp_path: Path) -> None:
    put_question(tmp_path, make_question())
    take_back(tmp_path, make_question(id="f" * 16))

    assert (tmp_path / QUESTION).exists()


@pytest.mark.parametrize("text", [make_question(until_unix_s=1.0).text, "{", ""])
def test_what_a_killed_asker_left_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / QUESTION).write_text(text)
    left = tmp_path / ANSWERS / ("a" * 16)
    left.mkdir(parents=True)
    (left / "rank-0.json").write_text("{}")
    question = make_question(id="f" * 16)
    put_question(tmp_path, question)

    assert parse_question((tmp_path / QUESTION).read_bytes()) == question
    assert [one.name for one in (tmp_path / ANSWERS).iterdir()] == [question.id]


def test_a_folder_that_cannot_be_written_is_told_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / ANSWERS).write_text("a file of somebody else")
    with pytest.raises(StoreError, match="no question can be put") as caught:
        put_question(tmp_path, make_question())

    assert "as the user who started it" in str(caught.value.hint)


def test_answers_are_not_expected_behind_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ("a" * 16)).mkdir(parents=True)
    (tmp_path / ANSWERS).symlink_to(elsewhere)
    with pytest.raises(StoreError):
        put_question(tmp_path, make_question())
    take_back(tmp_path, make_question(id="a" * 16))

    assert [one.name for one in elsewhere.iterdir()] == ["a" * 16]
    assert not (tmp_path / QUESTION).exists()


def test_a_question_is_not_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / QUESTION).symlink_to(elsewhere)
    put_question(tmp_path, make_question())

    assert not elsewhere.exists()
    assert not (tmp_path / QUESTION).is_symlink()


# -- who is asked


def test_ranks_begin_with_an_update_that_all_have_before_them() -> None:
    ranks = [make_process(num_updates=20), make_process(num_updates=23, stream="rank-1")]
    question = make_question_to(ranks, "count")

    assert question.begin_at >= 23 + 100  # a second of updates of 10 ms
    assert question.streams == ("rank-0", "rank-1")


@pytest.mark.parametrize(("num", "what"), [(1, "count"), (2, "memory")])
def test_nobody_waits_for_others_without_a_reason(num: int, what: str) -> None:
    assert make_question_to([make_process()] * num, what).begin_at == 0


def test_slow_steps_are_not_waited_for_longer_than_needed() -> None:
    ranks = [make_process(usual_s=30.0), make_process(usual_s=30.0)]

    assert make_question_to(ranks, "profile").begin_at == 22


def make_question_to(ranks: Sequence[AskedProcess], what: str) -> Question:
    return asking.make_question(ranks, what, num_steps=1, timeout_s=60.0)


def test_the_processes_that_step_are_found(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME, GONE)
    (found,) = asking.find_processes(run.folder)

    assert (found.stream, found.rank, found.num_updates) == ("rank-0", 0, 20)
    assert found.usual_s == pytest.approx(0.01)
    assert found.answers == tuple(ALL)
    assert not found.is_gone


@pytest.mark.parametrize(
    ("processes", "options", "error", "says"),
    [
        ([ME], {"is_over": True}, NotFoundError, "cannot be asked: it has ended"),
        ([GONE], {}, NotFoundError, "no process that makes steps"),
        ([ME], {"answers": None}, NotAnsweredError, "does not answer this question"),
        ([ME], {"answers": ["memory"]}, NotAnsweredError, "does not answer this question"),
    ],
)
def test_a_run_that_cannot_be_asked_says_why(
    tmp_path: Path,
    processes: list[Line],
    options: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    run = make_run(tmp_path, *processes, **options)
    if processes == [GONE]:
        (run.folder / "host.jsonl").write_text("")  # the command itself goes on
    with pytest.raises(error, match=says):
        ask_run(run, "count")
    assert not (run.folder / QUESTION).exists()


@pytest.mark.parametrize(
    ("what", "options", "says"),
    [
        ("weights", {}, "can be asked for"),
        ("profile", {"num_steps": 0}, "1 to 50 steps"),
        ("profile", {"num_steps": 51}, "1 to 50 steps"),
        ("health", {"num_steps": 1001}, "1 to 1000 steps"),
        ("memory", {"timeout_s": 0.0}, "above zero"),
        ("memory", {"timeout_s": float("nan")}, "above zero"),
    ],
)
def test_a_question_without_sense_is_refused(
    tmp_path: Path, what: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        ask_run(make_run(tmp_path, ME), what, **options)


def test_a_training_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="none has the number 4"):
        ask_run(make_run(tmp_path, ME), "memory", training=4)


# -- what is heard


def test_the_memory_of_a_rank_is_folded(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME)
    guest = Guest(run, lambda q: {"rank-0": answer_of(q, facts=MEMORY_FACTS)})
    answer = ask_run(run, "memory", timeout_s=30)

    assert guest.question is not None
    (rank,) = answer.ranks
    assert answer.is_whole
    assert (rank.rank, rank.first_update, rank.num_updates) == (0, 30, 1)
    assert rank.memory is not None
    assert rank.memory.anatomy.bytes_of("weights", "gradients") == 8000
    assert rank.memory.others[0].name == "fp32 [1000]"
    text = str(answer)
    assert "rank 0" in text
    assert "activations" in text
    assert "50 of fp32 [1000] 195 KiB" in text
    assert not (run.folder / QUESTION).exists()
    assert not (run.folder / ANSWERS).exists()


def test_the_work_of_a_step_is_that_of_its_updates(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME)
    Guest(run, lambda q: {"rank-0": answer_of(q, facts={"updates": [COUNT_LINE] * 2})})
    answer = ask_run(run, "count", timeout_s=30)

    count = answer.ranks[0].count
    assert count is not None
    assert count.flops == 7200
    assert count.step_time_s == pytest.approx(0.02)
    assert count.flops_per_s == pytest.approx(360_000)
    assert "rate" in str(answer)


def test_a_rank_that_refuses_says_why_and_the_others_are_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME, {**ME})
    facts = {"updates": [COUNT_LINE]}

    def reply(question: Question) -> dict[str, str]:
        refusal = answer_of(question, missing="compiled")
        return {"rank-0": answer_of(question, facts=facts), "rank-1": refusal}

    Guest(run, reply)
    answer = ask_run(run, "count", timeout_s=30)

    assert not answer.is_whole
    assert [one.missing for one in answer.ranks] == [None, "compiled"]
    assert "no answer  rank 1: the script compiles" in str(answer)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"id": 7}', '{"id": "a", "what": "memory", "pid": 1, "first": 0}'],
)
def test_a_damaged_answer_is_a_reason(tmp_path: Path, text: str) -> None:
    run = make_run(tmp_path, ME)
    Guest(run, lambda _: {"rank-0": text})

    assert ask_run(run, "memory", timeout_s=30).ranks[0].missing == "damaged"


def test_facts_of_another_shape_are_damage(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME)
    Guest(run, lambda q: {"rank-0": answer_of(q, facts={"memory": 7, "others_bytes": 1})})

    assert ask_run(run, "memory", timeout_s=30).ranks[0].missing == "damaged"


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_who_does_not_answer_in_time_is_told_how_long_it_took(tmp_path: Path) -> None:
    clock, shown = Clock(), list[str]()
    conversation = Conversation(
        tmp_path, make_question(), [make_process()], clock=clock, sleep=clock.sleep
    )
    (heard,) = conversation.wait(5.0, shown.append)

    assert heard.missing == "no_answer"
    assert clock.now == pytest.approx(5.0)
    assert shown[0].endswith("0 of 1 rank answered · 5 s left")


def test_a_process_that_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskedProcess, "is_gone", property(lambda _: True))
    clock = Clock()
    conversation = Conversation(
        tmp_path, make_question(), [make_process()], clock=clock, sleep=clock.sleep
    )
    (heard,) = conversation.wait(60.0, lambda _: None)

    assert heard.missing == "process_ended"
    assert clock.now < 3


def test_ranks_that_end_no_step_are_shown_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, ME)
    frame = StackFrame(function="main", file="/p/train.py", line=40)
    stack = ThreadStack(pid=os.getpid(), thread="MainThread", is_main=True, frames=(frame,))
    stuck = StalledRank(
        rank=0,
        pid=os.getpid(),
        num_steps=20,
        waits_in="sleep",
        where="train.py:40",
        stacks=(stack,),
    )
    probed = RunAnswer(run_id=run.run_id, what="stacks", asked_unix_s=0.0, stacks=(stuck,))
    monkeypatch.setattr(app_attach, "take_stacks", lambda run, training: probed)
    answer = ask_run(run, "memory", timeout_s=0.2)

    assert answer.ranks[0].missing == "no_answer"
    assert "no answer  rank 0: no step ended in time" in str(answer)
    assert "rank 0 sleeps at train.py:40" in str(answer)
    assert not (run.folder / QUESTION).exists()


def test_ctrl_c_takes_the_question_back(tmp_path: Path) -> None:
    run = make_run(tmp_path, ME)

    def interrupt(_: str) -> None:
        assert (run.folder / QUESTION).exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_run(run, "memory", show=interrupt)
    assert not (run.folder / QUESTION).exists()
    assert not (run.folder / ANSWERS).exists()


# -- the command


def test_the_command_prints_the_answer(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path, ME)
    Guest(run, lambda q: {"rank-0": answer_of(q, facts=MEMORY_FACTS)})

    assert main.main(["attach", "last", "--memory", "--store", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("rank 0     update 30")
    assert err == ""


def test_the_document_of_a_refusal_is_partial(tmp_path: Path, capsys: Capture) -> None:
    run = make_run(tmp_path, ME)
    Guest(run, lambda q: {"rank-0": answer_of(q, missing="compiled")})

    assert main.main(["attach", "last", "--count", "--json", "--store", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["status"], document["exit_code"]) == ("partial", 1)
    assert document["errors"][0]["code"] == "not_answered"
    assert document["data"]["ranks"][0]["missing"] == "compiled"
    assert "1 of 1 ranks gave no answer" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--memory", "--count"], "--memory and --count were given"),
        (["--memory", "--timeout", "soon"], "--timeout must be a time"),
        (["--profile", "0"], "1 to 50 steps"),
        (["--health", "0"], "1 to 1000 steps"),
        (["--profile", "many"], "must be a whole number"),
    ],
)
def test_a_wrong_command_line_is_told_in_a_sentence(
    tmp_path: Path, capsys: Capture, words: list[str], says: str
) -> None:
    make_run(tmp_path, ME)

    assert main.main(["attach", "last", *words, "--store", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err


# -- the report afterwards


def test_the_report_names_the_steps_that_were_examined() -> None:
    ns = 10_000_000
    asked = {"k": "asked", "what": "memory", "id": "a", "missing": None}
    m = measure_lines(
        *map(make_update, range(40)),
        asked | {"t": [12 * ns + 5, 13 * ns + 5]},
        asked | {"missing": "compiled"},
    )

    (steps,) = m.asked
    assert (steps.what, steps.first_step, steps.last_step) == ("memory", 12, 13)
