"""`pinned_copies` and `prefetch_to_device`: their logic without a device, and bits on one."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from steptime.levers import load  # noqa: E402
from steptime.levers.examples import CPU, DEVICES, GPU, LOADER  # noqa: E402
from steptime.levers.input.pinned_copies import goes_to_device  # noqa: E402
from steptime.levers.input.prefetch_to_device import Ahead, Copier  # noqa: E402
from steptime.testing.lever_session_double import PlainSession  # noqa: E402

PINNED, PREFETCH = load("pinned_copies"), load("prefetch_to_device")
data = torch.utils.data


# -- one batch ahead


class FakeCopier:
    def __init__(self):
        self.acts = []

    def start(self, batch):
        self.acts.append(("start", batch))
        return batch, None

    def finish(self, copy, event):
        self.acts.append(("finish", copy))
        return copy * 10


def failing(batches):
    yield from batches
    raise OSError("the disk is gone")


def test_each_batch_is_copied_before_the_one_before_it_is_used():
    copier = FakeCopier()
    ahead = Ahead(iter([1, 2, 3]), copier)

    assert next(ahead) == 10
    assert copier.acts == [("start", 1), ("finish", 1), ("start", 2)]
    assert list(ahead) == [20, 30]
    assert copier.acts[-2:] == [("start", 3), ("finish", 3)]
    assert list(ahead) == []


def test_an_error_comes_when_its_batch_is_due():
    ahead = Ahead(failing([1, 2]), FakeCopier())

    assert [next(ahead), next(ahead)] == [10, 20]
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)


def test_what_a_script_asks_of_the_iterator_is_answered():
    loader = data.DataLoader(torch.arange(4), batch_size=2)
    ahead = Ahead(iter(loader), FakeCopier())

    assert len(ahead) == 2
    assert ahead._num_workers == 0
    assert iter(ahead) is ahead


class FakeStream:
    def __init__(self, log):
        self.log = log

    def record_event(self):
        self.log.append("event after the copies")
        return "event"

    def wait_event(self, event):
        self.log.append(f"compute waits for {event}")


def test_copies_run_on_a_stream_of_their_own_which_the_model_waits_for(monkeypatch):
    log = []
    side, current = FakeStream(log), FakeStream(log)

    @contextmanager
    def entered(stream):
        log.append("side" if stream is side else "other")
        yield

    fake = SimpleNamespace(
        Tensor=torch.Tensor,
        cuda=SimpleNamespace(
            Stream=lambda device: side, stream=entered, current_stream=lambda device: current
        ),
    )
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: log.append("memory kept")
    )
    copier = Copier(fake, torch.device("cpu"))
    batch = {"x": torch.ones(2), "names": ["a", "b"], "y": (torch.zeros(1),)}

    copy, event = copier.start(batch)
    found = copier.finish(copy, event)

    assert log == [
        *("side", "event after the copies", "compute waits for event"),
        *("memory kept", "memory kept"),
    ]
    assert torch.equal(found["x"], batch["x"])
    assert found["names"] == ["a", "b"]


def make_loader(**options):
    return data.DataLoader(data.TensorDataset(torch.arange(8)), batch_size=2, **options)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "sampler": [0, 1, 2, 3]}])
def test_a_loader_that_would_be_read_earlier_is_left_alone(options, monkeypatch):
    loader = make_loader(**options)
    monkeypatch.setattr(type(loader), "_get_iterator", lambda self: iter(()))
    with PlainSession(torch) as session:
        undo = PREFETCH.apply({}, session)
        assert not isinstance(iter(loader), Ahead)
        undo()


# -- pinned


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (("cuda",), {}, True),
        (("cuda:1", torch.float16), {}, True),
        ((torch.device("cuda", 0),), {}, True),
        ((0,), {}, True),
        ((), {"device": "cuda"}, True),
        (("cuda",), {"non_blocking": False}, False),
        (("cuda", torch.float16, False), {}, False),
        (("cpu",), {}, False),
        ((torch.float16,), {}, False),
        ((torch.ones(1),), {}, False),
    ],
)
def test_a_copy_is_not_waited_for_where_the_script_did_not_say_how(args, kwargs, expected):
    assert goes_to_device(torch, args, kwargs) is expected


def test_loaders_that_feed_training_are_pinned_and_others_are_not(monkeypatch):
    training, evaluation, done = make_loader(), make_loader(), []
    monkeypatch.setattr(type(training), "_get_iterator", lambda self: done.append(self) or iter(()))
    to = torch.Tensor.to
    with PlainSession(torch) as session:
        undo = PINNED.apply({}, session)
        iter(training)
        with torch.no_grad():
            iter(evaluation)
        undo()

    assert [training.pin_memory, evaluation.pin_memory] == [True, False]
    assert done == [training, evaluation]
    assert torch.Tensor.to is to


@pytest.mark.parametrize("lever", [PINNED, PREFETCH], ids=lambda lever: lever.name)
def test_it_is_for_loaders_that_feed_a_device(lever):
    assert lever.applies(DEVICES) is None
    assert "on cpu" in lever.applies(CPU)
    assert "No DataLoader" in lever.applies(dataclasses.replace(DEVICES, loaders=()))


def test_only_loaders_with_workers_are_read_ahead():
    assert "workers" in PREFETCH.applies(dataclasses.replace(GPU, loaders=(LOADER,)))


# -- on a device


def train_on_device(lever):
    """The losses of some steps on the device, with a lever on."""
    torch.manual_seed(0)
    rows = data.TensorDataset(torch.randn(64, 512), torch.randn(64, 1))
    model = torch.nn.Linear(512, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with PlainSession(torch) as session:
        undo = lever.apply({}, session) if lever else lambda: None
        try:
            loader = data.DataLoader(rows, batch_size=8, shuffle=True, num_workers=1)
            for x, y in [pair for _ in range(3) for pair in loader]:
                optimizer.zero_grad()
                loss = (model(x.cuda()) - y.to("cuda")).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        finally:
            undo()
    return [loss.item() for loss in losses]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("lever", [PINNED, PREFETCH], ids=lambda lever: lever.name)
def test_on_a_device_each_bit_stays(lever):
    assert train_on_device(lever) == train_on_device(None)
