"""The lever `jpeg_decoder`: the images are Pillow's own, whoever decodes them."""

import io
from types import SimpleNamespace

import pytest

from steptime.levers.base import Facts, LoaderFacts
from steptime.levers.pictures import jpeg, jpeg_decoder
from unit.lever_switch import switching

np = pytest.importorskip("numpy")
simplejpeg = pytest.importorskip("simplejpeg")
Image = pytest.importorskip("PIL.Image")

LEVER = jpeg_decoder.LEVER
SESSION = SimpleNamespace()


def picture(mode="RGB", size=(67, 41)):
    """Smooth with noise, odd sizes: chroma is upsampled at its edges."""
    generator = np.random.default_rng(3)
    rows, columns = np.mgrid[: size[1], : size[0]]
    plane = (rows * 3 + columns * 2)[..., None] % 256 + generator.integers(
        -20, 20, (*size[::-1], 3)
    )
    return Image.fromarray(plane.clip(0, 255).astype("uint8")).convert(mode)


def encoded(mode="RGB", **options):
    file = io.BytesIO()
    picture(mode).save(file, "JPEG", **options)
    return file.getvalue()


def with_thumbnail():
    exif = Image.Exif()
    exif[0x0112] = 6
    thumbnail = b"Exif\0\0" + exif.tobytes()[6:] + encoded(quality=30)
    return encoded(exif=thumbnail)


@pytest.fixture
def calls(monkeypatch):
    """What simplejpeg decoded; no image is compared by the lever itself."""
    monkeypatch.setattr(jpeg, "NUM_FIRST", 0)
    seen, original = [], simplejpeg.decode_jpeg
    monkeypatch.setattr(
        simplejpeg, "decode_jpeg", lambda *words: seen.append(words) or original(*words)
    )
    return seen


def describe(data, act=lambda image: None):
    """All that a script sees of an image, or its error."""
    file = io.BytesIO(data)
    try:
        with Image.open(file) as image:
            act(image)
            image.load()
            seen = [image.mode, image.size, image.info, dict(image.getexif()), image.readonly]
            seen += [image.tobytes(), image.convert("RGB").tobytes(), image.tile, image.map]
            image.putpixel((1, 1), 7 if image.mode == "L" else (7,) * len(image.getbands()))
            return [*seen, image.tobytes(), file.tell(), type(image).__name__]
    except OSError as error:
        return [str(error), file.tell()]


PLAIN = {
    "444": encoded(subsampling=0, quality=95),
    "422": encoded(subsampling=1),
    "420": encoded(subsampling=2, quality=40),
    "gray": encoded("L"),
    "rgb": encoded(keep_rgb=True),
    "restarts": encoded(restart_marker_blocks=2),
    "optimized": encoded(optimize=True, comment=b"said"),
    "profile": encoded(icc_profile=b"profile", dpi=(72, 72)),
    "thumbnail": with_thumbnail(),
}
OTHERS = {
    "progressive": encoded(progressive=True),
    "cmyk": encoded("CMYK"),
    "truncated": encoded()[:-300],
    "tail": encoded() + b"\0" * 70000,
    "two": encoded() + encoded(quality=10),
    "damaged": encoded()[:900] + b"\xff\xc4\x00\x03" + encoded()[904:],
}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_baseline_file_is_decoded_by_simplejpeg_to_the_same_image(calls, kind):
    expected = describe(PLAIN[kind])

    with switching(LEVER, SESSION) as put_on:
        put_on()
        found = describe(PLAIN[kind])

    assert found == expected
    assert len(calls) == 1


@pytest.mark.parametrize("kind", OTHERS)
def test_what_simplejpeg_does_not_decode_alike_is_pillows(calls, kind):
    expected = describe(OTHERS[kind])

    with switching(LEVER, SESSION) as put_on:
        put_on()
        found = describe(OTHERS[kind])

    assert found == expected


def test_a_smaller_image_that_was_asked_for_is_pillows(calls):
    def draft(image):
        image.draft("RGB", (20, 20))

    expected = describe(PLAIN["420"], draft)
    with switching(LEVER, SESSION) as put_on:
        put_on()
        assert describe(PLAIN["420"], draft) == expected
    assert not calls


def test_a_file_that_pillow_opened_is_closed_again(calls, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(PLAIN["420"])
    with switching(LEVER, SESSION) as put_on:
        put_on()
        image = Image.open(path)
        file = image.fp
        image.load()

    assert file.closed
    assert image.fp is None
    assert len(calls) == 1


def test_the_first_images_are_compared_and_one_that_differs_ends_it(monkeypatch):
    original, seen = simplejpeg.decode_jpeg, []

    def darker(*words):
        seen.append(words)
        return original(*words) // 2

    monkeypatch.setattr(simplejpeg, "decode_jpeg", darker)
    expected = describe(PLAIN["420"])
    with switching(LEVER, SESSION) as put_on:
        put_on()
        assert [describe(PLAIN["420"]) for _ in range(3)] == [expected] * 3

    assert len(seen) == 1


def test_taken_off_pillow_has_its_own_method():
    image_class = pytest.importorskip("PIL.JpegImagePlugin").JpegImageFile
    before = dict(vars(image_class))
    with switching(LEVER, SESSION) as put_on:
        put_on()()

        assert dict(vars(image_class)) == before


def facts(**fields):
    loader = LoaderFacts(dataset="ImageFolder", decodes_jpeg=fields.pop("decodes_jpeg", True))
    return Facts(torch_version="2.13.0", loaders=(loader,), **fields)


def test_it_is_offered_where_jpegs_are_decoded_or_it_is_not_known():
    assert LEVER.applies(facts(has_simplejpeg=True)) is None
    assert LEVER.applies(facts(decodes_jpeg=None)) is None


def test_it_says_what_to_install():
    assert "pip install simplejpeg" in LEVER.applies(facts(has_simplejpeg=False))


def test_it_is_not_offered_where_no_jpeg_is_decoded():
    assert "No sample" in LEVER.applies(facts(decodes_jpeg=False))
