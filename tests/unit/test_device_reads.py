"""In which order copies of scalars are begun on a CUDA device, which is a recorder here."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from steptime.levers._device_reads import CudaCopies


class Recorder:
    """Stands for torch, and notes what is asked of which stream."""

    def __init__(self):
        self.stream = "script's"
        self.done = []
        self.is_capturing = False
        self.Tensor = Scalar
        self.cuda = SimpleNamespace(
            is_current_stream_capturing=lambda: self.is_capturing,
            device=lambda device: self.on(self.stream),
            stream=lambda stream: self.on(stream.name),
            Stream=lambda: RecordedStream(self, "own"),
            current_stream=lambda: RecordedStream(self, self.stream),
            Event=lambda: RecordedEvent(self),
        )

    @contextmanager
    def on(self, name):
        before, self.stream = self.stream, name
        yield
        self.stream = before

    def empty(self, shape, *, dtype, device, pin_memory):
        assert (shape, dtype, device, pin_memory) == ((), "float32", "cpu", True)
        return Scalar(self, None)

    def note(self, *what):
        self.done.append(what)


class RecordedStream:
    def __init__(self, recorder, name):
        self.recorder, self.name = recorder, name

    def wait_event(self, event):
        self.recorder.note(self.name, "waits for", event.where)


class RecordedEvent:
    def __init__(self, recorder):
        self.recorder = recorder

    def record(self):
        self.where = self.recorder.stream
        self.recorder.note(self.where, "event")

    def query(self):
        return False

    def synchronize(self):
        self.recorder.note("host", "waits for", self.where)


class Scalar:
    dtype, device = "float32", "cuda:0"

    def __init__(self, recorder, number):
        self.recorder, self.number = recorder, number

    def detach(self):
        return self

    def reshape(self, shape):
        return self

    def copy_(self, other, *, non_blocking):
        assert non_blocking
        self.number = other.number
        self.recorder.note(self.recorder.stream, "copy")

    def item(self):
        return self.number


@pytest.fixture
def torch():
    return Recorder()


def test_a_copy_is_behind_what_the_script_asked_for_and_is_waited_for_once_needed(torch):
    copy = CudaCopies(torch).begin(Scalar(torch, 0.5))

    assert torch.done == [("script's", "copy"), ("script's", "event")]
    assert copy.read() == 0.5
    assert torch.done[2:] == [("host", "waits for", "script's")]


def test_a_copy_beside_waits_for_the_one_before_and_what_follows_waits_for_it(torch):
    copies = CudaCopies(torch)
    before = copies.begin(Scalar(torch, 0.5))
    del torch.done[:]
    copy = copies.begin_beside(Scalar(torch, 0.25), before)

    assert torch.done == [
        ("own", "waits for", "script's"),
        ("own", "copy"),
        ("own", "event"),
        ("script's", "waits for", "own"),
    ]
    assert copy.read() == 0.25
    assert torch.done[4:] == [("host", "waits for", "own")]
    copies.begin_beside(Scalar(torch, 0.25), before)
    assert len(copies.streams) == 1


def test_nothing_is_copied_while_a_graph_is_captured(torch):
    copies = CudaCopies(torch)
    before = copies.begin(Scalar(torch, 0.5))
    torch.is_capturing = True

    assert copies.begin(Scalar(torch, 0.5)) is None
    assert copies.begin_beside(Scalar(torch, 0.5), before) is None
