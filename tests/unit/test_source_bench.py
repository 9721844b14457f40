"""`steptime data bench SOURCE`: what batches of a source cost, and the bound beside a training."""

import io

import numpy as np
import pytest

pytest.importorskip("PIL")
from PIL import Image

from steptime.app.data.source_bench import SourceOptions, bench_source
from steptime.cli.main import main
from steptime.data.timed_reads import decode, files_of, time_reads
from steptime.errors import DataError

NUM = 12


def picture(kind):
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


class Pictures:
    """A source in memory."""

    name, num_bytes = "made-up", 100

    def __init__(self, data):
        from steptime.data.source import Column

        self.data = data
        self.columns = (Column("image", "image"), Column("label", "number", "int64", ()))
        self.reads = []

    def __len__(self):
        return len(self.data)

    def read(self, indices):
        self.reads.append(list(indices))
        return {"image": [self.data[i] for i in indices], "label": np.asarray(indices)}

    def place_of(self, index):
        return f"shard 0, row {index}"


@pytest.fixture
def folder(tmp_path):
    for index in range(NUM):
        file = tmp_path / "cat" / f"{index}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(picture("JPEG"))
    return tmp_path


def test_each_pass_reads_the_same_batches():
    source = Pictures([picture("JPEG")] * NUM)
    times = time_reads(source, files=[], batch_size=5, seconds=60)

    assert [len(batch) for batch in source.reads] == [5, 5, 2] * 2
    assert source.reads[:3] == source.reads[3:]
    assert sorted(index for batch in source.reads[:3] for index in batch) == list(range(NUM))
    assert (times.num_batches, times.num_samples) == (3, NUM)
    assert all(batch["decode"] > 0 for batch in times.wall_s)
    assert (times.cold_s, times.cold_missing) == (None, "cold_no_files")


def test_pictures_of_any_kind_are_decoded():
    assert decode(picture("JPEG")).shape == (4, 4, 3)
    assert np.array_equal(decode(picture("PNG")).reshape(-1), np.arange(48))


def test_a_damaged_picture_names_its_place():
    data = [picture("PNG")] * 4
    data[2] = b"no picture"
    with pytest.raises(DataError, match="shard 0, row 2 cannot be decoded"):
        time_reads(Pictures(data), files=[], batch_size=2, seconds=60)


def test_an_empty_source_is_an_error():
    with pytest.raises(DataError, match="no samples"):
        time_reads(Pictures([]), files=[], batch_size=2, seconds=60)


def test_the_bound_follows_from_the_step(folder):
    alone = bench_source(SourceOptions(where=str(folder), batch_size=4))
    fast = bench_source(SourceOptions(where=str(folder), batch_size=4, step_s=1e-7))
    slow = bench_source(SourceOptions(where=str(folder), batch_size=4, step_s=1e3))

    assert alone.bound is None
    assert alone.bottleneck in ("fetch", "decode", "collate")
    assert alone.loader.num_samples == NUM
    assert fast.bound.estimate > 2
    assert slow.bottleneck == "consumer"
    assert slow.bound.estimate == pytest.approx(1.0, abs=1e-3)
    assert slow.workers_needed == 1
    assert len(list(files_of(str(folder)))) == NUM


def test_the_command_reads_a_source(folder, capsys):
    words = ["data", "bench", str(folder), "--step-ms", "0.001", "--batch-size", "4"]
    assert main(words) == 0
    told = capsys.readouterr().out

    assert "Upper bound of any loader's gain" in told
    assert "12 samples, batches of 4" in told
    assert "steptime tune" not in told
    assert f"steptime data convert {folder} {folder}.prepared" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--step-ms", "0"], "--step-ms must be above 0"),
        (["--batch-size", "0"], "--batch-size must be 1 or more"),
        (["--window", "x"], "--window must be a time"),
    ],
)
def test_wrong_options_are_refused(folder, capsys, words, told):
    assert main(["data", "bench", str(folder), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_source_that_is_not_there_and_a_command_without_dashes(tmp_path, capsys):
    assert main(["data", "bench", str(tmp_path / "gone")]) == 2
    assert main(["data", "bench", "python", "train.py"]) == 2
    assert "data bench -- python train.py" in capsys.readouterr().err
