"""Decodes large JPEG photos at one half, a quarter or an eighth where they are made smaller next.

libjpeg can leave out the high frequencies of each block of 8 x 8 pixels, and so decode a photo
smaller for a fraction of the work; Pillow's `draft` asks for that. It is done for samples whose
first transform is torchvision's Resize or RandomResizedCrop (timm's too), as far as what is resized
stays twice as large as the result on either side (`gap`). Of random crops that holds for the
median, and the least one keeps at least the pixels of the result: no crop is enlarged that was
reduced before. The pixels of a sample differ by some grey levels from those of a whole decoding.

Source: Pillow, `Image.draft` and `Image.thumbnail`, which does the same with a `reducing_gap` of
2.0: https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.thumbnail.
"""

from __future__ import annotations

from typing import Any

from ._first_resize import GAP, why_not_scaled
from ._jpeg import pillow, put_around, why_no_jpeg
from ._scaled_reads import ScaledImages, ScaledReads
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo


def applies(facts: Facts) -> str | None:
    """It applies where JPEG files are decoded that a resize makes much smaller, for classes."""
    if why := why_no_jpeg(facts):
        return why
    reasons = [why_not_scaled(loader) for loader in facts.loaders or ()]
    return reasons[0] if reasons and None not in reasons else None


def apply(settings: Settings, session: Session) -> Undo:
    """Let the fetchers of map-style data sets read images that are decoded smaller."""
    modules = pillow()
    if modules is None:
        return lambda: None
    torch, image_class = session.torch, modules[1].JpegImageFile
    scaled = ScaledImages(image_class, float(settings["gap"]), image_class.load)
    take_back = put_around(image_class, scaled)
    kind_class = torch.utils.data.dataloader._DatasetKind
    before, make = kind_class.__dict__["create_fetcher"], kind_class.create_fetcher

    def create_fetcher(kind: Any, dataset: Any, auto: Any, collate_fn: Any, *rest: Any) -> Any:
        is_meant = auto and kind == kind_class.Map and torch.is_grad_enabled()
        first = scaled.find(dataset) if is_meant else None
        if first is not None:
            dataset = put_inside(scaled, dataset, first, torch)
        return make(kind, dataset, auto, collate_fn, *rest)

    def undo() -> None:
        kind_class.create_fetcher = before
        take_back()
        scaled.undo()

    kind_class.create_fetcher = staticmethod(create_fetcher)
    return undo


def put_inside(scaled: ScaledImages, dataset: Any, first: Any, torch: Any) -> Any:
    """Return a data set that reads so; inside of one that gives whole batches."""
    if type(dataset).__name__ == "ReadInBatches":  # of `batched_transform`
        return type(dataset)(dataset.chains, ScaledReads(scaled, dataset.dataset, first, torch))
    return ScaledReads(scaled, dataset, first, torch)


LEVER = Lever(
    name="scaled_decoding",
    title="Decode large JPEG photos at a fraction of their size where the next step shrinks them.",
    relieves=("INPUT_BOUND",),
    phases=("input_wait", "fetch"),
    preserves=Preserves.STATISTICAL,
    when=(
        "Samples are an image and class numbers; Pillow opens the image from a JPEG file, and the "
        "first transform is a Resize or RandomResizedCrop of torchvision or timm to at most about "
        "a quarter of its side. Evaluations without gradients keep whole images."
    ),
    applies=applies,
    space=lambda facts: ({"gap": GAP},),
    moment=Moment.STARTUP,
    judged_by_cpu_time=True,
    judged_beside_others=True,
    apply=apply,
    edit=lambda settings: (
        "image = Image.open(path)\n"
        f"image.draft(None, ({settings['gap']:g} * size, {settings['gap']:g} * size))"
        "  # of the resize that follows\n"
        'image = image.convert("RGB")'
    ),
    costs="The pixels of a sample differ by some grey levels. A data set that does something else "
    "with an image before its transform is read twice in one batch, then left alone.",
    source="https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.thumbnail",
)
