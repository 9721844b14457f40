"""The first steps see smaller images; their sides grow to the whole image.

A convolution costs in proportion to the pixels, so half the side costs a quarter. Images are made
smaller (bilinear, against aliasing) as the model is called in training mode with gradients. Each
new size is tried once: the model is called with it, without a trace, beside the script's call with
whole images, and where that fails or gives another shape, as for a segmentation, a fixed linear
head or embedded positions, whole images stay. Evaluations see whole images.

Source: Karras et al., Progressive Growing of GANs (2018, arXiv 1710.10196); Howard, Training
Imagenet in 3 hours (2018, fast.ai, DAWNBench), for classifiers; Tan and Le, EfficientNetV2 (2021,
arXiv 2104.00298), section 4.
"""

from __future__ import annotations

import weakref
from typing import Any

from ._dry_call import dry_call
from ._growth import GROWTH_STEPS, GrowingShare
from ._smaller_images import image_in, made_smaller, shapes_of, size_at
from .base import Facts, Lever, Moment, Preserves, Session, Settings, Undo

STARTS = (0.75, 0.5)
"""Of a side; the milder change first."""

REFUSES = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What a model raises that does not take a size."""


def applies(facts: Facts) -> str | None:
    """It applies to models with convolutions that are not compiled."""
    if facts.has_convolution is False:
        return "The model has no convolution."
    if facts.has_token_embedding:
        return "The model embeds tokens."
    if facts.uses_compile:
        return "The script compiles its model, which would be compiled again for each size."
    return None


def apply(settings: Settings, session: Session) -> Undo:
    """Call models with smaller images while fewer steps were made than the growth takes."""
    torch, growth = session.torch, GrowingShare(settings)
    known: weakref.WeakKeyDictionary[Any, dict[Any, bool]] = weakref.WeakKeyDictionary()

    def tried(call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        """Return the shapes that a call without a trace gives; None where it fails."""
        with dry_call(torch, model):
            try:
                return shapes_of(torch, call(model, *args, **kwargs))
            except REFUSES:
                return None

    def call_model(call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        now = growth.fraction()
        image = image_in(torch, (args, kwargs)) if now < 1 and model.training else None
        small = None if image is None else size_at(image.shape[2:], now)
        if image is None or small is None or small == tuple(image.shape[2:]):
            return call(model, *args, **kwargs)
        sizes = known.setdefault(model, {})
        if sizes.get(small) is False:
            return call(model, *args, **kwargs)
        smaller = made_smaller(torch, (args, kwargs), image.shape[2:], small)
        if small in sizes:
            session.count("smaller_call")
            return call(model, *smaller[0], **smaller[1])
        shapes = tried(call, model, *smaller)  # first: the real call's graph holds buffers
        result = call(model, *args, **kwargs)
        sizes[small] = shapes == shapes_of(torch, result)
        if not sizes[small]:
            session.count("refused_size")
        return result

    undos = (growth.watch(session), session.wrap_calls(call_model))

    def undo() -> None:
        for take_back in undos:
            take_back()

    return undo


def edit(settings: Settings) -> str:
    """Return the lines that do it in the script."""
    start, steps = settings["start"], settings["steps"]
    return (
        f"side = min(1.0, {start} + {1 - float(start):g} * step / {steps}) * images.shape[-1]\n"
        "side = round(side / 8) * 8  # images of equal sides\n"
        "images = F.interpolate(images, size=side, mode='bilinear', antialias=True)"
    )


LEVER = Lever(
    name="progressive_resolution",
    title="Let the first steps see smaller images, whose sides grow to the whole image.",
    relieves=("COMPUTE_BOUND", "MEMORY_BANDWIDTH_BOUND", "BALANCED"),
    phases=("forward", "loss", "forward_and_loss", "backward"),
    preserves=Preserves.NOTHING,
    when="The model has convolutions, is not compiled, takes images (rows, 1 or 3, height, width) "
    "and gives the same shape for a smaller one. It changes the training, so it is not tried "
    "unless that is allowed, and not kept without proof over seeds.",
    applies=applies,
    space=lambda facts: tuple({"start": one, "steps": GROWTH_STEPS} for one in STARTS),
    moment=Moment.STARTUP,
    apply=apply,
    edit=edit,
    costs="As many steps see fewer pixels, and small things may vanish. Each new size is tried by "
    "one more forward, and cuDNN's benchmark begins again. Statistics of batch norms follow the "
    "sizes. Set `steps` in the recipe: a third to two thirds of yours.",
    source="https://arxiv.org/abs/2104.00298",
)
