"""The same 200 samples, written in each format by other libraries, for the readers of formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NUM_SAMPLES = 200
JPEG = b"\xff\xd8\xff\xe0"


class Written:
    """What was written, and where: `expected` has the values of each column."""

    def __init__(self, where, expected, **options):
        self.where, self.expected, self.options = where, expected, options


def samples():
    """Pictures (random bytes after JPEG's first), labels, texts, and arrays of one shape."""
    rng = np.random.default_rng(7)
    return {
        "image": [JPEG + rng.bytes(int(n)) for n in rng.integers(20, 120, NUM_SAMPLES)],
        "label": rng.integers(0, 5, NUM_SAMPLES),
        "text": [f"sample {i} – é" for i in range(NUM_SAMPLES)],
        "array": rng.standard_normal((NUM_SAMPLES, 3, 2)).astype(np.float32),
    }


def write_folder(folder: Path) -> Written:
    data = samples()
    order = np.argsort(data["label"], kind="stable")
    for i in order:
        file = folder / f"class {data['label'][i]}" / f"{i:04d}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data["image"][i])
    images = [data["image"][i] for i in order]
    return Written(folder, {"data": images, "label": data["label"][order]})


def write_npy(folder: Path) -> Written:
    data = samples()
    np.save(folder / "array.npy", data["array"])
    return Written(folder / "array.npy", {"data": data["array"]})


def write_npy_folder(folder: Path) -> Written:
    data = samples()
    for shard, rows in enumerate(np.array_split(np.arange(NUM_SAMPLES), 3)):
        np.save(folder / f"array_{shard:03d}.npy", data["array"][rows])
    np.save(folder / "label.npy", data["label"])
    return Written(folder, {"array": data["array"], "label": data["label"]})


def write_npz(folder: Path, save=np.savez) -> Written:
    data = samples()
    save(folder / "data.npz", array=data["array"], label=data["label"])
    return Written(folder / "data.npz", {"array": data["array"], "label": data["label"]})


def write_npz_packed(folder: Path) -> Written:
    return write_npz(folder, np.savez_compressed)


def table():
    import pyarrow as pa

    data = samples()
    flat = pa.array(data["array"].reshape(-1), pa.float32())
    return pa.table(
        {
            "image": pa.array(data["image"], pa.binary()),
            "label": pa.array(data["label"]),
            "text": pa.array(data["text"]),
            "array": pa.FixedSizeListArray.from_arrays(
                pa.FixedSizeListArray.from_arrays(flat, 2), 3
            ),
        }
    )


def write_parquet(folder: Path) -> Written:
    import pyarrow.parquet as pq

    for shard in range(3):
        part = table().slice(shard * 70, 70)
        name = folder / f"train-{shard:05d}-of-00003.parquet"
        pq.write_table(part, name, row_group_size=30, write_page_checksum=True)
    return Written(folder, samples())


def write_feather(folder: Path) -> Written:
    from pyarrow import feather

    feather.write_feather(table(), folder / "data.feather", compression="lz4", chunksize=64)
    return Written(folder / "data.feather", samples())


def write_arrow_stream(folder: Path) -> Written:
    import pyarrow as pa

    for shard in range(2):
        part = table().slice(shard * 100, 100)
        with pa.ipc.new_stream(folder / f"data-{shard:05d}-of-00002.arrow", part.schema) as writer:
            writer.write_table(part, max_chunksize=33)
    return Written(folder, samples())


def write_arrow_dictionary(folder: Path) -> Written:
    import pyarrow as pa

    words = table().column("label").cast(pa.string())
    part = pa.table({"label": words.dictionary_encode()})
    with pa.ipc.new_file(folder / "data.arrow", part.schema) as writer:
        writer.write_table(part, max_chunksize=64)
    return Written(folder / "data.arrow", {"label": words.to_pylist()})


WRITERS = {
    "folder": write_folder,
    "npy": write_npy,
    "npy folder": write_npy_folder,
    "npz": write_npz,
    "npz, compressed": write_npz_packed,
    "Parquet": write_parquet,
    "Feather": write_feather,
    "Arrow streams": write_arrow_stream,
    "Arrow dictionary": write_arrow_dictionary,
}
