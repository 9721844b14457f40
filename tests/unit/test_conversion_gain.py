"""What `data convert` predicts, refuses and says."""

import dataclasses
import errno
import json
from unittest.mock import Mock

import numpy as np
import pytest
import simplejpeg

from steptime.app.data.data_convert import ConversionRequest, convert_data
from steptime.cli.main import main
from steptime.core.interval import Interval
from steptime.data.convert import prediction
from steptime.data.convert.treatment import Treatment, can_be_fast, parse_resize, treat
from steptime.data.pictures import decode_picture
from steptime.data.prepared.prepared_source import open_prepared
from steptime.data.values.conversion_values import Prediction
from steptime.errors import DataError, SteptimeError, UsageError
from steptime.report.blocks.data.conversion_report import prediction_blocks, refusal_of
from steptime.report.text.paint_text import paint
from told_blocks import unwrapped_page


def refusal_text(predicted):
    return "\n".join(refusal_of(predicted))


def prediction_text(predicted):
    return "\n".join(line.plain for line in paint(prediction_blocks(predicted), unwrapped_page()))


def picture(seed=0, height=48, width=64):
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (height, width, 3), dtype=np.uint8)  # noise: slow to decode


def write_pictures(folder, num=40, **size):
    for index in range(num):
        path = folder / "ab"[index % 2] / f"{index:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(simplejpeg.encode_jpeg(picture(index, **size), quality=90))
    return folder


def make_prediction(**changes):
    base = Prediction(
        source_format="folder of files",
        target_format="prepared",
        treatment="",
        num_samples=1000,
        num_sampled=100,
        source_bytes=1 << 20,
        target_bytes=Interval(estimate=2e6, low=1.9e6, high=2.1e6, n=100),
        source_s=1e-3,
        target_s=1e-4,
        gain=Interval(estimate=10.0, low=9.0, high=11.0, n=11),
        convert_s=3.0,
        disk_bytes_per_s=1e9,
        free_bytes=1 << 33,
        memory_bytes=1 << 34,
        is_disk_bound=False,
    )
    return dataclasses.replace(base, **changes)


@pytest.fixture
def quick(monkeypatch):
    """Rounds so short that no test waits for them, and a disk of a known rate."""
    monkeypatch.setattr(prediction, "_ROUND_S", 0.002)
    monkeypatch.setattr(prediction, "disk_rate", lambda folder: 1e9)


# --- treatments -------------------------------------------------------------------------


def test_a_size_is_one_side_or_two():
    assert parse_resize("256") == Treatment(shorter_side=256)
    assert parse_resize("256x192") == Treatment(size=(256, 192))
    for wrong in ("", "x", "0", "-3", "2x3x4", "²", "99999", "9" * 5000):
        with pytest.raises(UsageError, match="like 256"):
            parse_resize(wrong)


@pytest.mark.parametrize(
    ("target", "says"),
    [("a", "the source itself"), ("a/new", "in its source"), ("b/../a", "the source itself")],
)
def test_a_source_is_never_its_own_target(target, says, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x.csv").write_text("a,b\n1,2\n")
    request = ConversionRequest(source=str(tmp_path / "a"), target=str(tmp_path / target))
    with pytest.raises(UsageError, match=says) as error:
        convert_data(request)
    assert "remove" not in error.value.hint
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.csv"]


def test_pixels_are_those_of_pillow():
    pillow = pytest.importorskip("PIL.Image")
    import io

    for space, layout in (("RGB", "444"), ("RGB", "420")):
        data = simplejpeg.encode_jpeg(picture(), colorspace=space, colorsubsampling=layout)
        expected = np.asarray(pillow.open(io.BytesIO(data)).convert("RGB"))
        assert can_be_fast([data])
        assert np.array_equal(decode_picture(data), expected)


def test_the_shorter_side_gets_the_size_as_torchvision_does():
    pytest.importorskip("PIL.Image")
    data = simplejpeg.encode_jpeg(picture(height=48, width=64))

    assert treat(data, Treatment(shorter_side=24, decode=True)).shape == (24, 32, 3)
    assert treat(data, Treatment(size=(10, 20), decode=True)).shape == (20, 10, 3)
    small = treat(data, Treatment(shorter_side=24))
    assert simplejpeg.decode_jpeg_header(small)[:2] == (24, 32)


def test_what_is_no_picture_is_a_value_error():
    pytest.importorskip("PIL.Image")
    with pytest.raises(ValueError, match="no picture"):
        decode_picture(b"no picture at all")


# --- the prediction -----------------------------------------------------------------------


def test_pixels_pay_and_kept_jpegs_do_not(tmp_path, quick):
    folder = str(write_pictures(tmp_path / "pics", 4, height=512, width=512))
    kept = ConversionRequest(source=folder, target=str(tmp_path / "out"))
    pixels = dataclasses.replace(kept, decode=True)

    refused, done = convert_data(kept), convert_data(pixels)

    assert not refused.prediction.is_worth_it
    assert refused.prediction.gain.estimate < 1.1
    assert refused.conversion is None
    assert done.prediction.gain.low > 2
    assert done.prediction.target_bytes.estimate == pytest.approx(
        4 * (512 * 512 * 3 + 12), rel=0.01
    )
    assert open_prepared(tmp_path / "out").columns[0].shape == (512, 512, 3)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_copy_that_no_memory_holds_on_a_slow_disk_loses(tmp_path, quick, monkeypatch):
    folder = str(write_pictures(tmp_path / "pics"))
    monkeypatch.setattr(prediction, "disk_rate", lambda folder: 1e5)
    monkeypatch.setattr("steptime.app.data.data_convert.read_available_bytes", lambda: 50_000)

    answer = convert_data(
        ConversionRequest(source=folder, target=str(tmp_path / "out"), decode=True)
    )

    assert answer.prediction.is_disk_bound
    assert answer.conversion is None
    assert "slower disk" not in refusal_text(answer.prediction)
    assert "does not fit into memory" in refusal_text(answer.prediction)


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(tmp_path, quick, monkeypatch):
    folder = str(write_pictures(tmp_path / "pics"))
    request = ConversionRequest(source=folder, target=str(tmp_path / "out"), decode=True)
    predict = prediction.predict

    def on_a_small_disk(*given, **options):
        return dataclasses.replace(predict(*given, **options), free_bytes=1000)

    monkeypatch.setattr(prediction, "predict", on_a_small_disk)
    with pytest.raises(DataError, match="too small") as error:
        convert_data(request)
    assert "--resize" in error.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pics"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"decode": True, "quality": 90}, "--decode stores pixels"),
        ({"quality": 0}, "from 1 to 100"),
    ],
)
def test_options_that_contradict_are_refused(tmp_path, changes, word):
    request = ConversionRequest(source=str(tmp_path), target=str(tmp_path / "out"), **changes)
    with pytest.raises(UsageError, match=word):
        convert_data(request)


def test_a_picture_that_cannot_be_decoded_is_named_by_the_prediction(tmp_path, quick):
    folder = write_pictures(tmp_path / "pics")
    (folder / "a" / "000.jpg").write_bytes(b"")
    request = ConversionRequest(source=str(folder), target=str(tmp_path / "out"), is_dry_run=True)

    with pytest.raises(DataError, match=r"a/000\.jpg: it is empty: 0 bytes") as error:
        convert_data(request)
    assert "steptime data check" in error.value.hint


def test_a_disk_that_is_full_already_and_what_a_kill_left(tmp_path, quick, monkeypatch):
    left = tmp_path / ".steptime-killed"
    left.mkdir()
    (left / ".held").touch()  # nobody holds its lock
    request = ConversionRequest(
        source=str(write_pictures(tmp_path / "pics")), target=str(tmp_path / "out"), is_anyway=True
    )

    full = OSError(errno.ENOSPC, "No space left on device")
    for failure, said in ((full, "is full"), (KeyboardInterrupt(), "interrupted")):
        monkeypatch.setattr(prediction, "PreparedWriter", Mock(side_effect=failure))
        with pytest.raises(SteptimeError, match=said) as error:
            convert_data(request)
        assert error.value.hint.endswith("Nothing was written.")
    assert [path.name for path in tmp_path.iterdir()] == ["pics"]


def test_data_without_pictures_cannot_be_decoded(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 3)))
    request = ConversionRequest(
        source=str(tmp_path / "x.npy"), target=str(tmp_path / "out"), decode=True
    )
    with pytest.raises(UsageError, match="no pictures"):
        convert_data(request)


# --- words ------------------------------------------------------------------------------


def test_the_prediction_is_said_with_intervals():
    text = prediction_text(make_prediction())

    assert "10.0x (9.00x to 11.0x, 11 pairs)" in text
    assert "1.91 MiB (1.81 MiB to 2.00 MiB)" in text
    assert "folder of files, 1,000 samples" in text


def test_what_is_not_known_says_so():
    text = prediction_text(make_prediction(source_bytes=None, gain=None, disk_bytes_per_s=None))

    assert "not known" in text
    assert "gain" not in text


def test_a_refusal_says_what_would_help():
    low = Interval(estimate=1.01, low=0.9, high=1.1, n=11)

    assert "--decode" in refusal_text(make_prediction(gain=low))
    assert "faster disk" in refusal_text(make_prediction(gain=low, is_disk_bound=True))
    assert "--force" in refusal_text(make_prediction(gain=low, treatment="decoded to RGB"))


# --- the command --------------------------------------------------------------------------


def test_the_command_converts_and_answers_in_json(tmp_path, quick, capsys):
    folder = str(write_pictures(tmp_path / "pics"))
    words = ["data", "convert", folder, str(tmp_path / "out"), "--decode", "--json"]

    assert main(words) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "ok"
    assert document["data"]["conversion"]["num_samples"] == 40
    assert document["data"]["conversion"]["was_checked"]
    assert document["data"]["prediction"]["treatment"] == "decoded to RGB"


def test_the_command_refuses_with_5_unless_anyway(tmp_path, monkeypatch, capsys):
    low = make_prediction(gain=Interval(estimate=1.01, low=0.9, high=1.1, n=11))
    monkeypatch.setattr(prediction, "predict", lambda *given, **options: low)
    folder = str(write_pictures(tmp_path / "pics"))
    words = ["data", "convert", folder, str(tmp_path / "out")]

    assert main([*words, "--dry-run"]) == 0
    assert main(words) == 5
    assert "Not converted" in capsys.readouterr().out
    assert main([*words, "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["errors"][0]["code"]) == ("partial", "no_gain")
    assert main([*words, "--force"]) == 0
    assert "wrote      40 samples" in capsys.readouterr().out
    assert main([*words, "--force"]) == 2
    assert "there already" in capsys.readouterr().err
