"""Feeding with torch: iterable datasets, workers, devices, pictures."""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from steptime.data import (
    ArraySource,
    DataError,
    DevicePrefetch,
    ImageDecoder,
    Loader,
    MapDataset,
    MissingExtraError,
)
from steptime.data.source import Column

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader
NUM = 23


def make_loader(**options):
    return Loader(ArraySource({"y": np.arange(NUM)}), 4, **options)


def all_of(batches):
    return [batch["y"].tolist() for batch in batches]


def test_processes_change_neither_batches_nor_order_and_resume_as_threads_do():
    alone, beside = make_loader(), make_loader(processes=2)
    assert all_of(beside) == all_of(alone)
    for loader in (alone, beside):
        next(iter(loader))
    resumed = make_loader(processes=2)
    resumed.load_state_dict(beside.state_dict())

    assert beside.state_dict() == alone.state_dict()
    alone.load_state_dict(alone.state_dict())
    assert all_of(resumed) == all_of(alone)


def test_an_error_in_a_process_names_the_sample():
    def decode(columns):
        if 5 in columns["y"]:
            raise ValueError("not a picture")
        return columns

    with pytest.raises(DataError, match="arrays, row 5: ValueError: not a picture"):
        all_of(make_loader(processes=1, decode=decode))


def test_a_loader_that_travels_knows_its_rank(monkeypatch):
    together = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1,
        get_world_size=lambda: 2,
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch.distributed", together)
        here = make_loader()
        read = all_of(here)
        there = pickle.loads(pickle.dumps(make_loader()))

    assert (there.rank, there.world_size) == (1, 2)
    assert all_of(there) == read != all_of(make_loader())


class FakeTensor:
    """A tensor whose copies are written down."""

    def __init__(self, log, name, kind="cpu"):
        self.log, self.name, self.device = log, name, SimpleNamespace(type=kind)

    def pin_memory(self):
        self.log.append(f"pin {self.name}")
        return self

    def to(self, device, *, non_blocking):
        assert non_blocking
        self.log.append(f"copy {self.name} to {device}")
        return FakeTensor(self.log, self.name, "cuda")

    def record_stream(self, stream):
        self.log.append(f"{stream.name} keeps {self.name}")


class FakeStream:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def record_event(self):
        self.log.append(f"event of {self.name}")
        return "event"

    def wait_event(self, event):
        self.log.append(f"{self.name} waits")


def make_prefetch(log):
    """A prefetch on a device that is a double, over batches of fake tensors."""

    def fake(batch):
        return {"x": [FakeTensor(log, str(int(batch["y"][0])))], "text": "as it is"}

    prefetch = DevicePrefetch(make_loader(shuffle=False, transform=fake), "cuda")
    prefetch._torch = SimpleNamespace(cuda=SimpleNamespace(
        Stream=lambda device: FakeStream(log, "side"),
        stream=lambda stream: contextlib.nullcontext(),
        current_stream=lambda device: FakeStream(log, "main"),
    ))  # fmt: skip
    return prefetch


def test_a_batch_is_copied_while_the_one_before_is_used():
    log = []
    for batch in make_prefetch(log):
        assert batch["text"] == "as it is"
        assert batch["x"][0].device.type == "cuda"
        log.append(f"use {batch['x'][0].name}")

    first = ["pin 0", "copy 0 to cuda", "event of side", "pin 4", "copy 4 to cuda",
             "event of side", "main waits", "main keeps 0", "use 0"]  # fmt: skip
    assert log[: len(first)] == first
    assert [line for line in log if line.startswith("use")] == [
        f"use {number}" for number in range(0, NUM, 4)
    ]


def test_the_state_of_a_prefetch_is_that_of_the_batch_in_use():
    prefetch, loader = make_prefetch([]), make_loader(shuffle=False)

    states = []
    for _, _ in zip(prefetch, loader, strict=True):
        states.append(prefetch.state_dict())
        assert states[-1] == loader.state_dict()
    assert prefetch.state_dict() == loader.state_dict()

    prefetch.load_state_dict(states[1])
    assert [int(batch["x"][0].name) for batch in prefetch] == [8, 12, 16, 20]
    assert prefetch.epoch == 1
    prefetch.set_epoch(0)
    assert (prefetch.epoch, len(prefetch)) == (0, 6)


def test_on_the_cpu_batches_are_handed_on():
    prefetch = DevicePrefetch(make_loader(), "cpu")

    assert all_of(prefetch) == all_of(make_loader())
    assert prefetch.epoch == 1


# --- pictures -------------------------------------------------------------------------

image_module = pytest.importorskip("PIL.Image")


def picture(kind, mode="RGB", number=0):
    rng = np.random.Generator(np.random.PCG64(number))
    array = rng.integers(0, 255, (21, 34, 3), dtype=np.uint8)
    file = io.BytesIO()
    image_module.fromarray(array).convert(mode).save(file, kind)
    return file.getvalue()


class Pictures:
    name, num_bytes = "pictures", None
    columns = (Column("data", "image"),)

    def __init__(self, *data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def read(self, indices):
        return {"data": [self.data[index] for index in indices]}

    def place_of(self, index):
        return f"picture {index}"

    def close(self):
        pass


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    ("kind", "stored"), [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"),
                         ("PNG", "P")],
)  # fmt: skip
def test_pictures_have_the_bits_of_pillow(kind, stored, mode):
    data = picture(kind, stored)
    expected = np.asarray(image_module.open(io.BytesIO(data)).convert(mode)).reshape(21, 34, -1)

    assert (ImageDecoder(mode=mode).decode(data) == expected).all()


@pytest.mark.parametrize("threads", [0, 4])
def test_pictures_of_one_size_become_one_tensor(threads):
    source = Pictures(*(picture("JPEG", number=number) for number in range(6)))

    (batch,) = Loader(source, 6, threads=threads, decode=ImageDecoder())

    assert (batch["data"].shape, batch["data"].dtype) == ((6, 21, 34, 3), torch.uint8)


def test_a_damaged_picture_is_named():
    source = Pictures(picture("JPEG"), picture("JPEG")[:300], picture("PNG"))
    dataset = MapDataset(source, decode=ImageDecoder())

    assert dataset[0]["data"].shape == (21, 34, 3)
    with pytest.raises(DataError, match="picture 1: "):
        dataset.__getitems__([0, 1, 2])


def test_without_pillow_a_picture_that_needs_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)

    with pytest.raises(MissingExtraError) as raised:
        ImageDecoder().decode(picture_of_png := b"\x89PNG")
    assert (raised.value.hint, picture_of_png) == ("Install it: pip install pillow", b"\x89PNG")
    with pytest.raises(ValueError, match="RGB or L"):
        ImageDecoder(mode="CMYK")
