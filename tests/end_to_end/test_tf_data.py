"""`steptime data bench` on an unmodified Keras script; the tests have no TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from end_to_end.harness import LIMIT_S, STEPTIME, needs_linux

SCRIPT = """\
import keras
import tensorflow as tf


def draw(number):
    noise = tf.random.uniform((20_000,)) + tf.cast(number, tf.float32)
    return tf.sort(noise)[:100], 1.0


data = tf.data.Dataset.range(40_000).map(draw).batch(8)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, verbose=0)
open("left_behind", "w").close()
"""


@needs_linux
@pytest.mark.slow("a contained child that trains with Keras until three seconds are known")
def test_the_slowest_stage_of_a_keras_script_is_named_with_its_line(tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [*STEPTIME, "data", "bench", "--json", "b.json", "--", sys.executable, "train.py"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)

    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())["data"]["tf_data"]["pipeline"]
    stage = found["stages"][found["held_back_by"]]
    assert (stage["name"], stage["line"], stage["draws"]) == ("map", 10, True)
    assert "parallel_map" in {one["change"] for one in found["advice"]}
    assert "train.py:10: map(..., num_parallel_calls=tf.data.AUTOTUNE)" in done.stdout
    assert not (tmp_path / "left_behind").exists()
