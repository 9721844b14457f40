"""Keeps decoded JPEG and PNG images, so that later epochs decode none.

What is random of a sample (crops, flips, colors) comes after the decoding, and the decoding gives
the same pixels each time; so it alone is saved, whatever data set opens the files with Pillow, in
the training process and in workers. A file that changes on disk is decoded again. PNG files with a
palette, of other than 8 bits, interlaced or animated are always decoded by Pillow.

A data set that lists its files is read ahead for some seconds before the first batch, so that a
trial measures what later epochs cost.

Source: the idea of `cache` behind the decoding in
https://www.tensorflow.org/guide/data_performance, and Mohan et al., Analyzing and Mitigating Data
Stalls in DNN Training (2021), https://arxiv.org/abs/2007.06775: keep what fits, replace nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from ..tools.memory_room import bytes_to_keep
from .decoded_images import DecodedImages
from .jpeg import pillow, put_around, why_no_jpeg
from .pixel_store import PixelStore

USUAL_BYTES = 600_000
"""Of a decoded photo, 500 x 375, where the size of a sample is not known."""


def applies(facts: Facts) -> str | None:
    """It applies where samples are made from JPEG or PNG files by Pillow."""
    return why_no_jpeg(facts, is_png_meant=True)


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return where images are kept: in memory if they seem to fit, else on the disk."""
    limit = bytes_to_keep(facts, if_unknown=4 << 30)
    needed = sum(
        (loader.num_samples or 0) * (loader.sample_bytes or USUAL_BYTES)
        for loader in facts.loaders or ()
    )
    if needed <= limit:
        return ({"limit_bytes": limit, "is_on_disk": False},)
    return ({"limit_bytes": 2 * needed // facts.world_size, "is_on_disk": True},)


def apply(settings: Settings, session: Session) -> Undo:
    """Let Pillow's classes of images ask one store first, here and in forked processes."""
    modules = pillow()
    if modules is None:
        return lambda: None
    classes = modules[1].JpegImageFile, import_module("PIL.PngImagePlugin").PngImageFile
    store = PixelStore(int(settings["limit_bytes"]), is_on_disk=bool(settings["is_on_disk"]))
    kinds = [DecodedImages(modules[0], one, store, one.load) for one in classes]
    ways_back = [put_around(one, kind) for one, kind in zip(classes, kinds, strict=True)]
    loader_class, seen = session.torch.utils.data.DataLoader, set[int]()
    iterate = loader_class.__iter__

    def read_ahead_and_iterate(loader: Any) -> Any:
        if id(loader.dataset) not in seen and session.torch.is_grad_enabled():
            seen.add(id(loader.dataset))
            kinds[0].read_ahead(loader.dataset)
        return iterate(loader)

    def undo() -> None:
        loader_class.__iter__ = iterate
        for take_back in ways_back:
            take_back()
        store.close()

    loader_class.__iter__ = read_ahead_and_iterate
    return undo


LEVER = Lever(
    name="decoded_cache",
    title="Keep decoded JPEG and PNG images in memory or on disk for later epochs.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch"),
    preserves=Preserves.EXACT,
    when=(
        "Samples are made from JPEG or PNG files that Pillow opens, in the training process or in "
        "forked workers. It pays off from the second epoch on."
    ),
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "@functools.cache\n"
        "def decoded(path):\n"
        '    return Image.open(path).convert("RGB")\n'
        "\n\n"
        "image = decoded(path).copy()  # in place of Image.open(path)"
    ),
    costs="Memory or disk for the decoded images, up to the limit. The first epoch gains nothing: "
    "it writes each image once, and files that the data set lists are read for up to 5 s before "
    "the first batch.",
    source="https://arxiv.org/abs/2007.06775",
)
