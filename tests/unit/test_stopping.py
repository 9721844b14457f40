"""A doomed run is ended, and whoever wants to know of a finding is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from steptime.app.run import stopping
from steptime.app.run.run_judge import JudgedFinding, Judgement, judge
from steptime.app.run.stop_wish import StopWish
from steptime.app.run.stopping import Stopper, last_finished
from steptime.cli.run.stop_options import checksum_level, stop_wish
from steptime.core.process_end import RunState
from steptime.diagnose.diagnosis import diagnose
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.errors import UsageError
from steptime.measure.values.run_summary import RunSummary
from steptime.measure.values.stopped import StoppedRun
from steptime.report.blocks.run.stopped_blocks import stopped_blocks
from steptime.report.document.run_document import run_envelope
from unit.builders import make_measurement

BAD = JudgedFinding(
    cause="non_finite", severity="critical", text="NaN.", stops="non_finite", first_update=40
)
FLAT = JudgedFinding(cause="loss_flat", severity="warning", text="flat.", stops="no_learning")
HANG = JudgedFinding(
    cause="stall", severity="critical", text="it hangs.", stops="stall", lasted_s=90.0
)


def judged(*findings: JudgedFinding, num_steps: int = 100) -> Judgement:
    return Judgement(run_id="r", num_steps=num_steps, step_s=0.5, findings=findings)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a stopper; signals are noted and sent to nobody."""
    sent: list[tuple[int, tuple[int, ...]]] = []
    monkeypatch.setattr(stopping, "_send", lambda number, pids: sent.append((number, tuple(pids))))
    monkeypatch.setattr(stopping, "_tree", lambda root: [root, root + 1])
    notes: list[str] = []

    def make(wish: StopWish, past: RunSummary | None = None) -> SimpleNamespace:
        stopper = Stopper(
            tmp_path, wish, root_pid=7, note=notes.append, past=lambda: past, clock=lambda: 0.0
        )
        end = judged(HANG)  # what the last judgement finds
        stopper._judge = SimpleNamespace(
            stop=lambda: None,
            start=lambda: None,
            wait=lambda _: end,
            take=lambda: None,
            is_busy=True,
        )
        return SimpleNamespace(stopper=stopper, sent=sent, notes=notes, folder=tmp_path)

    return make


def test_a_fault_ends_the_run_when_it_is_there_twice(make):
    one = make(StopWish(on=("non_finite",)))
    one.stopper.consider(judged(BAD))
    assert (one.stopper.stopped, one.sent) == (None, [])
    one.stopper.consider(judged())
    one.stopper.consider(judged(BAD))
    assert one.stopper.stopped is None

    one.stopper.consider(judged(BAD, num_steps=120))
    assert one.sent == [(signal.SIGTERM, (7,))]
    found = one.stopper.stopped
    assert (found.reason, found.num_steps, found.wasted_steps, found.wasted_s) == (
        "non_finite",
        120,
        80,
        40.0,
    )
    assert found.left_steps is None


def test_a_stall_ends_it_at_once_and_the_last_run_says_what_was_left(make):
    past = RunSummary(
        run_id="p", started_unix_s=1.0, command=("a",), state=RunState.FINISHED, num_steps=300
    )
    one = make(StopWish(on=("stall", "non_finite")), past)
    one.stopper.consider(judged(HANG))

    found = one.stopper.stopped
    assert (found.reason, found.wasted_s, found.left_steps, found.left_s) == (
        "stall",
        90.0,
        200,
        100.0,
    )
    failed = replace(past, state=RunState.FAILED)
    assert last_finished((failed, past, past), ("a",)) is past
    assert last_finished((past,), ("b",)) is None


def test_nothing_ends_before_the_step_that_the_user_names_nor_for_another_word(make):
    one = make(StopWish(on=("non_finite",), after_steps=150))
    for _ in range(3):
        one.stopper.consider(judged(BAD, FLAT))
    assert one.stopper.stopped is None

    other = make(StopWish(on=("sense",)))
    for _ in range(3):
        other.stopper.consider(judged(BAD, FLAT, HANG))
    assert other.stopper.stopped is None


def test_each_finding_is_told_once_as_json_on_the_input(make):
    code = "import sys; open('told','a').write(sys.stdin.read() + '\\n')"
    one = make(StopWish(tell=(sys.executable, "-c", code.replace("told", "{}"))))
    wish = StopWish(tell=(sys.executable, "-c", code.replace("told", str(one.folder / "told"))))
    one = make(wish)
    one.stopper.consider(judged(BAD, num_steps=0))  # before the first step, nothing is known
    for _ in range(2):
        one.stopper.consider(judged(BAD, FLAT))
    for process, _ in one.stopper._tellers:
        process.wait()
    one.stopper.finish()

    lines = (one.folder / "told").read_text().splitlines()
    assert sorted(json.loads(line)["findings"][0]["cause"] for line in lines) == [
        "loss_flat",
        "non_finite",
        "stall",
    ]
    assert one.notes == []


@pytest.mark.parametrize(
    ("tell", "note"),
    [
        (("/no/such/command",), "could not be started"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "exit code 3"),
    ],
)
def test_a_command_that_fails_is_a_note_and_harms_nothing(make, tell, note):
    one = make(StopWish(tell=tell))
    one.stopper.consider(judged(BAD))
    for process, _ in one.stopper._tellers:
        process.wait()
    one.stopper._end_late_tellers()

    assert [note in text for text in one.notes] == [True]


def test_a_command_that_takes_too_long_is_ended(make):
    now = 0.0
    one = make(StopWish(tell=(sys.executable, "-c", "import time; time.sleep(600)")))
    one.stopper._clock = lambda: now
    one.stopper.consider(judged(BAD))
    now = 31.0
    one.stopper._end_late_tellers()

    assert "longer than 30 s" in one.notes[0]
    assert one.stopper._tellers == []


def test_what_is_left_after_the_grace_time_is_killed(make, monkeypatch):
    now = 0.0
    one = make(StopWish(on=("stall",)))
    one.stopper._clock = lambda: now
    one.stopper.consider(judged(HANG))
    monkeypatch.setattr(stopping, "is_alive", lambda pid: pid == 8)
    assert one.stopper.take() == 0.5
    now = 31.0
    one.stopper.take()

    assert one.sent == [(signal.SIGTERM, (7,)), (signal.SIGKILL, (8,))]
    assert one.stopper.stopped.signal == "SIGKILL"


def test_the_words_of_stop_on_are_those_of_findings():
    measurement = make_measurement()
    found = judge(measurement, diagnose(measurement).findings)
    assert {one.stops for one in found.findings} <= {None}
    flat = Finding(kind=None, cause="loss_flat", severity=Severity.WARNING, evidence=())
    over = Finding(kind=None, cause="stall", severity=Severity.CRITICAL, evidence=())
    other = Finding(
        kind=BottleneckKind.HOST_BOUND, cause=None, severity=Severity.WARNING, evidence=()
    )
    words = [one.stops for one in judge(measurement, (flat, over, other)).findings]
    assert words == ["no_learning", None, None]  # this stall is over


def test_a_stopped_run_is_named_in_report_and_document():
    stopped = StoppedRun(
        reason="stall",
        cause="stall",
        finding="it hangs.",
        num_steps=100,
        wasted_s=90.0,
        left_steps=200,
        left_s=100.0,
    )
    measurement = make_measurement(stopped=stopped)
    (block,) = stopped_blocks(measurement)
    assert "ended this run with SIGTERM after 100 steps" in str(block.text)
    assert "200 steps more, which would have taken 1 min 40 s" in str(block.text)
    from steptime.app.run.describe_run import describe_run

    envelope = run_envelope(describe_run(measurement, None), command="run", exit_code=5)
    assert envelope.errors[0].code == "gate_not_met"
    assert stopped_blocks(make_measurement()) == []


def options(**given):
    names = {"stop_on": None, "after": None, "on_finding": None, "checksums": None}
    return SimpleNamespace(**{**names, **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stop_on": ["nan"]}, "non_finite"),
        ({"after": 5}, "without --stop-on"),
        ({"stop_on": ["stall"], "after": -1}, "number of steps"),
        ({"on_finding": "'"}, "cannot be read"),
        ({"on_finding": " "}, "names no command"),
        ({"checksums": 4}, "takes 1, 2 or 3"),
    ],
)
def test_a_wrong_wish_is_a_clear_error(given, words):
    read = checksum_level if "checksums" in given else stop_wish
    with pytest.raises(UsageError) as caught:
        read(options(**given))
    assert words in f"{caught.value} {caught.value.hint}"


def test_the_wishes_are_read():
    found = stop_wish(
        options(stop_on=["stall,non_finite", "stall"], after=9, on_finding="mail 'me'")
    )
    assert found == StopWish(on=("stall", "non_finite"), after_steps=9, tell=("mail", "me"))
    assert stop_wish(options()).is_empty
    assert checksum_level(options(checksums=2)) == 2


DOOMED = """
import torch, time
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], 1e20)
while True:
    (w ** 2).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.slow("judges a training twice while it runs")
def test_a_run_of_lost_numbers_ends_with_exit_code_5(tmp_path):
    (tmp_path / "train.py").write_text(DOOMED)
    words = (*(sys.executable, "-m", "steptime", "run", "--json", "out.json"), "--stop-on")
    done = subprocess.run(
        (*words, "non_finite", "--", sys.executable, "train.py"), cwd=tmp_path, timeout=600
    )
    document = json.loads((tmp_path / "out.json").read_text())

    assert (done.returncode, document["exit_code"]) == (5, 5)
    assert document["data"]["measurement"]["stopped"]["reason"] == "non_finite"
