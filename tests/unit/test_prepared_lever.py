"""The lever `prepared_data`: the images are those that Pillow decodes, whoever has their pixels."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.levers.base import Facts, LoaderFacts
from steptime.levers.pictures import jpeg, prepared, prepared_data

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")
simplejpeg = pytest.importorskip("simplejpeg")
Image = pytest.importorskip("PIL.Image")

from steptime.app.data.data_convert import ConversionRequest, convert_data  # noqa: E402
from steptime.data.convert import prediction  # noqa: E402

LEVER = prepared_data.LEVER
SIZES = {
    "one": [(24, 32)] * 6,
    "several": [(24, 32), (16, 16), (40, 24), (24, 32), (8, 64), (9, 7)],
}


def write_folder(folder, sizes):
    draw = np.random.default_rng(0)
    for index, (height, width) in enumerate(sizes):
        path = folder / "ab"[index % 2] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
        path.write_bytes(simplejpeg.encode_jpeg(pixels, quality=90))
    return folder


def prepare(folder, **options):
    """Make the copy beside a folder, by one round of measuring."""
    target = f"{folder}.prepared"
    convert_data(ConversionRequest(source=str(folder), target=target, is_anyway=True,
                                   **({"decode": True} | options)))  # fmt: skip
    return target


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(prediction, "_ROUND_S", 0.0005)
    monkeypatch.setattr(prediction, "disk_rate", lambda folder: None)


@pytest.fixture
def taken(monkeypatch):
    """The samples that came from the copy; no image is compared by the lever itself."""
    monkeypatch.setattr(jpeg, "NUM_FIRST", 0)
    rows, pixels = [], prepared.PreparedCopy.pixels

    def noted(self, row):
        rows.append(row)
        return pixels(self, row)

    monkeypatch.setattr(prepared.PreparedCopy, "pixels", noted)
    return rows


class Counting(SimpleNamespace):
    """A session that counts."""

    def count(self, what):
        self.counted = [*getattr(self, "counted", []), what]


def describe(path):
    """All that a script sees of a picture, opened in both ways."""
    seen = []
    with Image.open(path) as image:
        image.load()
        seen += [image.mode, image.size, image.info, image.format, image.tobytes(), image.tile]
        image.putpixel((1, 1), (7, 7, 7))
        seen += [image.tobytes(), type(image).__name__]
    with open(path, "rb") as file:
        image = Image.open(file)
        seen += [image.convert("RGB").tobytes(), file.tell(), image.fp]
    return seen


def under_lever(copy, act, session=None):
    undo = LEVER.apply({"folder": copy}, session or Counting())
    try:
        return act()
    finally:
        undo()


@pytest.mark.parametrize("sizes", list(SIZES))
def test_all_that_a_script_sees_is_the_same(tmp_path, taken, sizes):
    folder = write_folder(tmp_path / "pics", SIZES[sizes])
    paths = sorted(folder.rglob("*.jpg"))
    expected = [describe(path) for path in paths]

    copy = prepare(folder)
    found = under_lever(copy, lambda: [describe(path) for path in paths])

    assert found == expected
    assert sorted(taken) == sorted([*range(6), *range(6)])


def test_a_file_that_was_changed_since_is_decoded(tmp_path, taken):
    folder = write_folder(tmp_path / "pics", SIZES["one"])
    copy = prepare(folder)
    shutil.copy(folder / "b" / "1.jpg", folder / "a" / "0.jpg")

    found = under_lever(copy, lambda: describe(folder / "a" / "0.jpg"))

    assert found == describe(folder / "b" / "1.jpg")
    assert taken == []


def test_other_files_and_smaller_images_are_left_to_pillow(tmp_path, taken):
    folder = write_folder(tmp_path / "pics", SIZES["one"])
    copy = prepare(folder)
    other = tmp_path / "other.jpg"
    shutil.copy(folder / "a" / "0.jpg", other)

    def act():
        found = describe(other)
        with Image.open(folder / "a" / "0.jpg") as image:
            image.draft("RGB", (12, 12))
            return [*found, image.tobytes()]

    expected = act()
    assert under_lever(copy, act) == expected
    assert taken == []


def test_a_copy_with_other_pixels_is_noticed_and_left(tmp_path):
    folder = write_folder(tmp_path / "pics", SIZES["one"])
    copy = prepare(folder)
    array = next(Path(copy).glob("00-*.npy"))
    data = bytearray(array.read_bytes())
    data[-24 * 32 * 3 * 6 :] = bytes(24 * 32 * 3 * 6)
    array.write_bytes(data)
    paths = sorted(folder.rglob("*.jpg"))
    expected = [describe(path) for path in paths]

    assert under_lever(copy, lambda: [describe(path) for path in paths]) == expected


@pytest.mark.parametrize(
    "harm",
    [
        shutil.rmtree,
        lambda copy: (copy / "index.json").write_text("{"),
        lambda copy: (copy / "files.jsonl").unlink(),
        lambda copy: os.truncate(next(copy.glob("00-*.npy")), 500),
        lambda copy: (copy / "files.jsonl").write_text('["a/0.jpg", 1, 2]\n'),
    ],
)
def test_a_copy_that_is_missing_or_damaged_is_counted_and_the_source_is_read(tmp_path, harm):
    folder = write_folder(tmp_path / "pics", SIZES["one"])
    copy = Path(prepare(folder))
    harm(copy)
    session = Counting()

    found = under_lever(str(copy), lambda: describe(folder / "a" / "0.jpg"), session)

    assert found == describe(folder / "a" / "0.jpg")
    assert session.counted == ["unusable_copy"]


def test_a_copy_of_another_size_is_not_used(tmp_path):
    folder = write_folder(tmp_path / "pics", SIZES["one"])
    copy = prepare(folder, resize="16")
    session = Counting()

    under_lever(copy, lambda: None, session)

    assert session.counted == ["unusable_copy"]


def test_it_is_found_beside_the_folder(tmp_path):
    folder = write_folder(tmp_path / "pics", SIZES["one"])
    assert prepared.find_copy(folder) == ""
    copy = prepare(folder)
    assert prepared.find_copy(f"{folder}/") == copy
    assert prepared.find_copy(None) == ""
    assert json.loads((Path(copy) / "index.json").read_text())["treatment"] == prepared.TREATMENT


def test_it_is_offered_where_a_copy_was_found():
    def facts(*found):
        return Facts(
            torch_version="2.13.0",
            loaders=tuple(LoaderFacts(dataset="ImageFolder", prepared=one) for one in found),
        )

    assert LEVER.applies(facts("/data/x.prepared", "")) is None
    assert list(LEVER.space(facts("/data/x.prepared", None))) == [{"folder": "/data/x.prepared"}]
    assert "steptime data convert" in LEVER.applies(facts(""))
    assert "not observed" in LEVER.applies(facts(None))
