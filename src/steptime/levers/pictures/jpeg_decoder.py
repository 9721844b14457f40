"""Decodes JPEG files by simplejpeg where the script opens them with Pillow.

Pillow still opens the file and says its mode, size and metadata; where it would decode, simplejpeg
does, and Pillow holds the pixels as before. The first 16 images of each process are decoded both
ways, then one in 64; as soon as one differs, Pillow decodes on. So it does where a file is
progressive, damaged, has four colors or several images, or where a smaller one was asked for.

Source: simplejpeg (https://pypi.org/project/simplejpeg/), a binding of libjpeg-turbo.
"""

from __future__ import annotations

from importlib import import_module

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .jpeg import Decoder, pillow, put_around, why_no_jpeg


def applies(facts: Facts) -> str | None:
    """It applies where samples are made from JPEG files by Pillow and simplejpeg is there."""
    if why := why_no_jpeg(facts):
        return why
    if facts.has_simplejpeg is False:
        return (
            "The script's Python has no simplejpeg: install it with `pip install simplejpeg`, then "
            "it can be tried."
        )
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Let Pillow's class of JPEG images load by simplejpeg, in this process and forked ones.

    Raises:
        ModuleNotFoundError: there is no simplejpeg.
    """
    simplejpeg = import_module("simplejpeg")
    modules = pillow()
    if modules is None:
        return lambda: None
    image_class = modules[1].JpegImageFile
    return put_around(image_class, Decoder(modules, simplejpeg, image_class.load))


LEVER = Lever(
    name="jpeg_decoder",
    title="Decode JPEG files by simplejpeg in place of Pillow's decoder.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch"),
    preserves=Preserves.EXACT,
    when=(
        "Samples are made from JPEG files that Pillow opens, and simplejpeg is installed. It is "
        "used where both give the same bits: baseline files of one or three colors."
    ),
    applies=applies,
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        'pixels = simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB")\n'
        'image = Image.fromarray(pixels)  # in place of Image.open(path).convert("RGB")'
    ),
    costs="One more package. A process decodes its first 16 images twice, then one in 64.",
    source="https://pypi.org/project/simplejpeg/",
)
