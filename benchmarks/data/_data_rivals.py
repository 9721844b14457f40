"""An epoch of each loader over the same samples: one function an arm.

A function gets the kind (`a`: records, `b`: pictures) and the folder of the formats, and returns
what makes an epoch: an iterable of batches whose first value holds the samples `(64, 32, 32, 3)` or
`(64, 256, 256, 3)`. All shuffle but those that read in a row by their nature (tar, TFRecord), which
is in their favor. Each is set up as its documentation shows, with 64 samples a batch.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _data_sets import SHAPES, load_streaming

BATCH = 64
Epoch = Callable[[], Iterable[Any]]
ARMS: dict[str, tuple[str, Callable[[str, Path], Epoch]]] = {}
"""By name: the kinds it is for, and what makes it."""


def arm(kinds: str) -> Callable[[Any], Any]:
    """Enter a function as an arm."""

    def enter(make: Any) -> Any:
        ARMS[make.__name__] = kinds, make
        return make

    return enter


def decode_with_pillow(data: bytes) -> np.ndarray[Any, Any]:
    """Return the pixels of a JPEG."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def decode_with_simplejpeg(data: bytes) -> np.ndarray[Any, Any]:
    """Return the pixels of a JPEG."""
    import simplejpeg

    return simplejpeg.decode_jpeg(data)


def as_pixels(kind: str, data: bytes) -> np.ndarray[Any, Any]:
    """Return a sample's pixels."""
    if kind == "b":
        return decode_with_pillow(data)
    return np.frombuffer(data, dtype=np.uint8).reshape(SHAPES["a"])


# -- plain DataLoader


class Files:
    """A map-style data set over loose files, as torchvision's ImageFolder is one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.paths = sorted(str(path) for path in (folder / "files").rglob("*.*"))

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, number: int) -> tuple[np.ndarray[Any, Any], int]:
        """Return the pixels of a file, and the label that its folder names."""
        path = self.paths[number]
        with open(path, "rb") as file:
            return as_pixels(self.kind, file.read()), int(path.split("/")[-2])

    def __getitem__(self, number: int) -> Any:
        import torch

        pixels, label = self.read(number)
        return torch.from_numpy(pixels.copy()), label


class Mapped:
    """A map-style data set over a mapped array, sample by sample (T6)."""

    def __init__(self, folder: Path) -> None:
        self.image = np.load(folder / "npy" / "image.npy", mmap_mode="r")
        self.label = np.load(folder / "npy" / "label.npy")

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, number: int) -> Any:
        import torch

        return torch.from_numpy(self.image[number].copy()), int(self.label[number])


def _loader(dataset: Any, workers: int, **facts: Any) -> Epoch:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, batch_size=BATCH, num_workers=workers, **facts)
    return lambda: loader


@arm("ab")
def files_dataloader_0(kind: str, folder: Path) -> Epoch:
    return _loader(Files(kind, folder), 0, shuffle=True)


@arm("ab")
def files_dataloader_2(kind: str, folder: Path) -> Epoch:
    return _loader(Files(kind, folder), 2, shuffle=True)


@arm("ab")
def mapped_dataloader_0(kind: str, folder: Path) -> Epoch:
    return _loader(Mapped(folder), 0, shuffle=True)


@arm("a")
def mapped_dataloader_2(kind: str, folder: Path) -> Epoch:
    return _loader(Mapped(folder), 2, shuffle=True)


# -- formats with loaders of their own


@arm("ab")
def webdataset_0(kind: str, folder: Path) -> Epoch:
    import webdataset

    ending = "bin" if kind == "a" else "jpg"
    urls = str(folder / "tar" / "shard-000000.tar")
    data = (
        webdataset.WebDataset(urls, shardshuffle=False)
        .to_tuple(ending, "cls")
        .map_tuple(functools.partial(as_pixels, kind), int)
        .batched(BATCH)
    )
    loader = webdataset.WebLoader(data, batch_size=None, num_workers=0)
    return lambda: loader


@arm("ab")
def mds_0(kind: str, folder: Path) -> Epoch:
    import torch

    class Read(load_streaming().StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return torch.from_numpy(as_pixels(kind, sample["data"]).copy()), sample["label"]

    # Of its ways to shuffle, py1s is the one without blocks; the default cost the same here.
    data = Read(local=str(folder / "mds"), shuffle=True, batch_size=BATCH)
    return _loader(data, 0)


@arm("ab")
def litdata_0(kind: str, folder: Path) -> Epoch:
    import litdata

    class Read(litdata.StreamingDataset):  # type: ignore[misc,name-defined]
        def __getitem__(self, index: Any) -> Any:
            sample = super().__getitem__(index)
            data = sample["data"]
            return (as_pixels(kind, data) if kind == "b" else data), sample["label"]

    data = Read(str(folder / "litdata"), shuffle=True)
    loader = litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=0)
    return lambda: loader


def _records(folder: Path) -> Any:
    import tensorflow as tf

    return tf.data.TFRecordDataset(str(folder / "tfrecord" / "data.tfrecord"))


def _features() -> Any:
    import tensorflow as tf

    return {
        "data": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }


def _parse_one(kind: str, record: Any) -> Any:
    import tensorflow as tf

    found = tf.io.parse_single_example(record, _features())
    if kind == "b":
        return tf.io.decode_jpeg(found["data"], channels=3), found["label"]
    return tf.reshape(tf.io.decode_raw(found["data"], tf.uint8), SHAPES["a"]), found["label"]


@arm("ab")
def tfdata_record(kind: str, folder: Path) -> Epoch:
    data = _records(folder).map(functools.partial(_parse_one, kind)).batch(BATCH)
    return lambda: data


@arm("ab")
def tfdata_record_autotune(kind: str, folder: Path) -> Epoch:
    import tensorflow as tf

    auto = tf.data.AUTOTUNE
    parse = functools.partial(_parse_one, kind)
    data = _records(folder).map(parse, num_parallel_calls=auto).batch(BATCH).prefetch(auto)
    return lambda: data


@arm("a")
def tfdata_batch_parsed(kind: str, folder: Path) -> Epoch:
    import tensorflow as tf

    def parse(records: Any) -> Any:
        found = tf.io.parse_example(records, _features())
        pixels = tf.io.decode_raw(found["data"], tf.uint8, fixed_length=int(np.prod(SHAPES["a"])))
        return tf.reshape(pixels, (-1, *SHAPES["a"])), found["label"]

    data = _records(folder).batch(BATCH).map(parse)
    return lambda: data


@arm("ab")
def spdl_threads_2(kind: str, folder: Path) -> Epoch:
    from spdl.pipeline import PipelineBuilder

    files = Files(kind, folder)
    random = np.random.default_rng(0)

    def read(numbers: Any) -> Any:  # a batch a task: a task a sample costs 20 times as much
        samples = [files.read(number) for number in numbers]
        return np.stack([one[0] for one in samples]), np.array([one[1] for one in samples])

    def epoch() -> Iterator[Any]:
        order = random.permutation(len(files))
        pipeline = (
            PipelineBuilder()
            .add_source([order[i : i + BATCH] for i in range(0, len(order), BATCH)])
            .pipe(read, concurrency=2)
            .add_sink(4)
            .build(num_threads=2)
        )
        with pipeline.auto_stop():
            yield from pipeline

    return epoch


@arm("b")
def dali_threads_1(kind: str, folder: Path) -> Epoch:
    """DALI's reader of a folder and its decoder, on the CPU (T14)."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def pictures() -> Any:
        files = str(folder / "files")
        data, labels = fn.readers.file(file_root=files, random_shuffle=True, name="reader")
        return fn.decoders.image(data, device="cpu"), labels

    def epoch() -> Iterator[Any]:
        for (found,) in loader:
            yield found["data"], found["label"].flatten()

    loader = DALIGenericIterator(
        pictures(),
        ["data", "label"],
        reader_name="reader",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.PARTIAL,
    )
    return epoch
