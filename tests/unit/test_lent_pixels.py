"""A copy by `convert` has the decoded pixels; nobody sees that the opened image lent them."""

import gc
import io
import pickle
from types import SimpleNamespace

import pytest

from steptime.levers.pictures import jpeg, jpeg_decoder
from unit.lever_switch import switching
from unit.test_jpeg_decoder import OTHERS, PLAIN

np = pytest.importorskip("numpy")
simplejpeg = pytest.importorskip("simplejpeg")
Image = pytest.importorskip("PIL.Image")
JpegImagePlugin = pytest.importorskip("PIL.JpegImagePlugin")

RED = {"RGB": (255, 0, 0), "L": 255}


def paint(image):
    image.paste(RED[image.mode], (0, 0, 9, 9))


def write_pixel(image):
    image.load()[3, 3] = RED[image.mode]


def draw(image):
    pytest.importorskip("PIL.ImageDraw").Draw(image).line((0, 0, 30, 30), RED[image.mode])


USES = {
    "nothing": lambda opened, copy: None,
    "paint the copy": lambda opened, copy: paint(copy),
    "paint the opened": lambda opened, copy: paint(opened),
    "write into both": lambda opened, copy: (write_pixel(copy), draw(opened)),
    "draw on the copy": lambda opened, copy: draw(copy),
    "close": lambda opened, copy: opened.close(),
    "pickle": lambda opened, copy: pickle.loads(pickle.dumps((opened, copy))),
    "copy": lambda opened, copy: paint(opened.copy()),
    "thumbnail": lambda opened, copy: opened.thumbnail((9, 9)),
    "turn": lambda opened, copy: copy.transpose(Image.Transpose.ROTATE_90),
}


def seen_of(data, use, mode=None):
    """All that a script sees of an opened image and its copy after it used them."""
    file = io.BytesIO(data)
    opened = Image.open(file)
    copy = opened.convert(mode or opened.mode)
    place = file.tell()
    use(opened, copy)
    seen = [place, copy.mode, copy.size, copy.info, copy.readonly, type(copy), copy.tobytes()]
    seen += [opened.fp, opened.tile, opened.size, dict(opened.getexif())]
    try:
        return [*seen, opened.readonly, opened.tobytes(), np.asarray(opened).sum()]
    except (ValueError, AssertionError) as error:  # it was closed
        return [*seen, type(error)]


@pytest.fixture
def decoded(monkeypatch):
    """How often simplejpeg decoded; no image is compared by the lever itself."""
    monkeypatch.setattr(jpeg, "NUM_FIRST", 0)
    seen, original = [], simplejpeg.decode_jpeg
    monkeypatch.setattr(
        simplejpeg, "decode_jpeg", lambda *words: seen.append(words) or original(*words)
    )
    return seen


def under_lever(act):
    with switching(jpeg_decoder.LEVER, SimpleNamespace()) as put_on:
        put_on()
        return act()


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["420", "gray"])
def test_a_script_sees_what_pillow_shows(decoded, kind, use):
    expected = seen_of(PLAIN[kind], USES[use])

    assert under_lever(lambda: seen_of(PLAIN[kind], USES[use])) == expected
    assert decoded


@pytest.mark.parametrize("kind", OTHERS)
def test_what_pillow_decodes_is_copied_by_pillow(decoded, kind):
    def act():
        try:
            return seen_of(OTHERS[kind], USES["paint the copy"])
        except (OSError, KeyError) as error:
            return str(error)

    expected = act()
    assert under_lever(act) == expected


def test_another_mode_is_converted_by_pillow(decoded):
    expected = seen_of(PLAIN["420"], USES["nothing"], "L")

    assert under_lever(lambda: seen_of(PLAIN["420"], USES["nothing"], "L")) == expected


def test_the_usual_way_to_read_an_image_decodes_once_and_keeps_nothing(decoded):
    def read():
        return Image.open(io.BytesIO(PLAIN["420"])).convert("RGB")

    with switching(jpeg_decoder.LEVER, SimpleNamespace()) as put_on:
        put_on()
        image = read()
        gc.collect()
        decoder = JpegImagePlugin.JpegImageFile.load.loading
        assert decoder.lent.lent == {}

    assert len(decoded) == 1
    assert image.size == (67, 41)


def test_an_image_that_lent_its_pixels_has_its_own_once_the_lever_is_off(decoded):
    def act():
        opened = Image.open(io.BytesIO(PLAIN["420"]))
        return opened, opened.convert("RGB")

    opened, copy = under_lever(act)
    paint(copy)
    expected = Image.open(io.BytesIO(PLAIN["420"])).tobytes()

    assert opened.tobytes() == expected


def test_the_images_that_are_compared_are_copied_by_pillow():
    expected = seen_of(PLAIN["420"], USES["paint the copy"])

    found = under_lever(lambda: [seen_of(PLAIN["420"], USES["paint the copy"]) for _ in range(70)])
    assert found == [expected] * 70
