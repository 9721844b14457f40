"""What a signal handler raises reaches the script, also where code of ours is interrupted."""

from __future__ import annotations

import gc
import json
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace

import pytest

from steptime.guest.timeline.gc_pauses import Pauses
from steptime.guest.timeline.interrupts import is_from_handler
from steptime.guest.timeline.recorder import Recorder


class PreemptedError(Exception):
    pass


def preempt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # as many do: once is enough
    raise PreemptedError


def preempt_any(*arguments: object) -> None:
    raise PreemptedError


@contextmanager
def on_alarm(handler: object) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def pauses() -> Iterator[Pauses]:
    """One callback alone: those of other libraries (hypothesis has one) may drop a signal."""
    before = gc.callbacks[:]
    watched = Pauses()
    try:
        gc.callbacks.clear()
        gc.freeze()  # what earlier tests left is not looked through again and again
        watched.watch(SimpleNamespace(__file__="/nowhere/torch/__init__.py"))
        yield watched
    finally:
        gc.unfreeze()
        gc.callbacks[:] = before


def collect_until_the_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    for _ in range(100):
        gc.collect()


def fail_at_an_alarm(recorder: Recorder) -> None:
    try:
        signal.raise_signal(signal.SIGALRM)
    except Exception:
        recorder.fail("call")


def fail(frame: FrameType) -> None:
    raise ValueError(frame)


@pytest.mark.parametrize("handler", [preempt, preempt_any, signal.default_int_handler])
def test_a_signal_during_a_collection_is_raised_where_the_script_goes_on(handler, capfd):
    expected = KeyboardInterrupt if handler is signal.default_int_handler else PreemptedError
    tracer = sys.gettrace()
    for _ in range(5):
        with pauses() as watched, on_alarm(handler):
            garbage = [[number] for number in range(300_000)]  # collections take milliseconds
            before = watched.num
            with pytest.raises(expected) as caught:
                collect_until_the_alarm()
            gc.collect()
            assert watched.num > before
        if expected is PreemptedError:
            assert handler.__name__ in [f.name for f in traceback.extract_tb(caught.tb)]
        assert sys.gettrace() in (None, tracer)  # Python drops one in which a handler raises
        sys.settrace(tracer)
        del garbage
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("handler", [preempt, preempt_any])
def test_what_a_handler_raises_is_no_failure_of_ours(tmp_path, handler):
    recorder = Recorder(str(tmp_path), dict)
    with on_alarm(handler), pytest.raises(PreemptedError):
        fail_at_an_alarm(recorder)
    assert recorder.failures == {}


class Interrupted:
    """A watcher during whose turn the user presses Ctrl-C, once."""

    place = "interrupted"
    is_calm = False

    def poll(self, bucket: int, *, is_last: bool) -> str:
        if not self.is_calm:
            self.is_calm = True
            raise KeyboardInterrupt
        return ""

    def reset(self) -> None:
        pass


def test_what_an_interrupt_keeps_from_the_disk_is_written_next(tmp_path):
    recorder = Recorder(str(tmp_path), dict)
    path = tmp_path / "rank-0.jsonl"
    path.touch()
    recorder.path = str(path)
    recorder.watchers.append(Interrupted())
    recorder.rows.append([1, 10])
    with pytest.raises(KeyboardInterrupt):
        recorder.flush()
    assert path.read_text() == ""

    recorder.rows.append([2, 20])
    recorder.flush()
    (line,) = (json.loads(one) for one in path.read_text().splitlines() if '"u"' in one)
    assert line["rows"] == [[1, 10], [2, 20]]


def test_other_errors_are_no_handlers():
    with pytest.raises(ValueError, match="frame") as caught:
        fail(sys._getframe(1))
    assert not is_from_handler(caught.value)
    assert not is_from_handler(ValueError())
