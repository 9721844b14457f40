"""The lever `decoded_cache`: what is decoded once is found again, and nothing else changes."""

import io
import os
import zlib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.levers.base import Facts, LoaderFacts
from steptime.levers.pictures import decoded_cache, decoded_images, jpeg_decoder, pixel_store
from steptime.levers.pictures.pixel_store import PixelDisk, PixelStore

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
PngImageFile = pytest.importorskip("PIL.PngImagePlugin").PngImageFile
JpegImageFile = pytest.importorskip("PIL.JpegImagePlugin").JpegImageFile

SESSION = SimpleNamespace(torch=torch)
NUM, SIDE = 12, 24
PLACES = (False, True)


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(5)
    for index in range(NUM):
        pixels = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index}.jpg", quality=80)
    return tmp_path


@pytest.fixture
def decodes(monkeypatch):
    """How many images Pillow itself decoded in this process."""
    seen, original = [], JpegImageFile.load

    def load(image):
        seen.extend(["decoded"] * bool(image.tile))
        return original(image)

    monkeypatch.setattr(JpegImageFile, "load", load)
    return seen


@pytest.fixture
def png_decodes(monkeypatch):
    """How many PNG images Pillow itself decoded in this process."""
    seen, original = [], PngImageFile.load

    def load(image):
        seen.extend(["decoded"] * bool(image.tile))
        return original(image)

    monkeypatch.setattr(PngImageFile, "load", load)
    return seen


@pytest.fixture
def put_on(decodes):
    """What puts the lever on, with a number of bytes."""
    undos = []

    def act(limit_bytes=1 << 20, *, is_on_disk=False):
        settings = {"limit_bytes": limit_bytes, "is_on_disk": is_on_disk}
        undos.append(decoded_cache.apply(settings, SESSION))

    yield act
    for undo in undos:
        undo()


class Files(torch.utils.data.Dataset):
    """Opens its files as torchvision does, and crops at random."""

    def __init__(self, folder, *, is_listed=True, ending="jpg"):
        self.names = [folder / f"{index}.{ending}" for index in range(NUM)].__getitem__
        if is_listed:
            self.samples = [(str(self.names(index)), index) for index in range(NUM)]

    def __len__(self):
        return NUM

    def __getitem__(self, index):
        with open(self.names(index), "rb") as file:
            image = Image.open(file).convert("RGB")
        left = int(torch.randint(0, 8, ()))
        image.putpixel((left, 0), (1, 2, 3))  # what is given is the script's own
        return np.array(image.crop((left, 0, left + 16, 16)))


def epochs(rows, num_workers=0, num=2):
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(rows, 4, shuffle=True, num_workers=num_workers)
    return [batch.tolist() for _ in range(num) for batch in loader], torch.rand(1).item()


@pytest.mark.parametrize("is_on_disk", PLACES)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_epochs_are_equal_bit_for_bit(folder, put_on, num_workers, is_on_disk):
    bare = epochs(Files(folder), num_workers)
    put_on(is_on_disk=is_on_disk)

    assert epochs(Files(folder), num_workers) == bare


def test_files_that_are_listed_are_decoded_once_before_the_first_batch(folder, put_on, decodes):
    put_on()
    next(iter(torch.utils.data.DataLoader(Files(folder), 4)))
    assert len(decodes) == NUM

    epochs(Files(folder))
    assert len(decodes) == NUM


def test_files_that_are_not_listed_are_kept_as_they_are_read(folder, put_on, decodes):
    put_on()
    epochs(Files(folder, is_listed=False), num=3)

    assert len(decodes) == NUM


def test_what_a_worker_decoded_is_there_for_others_and_for_later_epochs(folder, put_on, decodes):
    put_on()
    epochs(Files(folder, is_listed=False), num_workers=2, num=1)
    assert not decodes

    epochs(Files(folder, is_listed=False), num=1)
    assert not decodes


@pytest.mark.parametrize("is_on_disk", PLACES)
def test_a_store_that_is_full_keeps_what_it_has(folder, put_on, decodes, is_on_disk):
    bare = epochs(Files(folder))
    num_before = len(decodes)
    put_on(5 * 3 * SIDE * SIDE + 7, is_on_disk=is_on_disk)

    assert epochs(Files(folder, is_listed=False)) == bare
    assert len(decodes) - num_before == 2 * NUM - 5


def test_a_file_that_was_written_again_is_decoded_again(folder, put_on):
    put_on()
    before = np.array(Image.open(folder / "0.jpg"))
    Image.new("RGB", (SIDE, SIDE), (9, 9, 9)).save(folder / "0.jpg")
    after = np.array(Image.open(folder / "0.jpg"))

    assert before.shape == after.shape
    assert not (before == after).all()


def test_bytes_in_memory_are_known_by_what_they_are(folder, put_on, decodes):
    put_on()
    data = (folder / "0.jpg").read_bytes()
    images = [Image.open(io.BytesIO(data)) for _ in range(3)]

    assert len({image.tobytes() for image in images}) == 1
    assert len(decodes) == 1
    assert images[0].info == images[2].info


def test_a_smaller_image_that_was_asked_for_is_another_one(folder, put_on):
    put_on()
    whole = Image.open(folder / "0.jpg")
    whole.load()
    half = Image.open(folder / "0.jpg")
    half.draft("RGB", (SIDE // 2, SIDE // 2))

    assert np.array(half).shape[:2] == (SIDE // 2, SIDE // 2)


def test_a_damaged_file_ends_in_pillows_error_each_time(folder, put_on):
    (folder / "0.jpg").write_bytes((folder / "0.jpg").read_bytes()[:-200])
    put_on()
    for _ in range(2):
        with Image.open(folder / "0.jpg") as image, pytest.raises(OSError, match="truncated"):
            image.load()
    next(iter(torch.utils.data.DataLoader(Files(folder), 1, sampler=[1])))  # nobody asks for it


def test_a_store_whose_pixels_differ_is_left(folder, put_on, decodes, monkeypatch):
    monkeypatch.setattr(decoded_images, "EVERY", 2)
    put_on()
    expected = Image.open(folder / "0.jpg").tobytes()
    monkeypatch.setattr(PixelStore, "get", lambda store, key: bytes(len(expected)))
    for _ in range(4):
        found = Image.open(folder / "0.jpg").tobytes()

    assert found == expected
    assert len(decodes) == 4  # the first, the comparison, and all behind it


@pytest.mark.parametrize("first", [decoded_cache, jpeg_decoder])
def test_beside_jpeg_decoder_a_kept_image_is_decoded_by_neither(folder, decodes, first):
    pytest.importorskip("simplejpeg")
    settings = {"limit_bytes": 1 << 20, "is_on_disk": False}
    second = jpeg_decoder if first is decoded_cache else decoded_cache
    before = vars(JpegImageFile)["load"]
    undos = [lever.apply(settings, SESSION) for lever in (first, second)]
    try:
        seen = [np.array(Image.open(folder / "0.jpg")).tolist() for _ in range(5)]
    finally:
        for undo in reversed(undos):
            undo()

    assert len(decodes) == 1  # the decoder compares its first image
    assert seen.count(seen[0]) == 5
    assert vars(JpegImageFile)["load"] is before


# -- PNG files


def chunk(kind, data):
    checksum = zlib.crc32(kind + data).to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + kind + data + checksum


def write_png(path, mode="RGB", **fields):
    """Write an image with a text, a private chunk and a time behind its pixels."""
    shape = (SIDE, SIDE, len(mode)) if len(mode) > 1 else (SIDE, SIDE)
    pixels = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path, "PNG", **fields)
    data = path.read_bytes()
    behind = chunk(b"tEXt", b"who\0me") + chunk(b"prVt", b"own") + chunk(b"zzZz", b"more")
    path.write_bytes(data[:-12] + behind + data[-12:])


def seen_of(path, open_file):
    """Return all that a script can see of an image."""
    with open_file(path) as file:
        image = Image.open(file)
        image.load()
        place = None if isinstance(file, Path) else file.tell()
        found = np.array(image).tolist(), image.convert("RGBA").tobytes(), image.mode, image.info
        return *found, dict(image.text), image.private_chunks, image.fp, image.png, place


@pytest.mark.parametrize("open_file", [lambda path: path.open("rb"), nullcontext])
@pytest.mark.parametrize(
    ("mode", "fields"),
    [("L", {}), ("LA", {}), ("RGB", {}), ("RGBA", {}), ("RGB", {"transparency": (1, 2, 3)})],
)
def test_a_png_that_is_kept_is_left_as_pillow_leaves_it(
    tmp_path, put_on, png_decodes, mode, fields, open_file
):
    write_png(tmp_path / "a.png", mode, **fields)
    bare = seen_of(tmp_path / "a.png", open_file)
    num_before = len(png_decodes)
    put_on()

    assert [seen_of(tmp_path / "a.png", open_file) for _ in range(3)] == [bare] * 3
    assert len(png_decodes) == num_before + 1
    assert bare[4] == {"who": "me"}


def pixels_of(path):
    with Image.open(path) as image:
        return image.tobytes()


def write_interlaced(path):
    """Write an image of one pixel, whose rows are those of its first pass."""
    header = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 1])
    pixels = chunk(b"IDAT", zlib.compress(bytes([0, 9, 8, 7])))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b""))


def write_frames(path):
    first, *others = [Image.new("RGB", (SIDE, SIDE), (9 * i, 1, 2)) for i in range(3)]
    first.save(path, save_all=True, append_images=others)


ODD = {
    "palette": lambda path: Image.new("P", (SIDE, SIDE), 3).save(path),
    "bits": lambda path: Image.new("1", (SIDE, SIDE), 1).save(path),
    "16 bits": lambda path: Image.fromarray(np.full((SIDE, SIDE), 999, np.uint16)).save(path),
    "interlaced": write_interlaced,
    "frames": write_frames,
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_png_is_decoded_by_pillow_each_time(tmp_path, put_on, png_decodes, kind):
    ODD[kind](tmp_path / "a.png")
    bare = pixels_of(tmp_path / "a.png")
    png_decodes.clear()
    put_on()

    assert {pixels_of(tmp_path / "a.png") for _ in range(2)} == {bare}
    assert len(png_decodes) == 2


def test_pictures_of_a_stream_that_holds_several_are_not_kept(tmp_path, put_on, png_decodes):
    write_png(tmp_path / "a.png")
    (tmp_path / "two.png").write_bytes((tmp_path / "a.png").read_bytes() * 2)
    put_on()
    for _ in range(2):
        with (tmp_path / "two.png").open("rb") as file:
            Image.open(file).load()

    assert len(png_decodes) == 2


def test_a_folder_of_pngs_is_read_ahead_and_kept(folder, put_on, png_decodes):
    for index in range(NUM):
        Image.open(folder / f"{index}.jpg").save(folder / f"{index}.png")
    bare = epochs(Files(folder, ending="png"))
    png_decodes.clear()
    put_on()

    assert epochs(Files(folder, ending="png")) == bare
    assert len(png_decodes) == NUM


def test_a_png_whose_pixels_differ_is_decoded_from_then_on(
    tmp_path, put_on, png_decodes, monkeypatch
):
    write_png(tmp_path / "a.png")
    monkeypatch.setattr(decoded_images, "EVERY", 2)
    put_on()
    expected = Image.open(tmp_path / "a.png").tobytes()
    monkeypatch.setattr(PixelStore, "get", lambda store, key: bytes(len(expected)))
    found = [Image.open(tmp_path / "a.png").tobytes() for _ in range(4)][-1]

    assert found == expected
    assert len(png_decodes) == 4


# -- the store


@pytest.mark.parametrize("is_on_disk", PLACES)
def test_a_store_never_holds_more_than_its_limit(is_on_disk):
    store = PixelStore(10_000, is_on_disk=is_on_disk)
    for index in range(40):
        store.put(bytes([index]) * 16, bytes([index]) * 1100)
    kept = [index for index in range(40) if store.get(bytes([index]) * 16) is not None]

    assert sum(len(store.get(bytes([index]) * 16)) for index in kept) <= 10_000
    assert all(bytes(store.get(bytes([i]) * 16)) == bytes([i]) * 1100 for i in kept)
    assert len(kept) == 9
    store.close()


def test_on_a_full_disk_it_goes_on_without(monkeypatch):
    store = PixelStore(10_000, is_on_disk=True)
    store.put(b"a" * 16, b"kept")

    def refuse(*words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pixel_store.os, "pwrite", refuse)
    store.put(b"b" * 16, b"lost")

    assert store.is_closed
    assert store.get(b"b" * 16) is None
    store.close()


def test_a_descriptor_that_the_script_took_is_not_written_to(tmp_path):
    store = PixelStore(10_000, is_on_disk=True)
    assert isinstance(store.place, PixelDisk)
    number = store.place.file
    other = os.open(tmp_path / "checkpoint", os.O_RDWR | os.O_CREAT)
    os.dup2(other, number)
    store.put(b"a" * 16, b"ours")

    assert store.is_closed
    assert (tmp_path / "checkpoint").read_bytes() == b""
    os.close(other)
    os.close(number)


# -- where it is offered


def facts(**fields):
    loader = LoaderFacts(dataset="ImageFolder", **{"decodes_jpeg": True, **fields})
    return Facts(torch_version="2.13.0", loaders=(loader,), available_bytes=8 << 30)


def test_it_is_offered_where_jpegs_are_decoded_with_room_in_memory_or_on_disk():
    assert decoded_cache.LEVER.applies(facts()) is None
    assert "No sample" in decoded_cache.LEVER.applies(facts(decodes_jpeg=None, is_in_memory=True))
    assert decoded_cache.LEVER.applies(facts(decodes_jpeg=False, decodes_png=True)) is None
    both = decoded_cache.LEVER.applies(facts(decodes_jpeg=False, decodes_png=False))
    assert both == "No sample was made from a JPEG or PNG file by Pillow."
    assert decoded_cache.LEVER.space(facts(num_samples=1000)) == (
        {"limit_bytes": 2 << 30, "is_on_disk": False},
    )
    assert decoded_cache.LEVER.space(facts(num_samples=10**6))[0]["is_on_disk"] is True
