"""The data of the input-pipeline benchmarks, made here and written in each format by its writer.

A: 20,000 records of 32 x 32 x 3 random bytes with a label. B: 800 JPEGs of 256 x 256 pixels at
quality 90, some 23 kB each, with a label. Each writer is timed: wall and CPU time.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import io
import json
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NUM_A, NUM_B = 20_000, 800
SHAPES = {"a": (32, 32, 3), "b": (256, 256, 3)}


@functools.cache
def records(kind: str) -> list[tuple[bytes, int]]:
    """Return each sample's bytes, as they are stored, with its label; made once a process."""
    if kind == "a":
        return [(image.tobytes(), i % 10) for i, image in enumerate(images_a())]
    made = os.environ.get("DATA_MADE")  # the folder of pictures that an earlier process wrote
    if made:
        paths = sorted(Path(made).rglob("*.jpg"), key=lambda path: path.name)
        return [(path.read_bytes(), int(path.parent.name)) for path in paths]
    return [(jpeg(i), i % 10) for i in range(NUM_B)]


@functools.cache
def images_a() -> np.ndarray[Any, Any]:
    """Return A as one array (20000, 32, 32, 3)."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (NUM_A, *SHAPES["a"]), dtype=np.uint8)


def jpeg(number: int) -> bytes:
    """Return picture `number` of B: shapes of many sizes under noise, as in a photograph."""
    from PIL import Image

    random = np.random.default_rng(number)
    total = np.zeros(SHAPES["b"], dtype=np.float64)
    for size in (4, 16, 64):
        coarse = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((256, 256), Image.Resampling.BICUBIC)
        total += np.asarray(smooth, dtype=np.float64)
    total = total / 3 + random.normal(0, 4, SHAPES["b"])
    out = io.BytesIO()
    Image.fromarray(total.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def decoded_b() -> np.ndarray[Any, Any]:
    """Return B decoded by Pillow (800, 256, 256, 3)."""
    from PIL import Image

    return np.stack([np.asarray(Image.open(io.BytesIO(data))) for data, _ in records("b")])


# -- the writers; each gets the kind and the folder


def write_files(kind: str, folder: Path) -> None:
    """Write a folder of loose files by label."""
    ending = "bin" if kind == "a" else "jpg"
    for label in range(10):
        (folder / str(label)).mkdir()
    for i, (data, label) in enumerate(records(kind)):
        (folder / str(label) / f"{i:06}.{ending}").write_bytes(data)


def write_npy(kind: str, folder: Path) -> None:
    """Write two plain arrays: what is closest to no format at all."""
    images = images_a() if kind == "a" else decoded_b()
    np.save(folder / "image.npy", images)
    np.save(folder / "label.npy", np.arange(len(images), dtype=np.int64) % 10)


def write_tar(kind: str, folder: Path) -> None:
    """Write a shard of WebDataset by its own writer."""
    import webdataset

    ending = "bin" if kind == "a" else "jpg"
    with webdataset.TarWriter(str(folder / "shard-000000.tar")) as sink:
        for i, (data, label) in enumerate(records(kind)):
            sink.write({"__key__": f"{i:06}", ending: data, "cls": label})


def write_mds(kind: str, folder: Path) -> None:
    """Write shards of MosaicML Streaming."""
    streaming = load_streaming()
    with streaming.MDSWriter(out=str(folder), columns={"data": "bytes", "label": "int"}) as sink:
        for data, label in records(kind):
            sink.write({"data": data, "label": label})


def write_litdata(kind: str, folder: Path) -> None:
    """Write chunks of LitData, as numpy arrays where the samples have one shape.

    `optimize` wraps this writer in processes; the writer alone is the quicker of the two.
    """
    from litdata.streaming.writer import BinaryWriter

    sink = BinaryWriter(str(folder), chunk_bytes=64 << 20)
    for i, (data, label) in enumerate(records(kind)):
        sink[i] = {"data": as_sample(kind, data), "label": label}
    sink.done()
    sink.merge(1)


def as_sample(kind: str, data: bytes) -> Any:
    """Return what LitData keeps: an array for A, the bytes of the picture for B."""
    if kind == "b":
        return data
    return np.frombuffer(data, dtype=np.uint8).reshape(SHAPES["a"])


def write_tfrecord(kind: str, folder: Path) -> None:
    """Write one file of tf.train.Example."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(folder / "data.tfrecord")) as sink:
        for data, label in records(kind):
            features = {
                "data": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            sink.write(example.SerializeToString())


def write_prepared(kind: str, folder: Path) -> None:
    """Write Steptime's mapped arrays: A as it is, B decoded from loose files by `data convert`."""
    from steptime.data import ArraySource, open_source
    from steptime.data.convert import conversion, planning
    from steptime.data.convert.treatment import Treatment

    folder.rmdir()  # it makes its target itself
    if kind == "a":
        labels = np.array([label for _, label in records("a")])
        source: Any = ArraySource({"image": images_a(), "label": labels})
    else:
        source = open_source(os.environ["DATA_MADE"])
    treatment = Treatment(decode=kind == "b")
    sample = planning.take_sample(source, treatment)
    plan = planning.make_plan(source, "", treatment, sample)
    conversion.convert(source, folder, plan, treatment)


_NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[Any] = []


class _StandIns:
    """Stands in for transformers, of which MosaicML Streaming imports some classes' names."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "transformers":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        return _StandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__path__ = []


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def load_streaming() -> Any:
    """Return MosaicML Streaming, which imports torchvision.

    torchvision's wheel may have operators for a GPU alone; their names are enough for the import.
    """
    import torch

    operators = torch.library.Library("torchvision", "FRAGMENT")
    _kept.append(operators)
    for name in (_NMS, "qnms" + _NMS[3:]):
        with contextlib.suppress(RuntimeError):
            operators.define(name)
    if not any(isinstance(one, _StandIns) for one in sys.meta_path):
        sys.meta_path.append(_StandIns())  # type: ignore[arg-type]
    import streaming

    return streaming


WRITERS: dict[str, Callable[[str, Path], None]] = {
    "files": write_files,
    "npy": write_npy,
    "tar": write_tar,
    "mds": write_mds,
    "litdata": write_litdata,
    "tfrecord": write_tfrecord,
    "prepared": write_prepared,
}


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Write one format in this process: `_data_sets.py WRITER KIND FOLDER`; print its cost."""
    name, kind, where = sys.argv[1:]
    folder = Path(where)
    folder.mkdir(parents=True)
    _import(name)  # what is imported is not written yet
    records(kind)  # making the samples is the same for all
    began, cpu = time.perf_counter(), time.process_time()
    WRITERS[name](kind, folder)
    ended, cpu_ended = time.perf_counter(), time.process_time()
    found = {"wall_s": ended - began, "cpu_s": cpu_ended - cpu, "bytes": size_of(folder)}
    print(json.dumps(found))


def _import(name: str) -> None:
    if name == "tfrecord":
        import tensorflow  # noqa: F401
    elif name == "litdata":
        import litdata.streaming.writer  # noqa: F401
    elif name == "mds":
        load_streaming()
    elif name == "prepared":
        import msgspec  # noqa: F401
        import pyarrow.csv  # noqa: F401

        import steptime.data.convert.conversion
        import steptime.data.convert.planning
        import steptime.data.feed.array_source
        import steptime.data.sources.opening  # noqa: F401
    elif name == "tar":
        import webdataset  # noqa: F401


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
