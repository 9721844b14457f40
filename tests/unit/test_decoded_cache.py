"""The lever `decoded_cache`: what is decoded once is found again, and nothing else changes."""

import io
import os
from types import SimpleNamespace

import pytest

from steptime.levers import _decoded_images, _pixel_store, decoded_cache, jpeg_decoder
from steptime.levers._pixel_store import PixelDisk, PixelStore
from steptime.levers.base import Facts, LoaderFacts

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
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

    def __init__(self, folder, *, is_listed=True):
        self.folder = folder
        if is_listed:
            self.samples = [(str(folder / f"{index}.jpg"), index) for index in range(NUM)]

    def __len__(self):
        return NUM

    def __getitem__(self, index):
        with open(self.folder / f"{index}.jpg", "rb") as file:
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
    monkeypatch.setattr(_decoded_images, "EVERY", 2)
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

    monkeypatch.setattr(_pixel_store.os, "pwrite", refuse)
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
    assert "No sample" in decoded_cache.LEVER.applies(facts(decodes_jpeg=False))
    assert "No sample" in decoded_cache.LEVER.applies(facts(decodes_jpeg=None, is_in_memory=True))
    assert decoded_cache.LEVER.space(facts(num_samples=1000)) == (
        {"limit_bytes": 2 << 30, "is_on_disk": False},
    )
    assert decoded_cache.LEVER.space(facts(num_samples=10**6))[0]["is_on_disk"] is True
