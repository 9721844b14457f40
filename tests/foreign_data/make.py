"""Write the files of this folder again, by the libraries whose formats they are.

Made with TensorFlow 2.21 and WebDataset 1.0.2;
the tests need none of them: `python tests/foreign_data/make.py FOLDER`.
"""

import sys
from pathlib import Path

import numpy as np

NUM_SAMPLES = 6


def samples():
    """Made-up samples: bytes that begin as JPEG does, a label, a text, an array."""
    for i in range(NUM_SAMPLES):
        image = b"\xff\xd8\xff\xe0" + bytes(range(i, i + 20))
        array = np.arange(6, dtype=np.float32).reshape(3, 2) + i
        yield {"image": image, "label": i % 3, "text": f"sample {i} é", "array": array}


def write_tfrecord(folder):
    import tensorflow as tf

    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        return tf.train.Feature(float_list=tf.train.FloatList(value=value.reshape(-1)))

    with tf.io.TFRecordWriter(str(folder / "data.tfrecord")) as writer:
        for sample in samples():
            sample["text"] = sample["text"].encode()
            sample["numbers"] = -sample["label"]
            features = tf.train.Features(feature={n: feature(v) for n, v in sample.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())


def write_webdataset(folder):
    import webdataset

    with webdataset.TarWriter(str(folder / "data.tar")) as writer:
        for i, sample in enumerate(samples()):
            parts = {"jpg": sample["image"], "cls": sample["label"], "txt": sample["text"]}
            writer.write({"__key__": f"{i:06d}", **parts, "npy": sample["array"]})


def main(target):
    writers = {
        "tfrecord": write_tfrecord,
        "webdataset": write_webdataset,
    }
    for name, write in writers.items():
        folder = target / name
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
