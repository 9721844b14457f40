"""The same 200 samples, written in each format by other libraries, for the readers of formats."""

from __future__ import annotations

import csv
import io
import json
import tarfile
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


def masked_crc(data: bytes) -> bytes:
    """CRC-32C bit by bit, masked as TFRecord stores it."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    crc = register ^ 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features: dict) -> bytes:
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value, np.ndarray):
            feature = field(2, field(1, value.astype("<f4").tobytes()))
        else:
            feature = field(3, field(1, b"".join(varint(v) for v in value)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def tfrecord(records) -> bytes:
    out = b""
    for record in records:
        length = len(record).to_bytes(8, "little")
        out += length + masked_crc(length) + record + masked_crc(record)
    return out


def write_tfrecord(folder: Path) -> Written:
    data = samples()
    numbers = [np.arange(i % 7) * -(3**i % 1000) for i in range(NUM_SAMPLES)]
    examples = [
        example(
            {
                "image": data["image"][i],
                "label": [int(data["label"][i])],
                "numbers": numbers[i].tolist(),
                "values": data["array"][i].reshape(-1),
            }
        )
        for i in range(NUM_SAMPLES)
    ]
    for shard in range(2):
        name = f"train.tfrecord-{shard:05d}-of-00002"
        (folder / name).write_bytes(tfrecord(examples[shard * 90 : (200 if shard else 90)]))
    values = data["array"].reshape(NUM_SAMPLES, -1)
    expected = {"image": data["image"], "label": data["label"]}
    return Written(folder, {**expected, "numbers": numbers, "values": values})


def write_records(folder: Path) -> Written:
    data = samples()
    (folder / "records").write_bytes(tfrecord(data["image"]))
    return Written(folder / "records", {"data": data["image"]})


def write_tar(folder: Path) -> Written:
    data = samples()
    for shard in range(2):
        with tarfile.open(folder / f"{shard:06d}.tar", "w", format=tarfile.GNU_FORMAT) as tar:
            for i in range(shard * 100, shard * 100 + 100):
                array = io.BytesIO()
                np.save(array, data["array"][i])
                parts = {
                    "jpg": data["image"][i],
                    "cls": str(data["label"][i]).encode(),
                    "txt": data["text"][i].encode(),
                    "npy": array.getvalue(),
                }
                for ending, part in parts.items():
                    member = tarfile.TarInfo(f"{'long/' * (i % 30)}{i:05d}.{ending}")
                    member.size = len(part)
                    tar.addfile(member, io.BytesIO(part))
    names = {"jpg": "image", "cls": "label", "txt": "text", "npy": "array"}
    return Written(folder, {ending: data[name] for ending, name in names.items()})


def write_tar_pax(folder: Path) -> Written:
    data = samples()
    with tarfile.open(folder / "data.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for i, image in enumerate(data["image"]):
            member = tarfile.TarInfo(f"é{i}.seg.png")
            member.size = len(image)
            tar.addfile(member, io.BytesIO(image))
    return Written(folder / "data.tar", {"seg.png": data["image"]})


def write_huggingface(folder: Path) -> Written:
    import pyarrow as pa

    names = [{"filename": f"data-{shard:05d}-of-00002.arrow"} for shard in range(2)]
    for shard, name in enumerate(names):
        part = table().slice(shard * 100, 100)
        with pa.ipc.new_stream(folder / name["filename"], part.schema) as writer:
            writer.write_table(part, max_chunksize=40)
    (folder / "state.json").write_text(json.dumps({"_data_files": names, "_split": "train"}))
    (folder / "dataset_info.json").write_text("{}")
    return Written(folder, samples())


def write_csv(folder: Path) -> Written:
    data = samples()
    flat = data["array"].reshape(NUM_SAMPLES, -1)[:, 0].astype(np.float64)
    texts = [f'{text}, "quoted"\nand broken' for text in data["text"]]
    for shard in range(2):
        with open(folder / f"{shard}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\r\n" if shard else "\n")
            writer.writerow(["label", "text", "value"])
            for i in range(shard * 100, shard * 100 + 100):
                writer.writerow([data["label"][i], texts[i], repr(float(flat[i]))])
    return Written(folder, {"label": data["label"], "text": texts, "value": flat})


def write_jsonl(folder: Path) -> Written:
    data = samples()
    numbers = [list(range(i % 4)) for i in range(NUM_SAMPLES)]
    turns = [[{"role": "user", "content": text}] for text in data["text"]]
    for shard in range(2):
        lines = [
            {"label": int(data["label"][i]), "text": data["text"][i], "ids": numbers[i]}
            | {"value": float(data["array"][i][0][0]), "messages": turns[i]}
            for i in range(shard * 100, shard * 100 + 100)
        ]
        text = "\n".join(json.dumps(line, ensure_ascii=bool(shard)) for line in lines)
        (folder / f"{shard}.jsonl").write_text(text + "\n\n" * shard, encoding="utf-8")
    values = data["array"].reshape(NUM_SAMPLES, -1)[:, 0].astype(np.float64)
    said = [json.dumps(turn, ensure_ascii=False) for turn in turns]
    ids = [np.array(row, np.int64) for row in numbers]
    expected = {"label": data["label"], "text": data["text"], "ids": ids, "value": values}
    return Written(folder, {**expected, "messages": said})


def write_hdf5(folder: Path) -> Written:
    import h5py

    data = samples()
    with h5py.File(folder / "data.h5", "w") as file:
        file.create_dataset("inner/array", data=data["array"], chunks=(16, 3, 2), compression=4)
        file["label"] = data["label"]
        file.create_dataset("text", data=data["text"], dtype=h5py.string_dtype())
        image = file.create_dataset("image", NUM_SAMPLES, dtype=h5py.vlen_dtype(np.uint8))
        for i, value in enumerate(data["image"]):
            image[i] = np.frombuffer(value, np.uint8)
    expected = {"image": data["image"], "inner.array": data["array"], "label": data["label"]}
    return Written(folder / "data.h5", {**expected, "text": data["text"]})


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
    "TFRecord": write_tfrecord,
    "TFRecord of bytes": write_records,
    "WebDataset": write_tar,
    "tar, pax": write_tar_pax,
    "Hugging Face": write_huggingface,
    "CSV": write_csv,
    "JSON Lines": write_jsonl,
    "HDF5": write_hdf5,
}
