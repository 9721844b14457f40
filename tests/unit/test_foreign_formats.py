"""What the libraries of the formats wrote, read without them: tests/foreign_data/make.py."""

from __future__ import annotations

from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from steptime.data.sources import open_source  # noqa: E402 - it needs both

WRITTEN = Path(__file__).parents[1] / "foreign_data"
NUM_SAMPLES = 6
IMAGES = [b"\xff\xd8\xff\xe0" + bytes(range(i, i + 20)) for i in range(NUM_SAMPLES)]
LABELS = [i % 3 for i in range(NUM_SAMPLES)]
TEXTS = [f"sample {i} é" for i in range(NUM_SAMPLES)]
ARRAYS = np.arange(6, dtype=np.float32).reshape(3, 2) + np.arange(NUM_SAMPLES)[:, None, None]


def read_all(name, **options):
    source = open_source(WRITTEN / name, **options)
    return source, source.read(range(len(source)))


def test_tensorflow():
    source, values = read_all("tfrecord")

    assert source.name == "TFRecord"
    assert values["image"] == IMAGES
    assert values["label"].tolist() == LABELS
    assert values["numbers"].tolist() == [-label for label in LABELS]
    assert [text.decode() for text in values["text"]] == TEXTS
    assert np.array_equal(values["array"], ARRAYS.reshape(NUM_SAMPLES, -1))


def test_webdataset():
    source, values = read_all("webdataset", names=True)

    assert source.name == "WebDataset tar"
    assert values["jpg"] == IMAGES
    assert values["cls"].tolist() == LABELS
    assert values["txt"] == TEXTS
    assert np.array_equal(values["npy"], ARRAYS)
    assert values["name"] == [f"{i:06d}".encode() for i in range(NUM_SAMPLES)]
