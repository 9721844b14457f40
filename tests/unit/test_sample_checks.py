"""The checks of what samples hold: copies, damage, two labels, two sources, a leak."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from steptime.app.data.data_convert import ConversionRequest, convert_data
from steptime.app.data.data_source_check import check_sources
from steptime.data.check.image_hashes import dhash, is_telling, similar_pairs
from steptime.verify.values import Outcome

PASS, FAIL, UNDECIDED = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def picture(seed, size=96, quality=90, form="JPEG"):
    """A picture of soft random patches, encoded."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8))
    held = io.BytesIO()
    small.resize((size, size), Image.Resampling.BICUBIC).save(held, form, quality=quality)
    return held.getvalue()


def folder(path, pictures):
    """A folder of pictures, by class and name."""
    for (label, name), held in pictures.items():
        (path / label).mkdir(parents=True, exist_ok=True)
        (path / label / name).write_bytes(held)
    return str(path)


def found(*places, budget_s=60.0, **asked):
    report = check_sources(places, budget_s=budget_s, **asked)
    return report, {check.name: check for check in report.checks}


SOUND = {("cat", f"{n}.jpg"): picture(n) for n in range(6)} | {
    ("dog", f"{n}.jpg"): picture(100 + n) for n in range(6)
}


def test_a_sound_folder_passes_and_its_labels_are_counted(tmp_path):
    report, checks = found(folder(tmp_path, SOUND))

    assert report.outcome is PASS
    assert set(checks) == {"readable", "copies", "labels"}
    assert "12 of 12 samples read; 2 labels" in report.limits[0]


def test_a_damaged_picture_is_named_with_its_file(tmp_path):
    damaged = SOUND | {("cat", "3.jpg"): SOUND["cat", "3.jpg"][:20]}

    _, checks = found(folder(tmp_path, damaged))

    assert checks["readable"].outcome is FAIL
    assert "3.jpg" in checks["readable"].evidence[0]


def test_a_copy_with_another_label_is_named_with_both(tmp_path):
    held = SOUND | {("dog", "copy.jpg"): SOUND["cat", "2.jpg"]}

    _, checks = found(folder(tmp_path, held))

    assert checks["copies"].outcome is FAIL
    assert checks["labels"].outcome is FAIL
    assert "2.jpg" in checks["labels"].evidence[0]
    assert "copy.jpg" in checks["labels"].evidence[0]


def test_the_same_samples_in_another_format_pass(tmp_path):
    values = np.random.default_rng(1).standard_normal((40, 3)).astype(np.float32)
    labels = np.arange(40) % 3
    (tmp_path / "parts").mkdir()
    np.savez(tmp_path / "all.npz", array=values, label=labels)
    np.save(tmp_path / "parts" / "array.npy", values)
    np.save(tmp_path / "parts" / "label.npy", labels)

    report, _ = found(str(tmp_path / "all.npz"), str(tmp_path / "parts"))

    assert report.outcome is PASS


def test_a_source_in_another_order_has_the_same_samples(tmp_path):
    values = np.arange(40).reshape(20, 2)
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "b.npy", values[::-1].copy())

    _, checks = found(str(tmp_path / "a.npy"), str(tmp_path / "b.npy"))

    assert checks["same_samples"].outcome is PASS
    assert checks["same_order"].outcome is FAIL
    assert "the first is 0" in checks["same_order"].finding


def test_samples_that_are_missing_or_there_once_less_are_counted(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1], [2], [2], [3]]))
    np.save(tmp_path / "b.npy", np.array([[1], [2], [4]]))

    _, checks = found(str(tmp_path / "a.npy"), str(tmp_path / "b.npy"))

    assert "2 of 4 samples of A are not in B, and 1 of 3" in checks["same_samples"].finding


def test_a_leak_is_found_by_content_and_by_what_it_looks_like(tmp_path):
    evaluation = {("cat", "a.jpg"): SOUND["cat", "1.jpg"]}
    evaluation |= {("cat", f"{n}.jpg"): picture(n, size=64, quality=60) for n in (2, 3)}
    evaluation |= {("dog", f"{n}.jpg"): picture(500 + n) for n in range(3)}

    report, checks = found(
        folder(tmp_path / "train", SOUND), folder(tmp_path / "val", evaluation), is_leakage=True
    )

    assert report.outcome is FAIL
    assert checks["leakage"].finding.startswith("1 of 6 samples")
    assert checks["similar_images"].outcome is FAIL
    assert checks["similar_images"].finding.startswith("3 pairs")


def test_what_time_did_not_suffice_for_is_open(tmp_path):
    times = iter(range(100))

    report, _ = found(folder(tmp_path, SOUND), budget_s=0.5, clock=lambda: next(times))

    assert report.outcome is UNDECIDED
    assert "0 of 12 samples read" in report.limits[0]


def test_a_hash_survives_scaling_and_compression_and_tells_pictures_apart():
    def hashed(*args, **kwargs):
        return dhash(np.asarray(Image.open(io.BytesIO(picture(*args, **kwargs)))))

    hashes = np.array([hashed(n) for n in range(40)], dtype=np.uint64)
    again = np.array([hashed(n, size=64, quality=70) for n in range(40)], dtype=np.uint64)

    pairs = set(similar_pairs(hashes, again))
    assert all(is_telling(int(one)) for one in hashes)
    assert sum((n, n) in pairs for n in range(40)) >= 36
    assert not {(i, j) for i, j in pairs if i != j}
    assert not is_telling(dhash(np.zeros((30, 40, 3), np.uint8)))


@pytest.mark.parametrize("shape", [(1, 1), (3, 50), (9, 8), (100, 7, 3)])
def test_pictures_of_any_size_have_a_hash(shape):
    assert 0 <= dhash(np.arange(np.prod(shape)).reshape(shape)) < 2**64


@pytest.mark.parametrize("false", [b"", b"no picture at all", b"\x89PNG\r\n\x1a\n cut"])
def test_files_named_as_pictures_that_hold_none_are_not_read(tmp_path, false):
    place = folder(tmp_path / "a", {("a", "0.jpg"): false, **SOUND, ("z", "0.jpg"): false})

    _, checks = found(place)

    assert checks["readable"].finding.startswith("the source: 2 of ")
    assert f"{place}/a/0.jpg: its picture cannot be decoded" in checks["readable"].evidence[0]


def test_a_decoded_copy_holds_the_same_samples(tmp_path):
    place, copy = folder(tmp_path / "a", SOUND), str(tmp_path / "copy")
    convert_data(ConversionRequest(source=place, target=copy, decode=True, is_anyway=True))

    _, checks = found(place, copy)

    assert [checks[name].outcome for name in ("same_samples", "same_order")] == [PASS, PASS]
    (tmp_path / "a" / "cat" / "0.jpg").write_bytes(picture(99))
    assert found(place, copy)[1]["same_samples"].outcome is FAIL
