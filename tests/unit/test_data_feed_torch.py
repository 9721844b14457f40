"""Feeding with torch: iterable datasets, workers, devices, pictures."""

from __future__ import annotations

import io
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from steptime.data import (
    ArraySource,
    DataError,
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
