"""The lever `scaled_decoding`: images are decoded smaller where a resize follows, there alone."""

import random
import zlib
from types import SimpleNamespace

import pytest

from steptime.levers import (
    _first_resize,
    _scaled_reads,
    batched_transform,
    decoded_cache,
    jpeg_decoder,
    scaled_decoding,
)
from steptime.levers._first_resize import FirstResize, find_first_resize, is_of_classes
from steptime.levers.base import Facts, LoaderFacts

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
JpegImageFile = pytest.importorskip("PIL.JpegImagePlugin").JpegImageFile
torchvision = pytest.importorskip("torchvision_here").load_torchvision()
T, v2 = torchvision.transforms, pytest.importorskip("torchvision.transforms.v2")

SESSION = SimpleNamespace(torch=torch)
NUM, SIZE = 6, (403, 301)
HALF, QUARTER = (202, 151), (101, 76)
CACHE = {"limit_bytes": 64 << 20, "is_on_disk": False}
RESIZE = [T.Resize(32), T.CenterCrop(32), T.ToTensor()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    generator = np.random.default_rng(5)
    found = tmp_path_factory.mktemp("photos")
    for index in range(NUM):
        rough = Image.fromarray(generator.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        rough.resize(SIZE, Image.Resampling.BICUBIC).save(found / f"{index}.jpg", quality=92)
    return found


@pytest.fixture
def sizes(monkeypatch):
    """The sizes at which Pillow itself decoded in this process."""
    seen, original = [], JpegImageFile.load

    def load(image):
        seen.extend([image.size] * bool(image.tile))
        return original(image)

    monkeypatch.setattr(JpegImageFile, "load", load)
    return seen


@pytest.fixture
def put_on(sizes):
    """What puts levers on; they go off in the other order."""
    undos = []

    def act(*levers, gap=2.0):
        settings = {"gap": gap, **CACHE}
        undos.extend([one.apply(settings, SESSION) for one in levers or (scaled_decoding,)])

    yield act
    for undo in reversed(undos):
        undo()


class Photos(torch.utils.data.Dataset):
    """Opens its files as torchvision does."""

    def __init__(self, folder, *steps):
        self.samples = [(str(folder / f"{index}.jpg"), index % 3) for index in range(NUM)]
        self.transform = T.Compose(list(steps or RESIZE))

    def __len__(self):
        return NUM

    def open(self, index):
        with open(self.samples[index][0], "rb") as file:
            return Image.open(file).convert("RGB")

    def __getitem__(self, index):
        return self.transform(self.open(index)), self.samples[index][1]


class Cut(Photos):
    """Cuts the upper left corner out, by its own numbers."""

    def open(self, index):
        return super().open(index).crop((0, 0, 300, 300))


class Darkened(Photos):
    """Changes pixels by their places, and keeps the size."""

    def open(self, index):
        image = super().open(index)
        image.paste((0, 0, 0), (0, 0, 50, 50))
        return image


class Boxed(Photos):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, torch.tensor([4, 5, 60, 70])


class Fussy(Photos):
    """Refuses images of another size than it knows, and draws."""

    def open(self, index):
        random.random()
        torch.rand(1)
        image = super().open(index)
        if image.size != SIZE:
            raise ValueError("another size")
        return image


def epochs(rows, num_workers=0, num=2, batch_size=2):
    torch.manual_seed(0)
    random.seed(0)
    loader = torch.utils.data.DataLoader(rows, batch_size, shuffle=True, num_workers=num_workers)
    return [batch for _ in range(num) for batch in loader], torch.rand(1).item(), random.random()


def content(found):
    return [(zlib.crc32(images.numpy().tobytes()), classes.tolist()) for images, classes in found]


def difference(ours, theirs):
    """The mean difference of two runs' images [grey levels of 255]."""
    pairs = zip(ours, theirs, strict=True)
    return np.mean([float((a - b).abs().mean()) * 255 for (a, _), (b, _) in pairs])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (RESIZE, QUARTER),
        ([T.Resize(60), T.CenterCrop(60), T.ToTensor()], HALF),
        ([T.Resize((30, 100)), T.ToTensor()], HALF),
        ([T.RandomResizedCrop(20, scale=(0.25, 1)), T.ToTensor()], QUARTER),
        (
            [
                v2.PILToTensor(),
                v2.RandomResizedCrop(20, scale=(0.25, 1)),
                v2.ToDtype(torch.float32),
            ],
            QUARTER,
        ),
        (
            [
                v2.Compose([v2.ToImage(), v2.Resize(32)]),
                v2.CenterCrop(32),
                v2.ToDtype(torch.float32),
            ],
            QUARTER,
        ),
        ([T.Compose(RESIZE)], QUARTER),
    ],
)
def test_images_are_decoded_as_small_as_the_first_transform_allows(
    folder, put_on, sizes, steps, expected
):
    rows = Photos(folder, *steps)
    whole, *states = epochs(rows)
    put_on()
    sizes.clear()
    small, *after = epochs(rows)

    assert set(sizes) == {expected}
    assert [classes.tolist() for _, classes in small] == [classes.tolist() for _, classes in whole]
    assert after == states
    assert [images.shape for images, _ in small] == [images.shape for images, _ in whole]


def test_what_is_resized_differs_by_a_few_grey_levels_and_comes_the_same_each_time(folder, put_on):
    whole, *_ = epochs(Photos(folder))
    put_on()
    small, *_ = epochs(Photos(folder))
    again, *_ = epochs(Photos(folder))

    assert 0 < difference(small, whole) < 3
    assert content(again) == content(small)


def test_workers_decode_the_same(folder, put_on):
    put_on()
    here, *_ = epochs(Photos(folder), num=1)
    there, *_ = epochs(Photos(folder), 2, num=1)

    assert content(there) == content(here)


@pytest.mark.parametrize(
    "steps",
    [
        [T.CenterCrop(200), T.Resize(32), T.ToTensor()],
        [T.RandomHorizontalFlip(), T.Resize((32, 32)), T.ToTensor()],
        [T.Resize((32, 32), T.InterpolationMode.NEAREST), T.ToTensor()],
        [T.ToTensor(), T.Resize((32, 32), antialias=False)],
        [T.ToTensor(), T.Resize((32, 32))],
        [T.Resize((150, 150)), T.ToTensor()],
        [T.RandomResizedCrop(64), T.ToTensor()],
    ],
    ids=["crop", "flip", "nearest", "aliased", "floats", "too_small", "small_crops"],
)
def test_other_chains_and_small_images_are_left_alone(folder, put_on, steps):
    rows = Photos(folder, *steps)
    whole, *states = epochs(rows)
    put_on()
    found, *after = epochs(rows)

    assert (content(found), after) == (content(whole), states)


@pytest.mark.parametrize("kind", [Cut, Darkened, Boxed, Fussy])
def test_a_data_set_that_uses_places_is_read_again_from_whole_images(folder, put_on, sizes, kind):
    whole, *states = epochs(kind(folder))
    put_on()
    sizes.clear()
    found, *after = epochs(kind(folder))
    num_small = sum(size != SIZE for size in sizes)

    assert (content(found), after) == (content(whole), states)
    assert 1 <= num_small <= 2  # of the first batch


def test_two_chains_are_left_alone(folder, put_on, sizes):
    rows = Photos(folder)
    rows.strong = T.Compose([T.RandomResizedCrop(20), T.ToTensor()])
    put_on()
    epochs(rows)

    assert set(sizes) == {SIZE}


def test_images_outside_a_read_and_in_evaluations_are_whole(folder, put_on, sizes):
    put_on()
    Image.open(folder / "0.jpg").load()
    with torch.no_grad():
        epochs(Photos(folder))

    assert set(sizes) == {SIZE}


def test_a_size_that_the_script_asked_for_stays(folder, put_on, sizes):
    class Drafted(Photos):
        def open(self, index):
            image = Image.open(self.samples[index][0])
            image.draft("RGB", (200, 150))
            return image.convert("RGB")

    put_on()
    epochs(Drafted(folder))

    assert set(sizes) == {HALF}


@pytest.mark.parametrize("order", [1, -1])
def test_beside_a_cache_and_a_decoder_sizes_never_mix(folder, put_on, sizes, order):
    levers = [scaled_decoding, decoded_cache]
    if pytest.importorskip("simplejpeg"):
        levers.append(jpeg_decoder)
    load = vars(JpegImageFile)["load"]
    put_on()
    small, *_ = epochs(Photos(folder))
    scaled_alone = vars(JpegImageFile)["load"]
    undos = [lever.apply({"gap": 2.0, **CACHE}, SESSION) for lever in levers[::order]]
    sizes.clear()
    found, *_ = epochs(Photos(folder))
    num_small = len(sizes)
    image = Image.open(folder / "0.jpg")
    image.load()
    for undo in reversed(undos):
        undo()

    assert content(found) == content(small)
    assert num_small == NUM  # read ahead as they will be needed, and kept
    assert image.size == SIZE
    assert vars(JpegImageFile)["load"] is scaled_alone is not load


@pytest.mark.parametrize("order", [1, -1])
def test_beside_batched_transforms_it_acts(folder, put_on, sizes, order):
    put_on()
    small, *_ = epochs(Photos(folder))
    sizes.clear()
    put_on(*[scaled_decoding, batched_transform][::order])
    found, *_ = epochs(Photos(folder))

    assert content(found) == content(small)
    assert set(sizes) == {QUARTER}


def test_off_it_leaves_nothing_behind(folder, sizes):
    forward, load = vars(T.Resize)["forward"], vars(JpegImageFile)["load"]
    undo = scaled_decoding.apply({"gap": 2.0}, SESSION)
    epochs(Photos(folder))
    undo()

    assert vars(T.Resize)["forward"] is forward
    assert vars(JpegImageFile)["load"] is load


# -- how small


def test_the_gap_decides():
    step = FirstResize(None, None, 100)

    assert [step.factor(side, 900, 2.0) for side in (399, 400, 799, 800)] == [1, 2, 2, 4]
    assert [step.factor(800, side, 3.0) for side in (599, 600)] == [1, 2]
    assert FirstResize(None, 100, 50).factor(400, 400, 2.0) == 2


def test_the_least_crop_keeps_as_many_pixels_as_the_result_has():
    crop = FirstResize(None, 224, 224, None, (0.08, 1.0), (3 / 4, 4 / 3))
    for width, height in ((1000, 1000), (1830, 1830), (4000, 3000), (9000, 6000)):
        factor = crop.factor(width, height, 2.0)
        least = (0.08 * 0.75 * (width / factor) * (height / factor)) ** 0.5
        median = (0.54 * (width / factor) * (height / factor)) ** 0.5
        assert factor == 1 or (least >= 224 and median >= 2 * 224)

    assert [crop.factor(*size, 2.0) for size in ((1000, 1000), (4000, 3000), (9000, 6000))] == [
        *(1, 2, 8)
    ]


def test_a_factor_that_would_change_the_sides_of_the_result_is_not_taken():
    step = FirstResize(None, None, 10)
    for width in range(400, 700):
        factor = step.factor(width, 401, 2.0)
        small = -(-width // factor), -(-401 // factor)
        assert step.result(width, 401) == step.result(*small)
    assert FirstResize(None, None, 10, 12).result(100, 50) == (12, 6)


# -- what a sample is


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((3,), True),
        (("a.jpg", torch.tensor(3), np.int64(4), None), True),
        ((0.5,), False),
        ((torch.zeros(8, 8, dtype=torch.int64),), False),
        ((torch.zeros(1, 8, 8),), False),
        (({"boxes": [1, 2]},), False),
    ],
)
def test_a_sample_of_classes(others, expected):
    image = torch.zeros(3, 8, 8)

    assert is_of_classes((image, *others)) is expected
    assert is_of_classes({"image": image, **{str(i): one for i, one in enumerate(others)}}) is (
        expected
    )


def test_a_sample_without_an_image_is_none():
    assert not is_of_classes((1, 2))
    assert is_of_classes(Image.new("RGB", (4, 4)))


def test_a_crop_of_timm_is_known_by_its_name(folder):
    class RandomResizedCropAndInterpolation:
        def __init__(self):
            self.size, self.scale, self.ratio = (20, 20), (0.25, 1.0), (0.75, 1.33)
            self.interpolation = (2, 3)

    RandomResizedCropAndInterpolation.__module__ = "timm.data.transforms"
    RandomResizedCropAndInterpolation.__qualname__ = "RandomResizedCropAndInterpolation"
    found = find_first_resize(Photos(folder, RandomResizedCropAndInterpolation()))

    assert (found.width, found.areas) == (20, (0.25, 1.0))
    assert find_first_resize(object()) is None


# -- where it is offered


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (RESIZE, "usable"),
        ([T.Resize(250)], "small"),
        ([T.RandomCrop(32)], "no_resize"),
    ],
)
def test_files_that_are_listed_say_whether_they_are_large_enough(folder, steps, expected):
    assert _first_resize.scaled_decoding_of(Photos(folder, *steps)) == expected


def test_where_no_file_is_listed_nothing_is_known_unless_some_were_decoded(folder):
    rows = Photos(folder)
    rows.samples = ["nowhere.jpg", 3]

    assert _first_resize.scaled_decoding_of(rows) is None
    assert _first_resize.scaled_decoding_of(rows, [SIZE]) == "usable"


def facts(**fields):
    loader = LoaderFacts(dataset="ImageFolder", **{"decodes_jpeg": True, **fields})
    return Facts(torch_version="2.13.0", loaders=(loader,))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scaled_decoding": "usable"}, None),
        ({}, None),
        ({"scaled_decoding": "small"}, "too small"),
        ({"scaled_decoding": "no_resize"}, "not known to be a resize"),
        ({"scaled_decoding": "positions"}, "positions of pixels"),
        ({"is_iterable": True}, "stream"),
        ({"decodes_jpeg": False}, "No sample was made from a JPEG"),
        ({"is_in_memory": True}, "No sample was made from a JPEG"),
    ],
)
def test_it_says_why_it_does_not_apply(fields, sentence):
    found = scaled_decoding.LEVER.applies(facts(**fields))

    assert found is None if sentence is None else sentence in found


def test_a_loader_that_it_helps_is_enough():
    small, usable = (facts(scaled_decoding=word).loaders for word in ("small", "usable"))
    both = Facts(torch_version="2.13.0", loaders=(*small, *usable))

    assert scaled_decoding.LEVER.applies(both) is None
    assert "No DataLoader" in scaled_decoding.LEVER.applies(Facts(torch_version="2", loaders=()))
    assert _scaled_reads.NUM_COMPARED < _scaled_reads.EVERY
