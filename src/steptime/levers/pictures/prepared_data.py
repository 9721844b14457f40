"""Takes the pixels of pictures from a copy that `steptime data convert FOLDER COPY --decode` made.

Pillow still opens the file and says its mode, size and metadata; where it would decode, the pixels
come from the copy, if size and time of the file are those of the file that was converted. The first
16 images of each process are decoded as well, then one in 64; as soon as one differs, Pillow
decodes on. So it does where the copy is missing or damaged, or a smaller image was asked for.

Source: the idea of FFCV's raw images (https://docs.ffcv.io/), with the script's own data set kept.
"""

from __future__ import annotations

from typing import Any

from ..base import Facts, Lever, Moment, Preserves, Session, Settings, Undo
from .jpeg import Decoder, can_decode, pillow, put_around
from .prepared import FAILURES, PreparedCopy, find_pixels


def applies(facts: Facts) -> str | None:
    """It applies where a copy lies beside the folder that a loader reads."""
    if facts.loaders is not None and not facts.loaders:
        return "No DataLoader fed the training."
    if facts.loaders is None or any(loader.prepared is None for loader in facts.loaders):
        if not folders(facts):
            return "It was not observed whether a prepared copy lies beside the data."
    elif not folders(facts):
        return (
            "No prepared copy lies beside the data: make one with `steptime data convert FOLDER "
            "FOLDER.prepared --decode`."
        )
    return None


def folders(facts: Facts) -> list[str]:
    """Return the copies that were found."""
    return sorted({loader.prepared for loader in facts.loaders or () if loader.prepared})


def space(facts: Facts) -> tuple[Settings, ...]:
    """Return each copy."""
    return tuple({"folder": folder} for folder in folders(facts))


def apply(settings: Settings, session: Session) -> Undo:
    """Let Pillow's class of JPEG images load from the copy, in this process and forked ones."""
    try:
        copy = PreparedCopy(str(settings["folder"]))
    except FAILURES:
        session.count("unusable_copy")
        return lambda: None
    modules = pillow()
    if modules is None:
        return lambda: None
    image_module, image_class = modules[0], modules[1].JpegImageFile

    def from_copy(copy: PreparedCopy, core: Any, image: Any) -> Any:
        return find_pixels(copy, image_module, image) if can_decode(image) else None

    return put_around(image_class, Decoder(modules, copy, image_class.load, from_copy))


LEVER = Lever(
    name="prepared_data",
    title="Take the pixels of pictures from a prepared copy in place of decoding them.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch"),
    preserves=Preserves.EXACT,
    when=(
        "A data set opens the JPEG files of a folder with Pillow, and the folder has a copy with "
        "their pixels, FOLDER.prepared, made with `steptime data convert FOLDER FOLDER.prepared "
        "--decode`. A recipe may name a copy elsewhere."
    ),
    applies=applies,
    space=space,
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        f"copy = steptime.data.open_source({str(settings['folder'])!r})\n"
        "loader = steptime.data.Loader(copy, batch_size=..., seed=0)"
    ),
    costs=(
        "The copy is several times as large as the JPEG files. If it does not fit into memory, a "
        "slow disk may make it slower than decoding. A process decodes its first 16 images as "
        "well, then one in 64."
    ),
    source="https://docs.ffcv.io/",
)
