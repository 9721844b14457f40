"""Which levers of the input fit what a run showed of its data set.

In: a lever's name and a Measurement. Out: whether the lever may act here; the lever's own facts
decide in the trial. Of a run that shows nothing of its data set, levers of images and of graphs
are not named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from steptime.measure.values.measurement import Measurement
from steptime.measure.values.observations import LoaderUse

_OF_SOME_DATA = (
    *("decoded_cache", "jpeg_decoder", "prepared_data"),
    *("fused_sampling", "preloaded_samples"),
)
"""Levers that are named only where a run showed what they act on."""

_IMAGES_IN_MEMORY = ("torchvision.datasets.mnist", "torchvision.datasets.cifar")

_DRAWING = ("Random", "AutoAugment", "TrivialAugment", "AugMix", "ColorJitter", "MixUp", "CutMix")
"""How the names of transforms begin that give another sample each time."""


def fits_input(lever: str, measurement: Measurement) -> bool:
    """Return whether a lever of the input may act on a loader of this run."""
    fits = _FITS.get(lever)
    uses = [use for rank in measurement.ranks for use in rank.loaders if use.module is not None]
    if fits is None:
        return True
    return fits(uses, measurement) if uses else lever not in _OF_SOME_DATA


def is_superseded(lever: str, in_use: Collection[str]) -> bool:
    """Return whether a lever has nothing left to do beside those that are in use."""
    return any(lever in _SUPERSEDES.get(name, ()) for name in in_use)


def _opens_images(uses: Sequence[LoaderUse], measurement: Measurement) -> bool:
    workers = measurement.workers
    in_worker = workers is not None and workers.opens_images
    return in_worker or any(use.opens_images for use in uses)


def _is_plain(uses: Sequence[LoaderUse], measurement: Measurement) -> bool:
    """Return whether a data set is over tensors, or over images in memory that nothing draws on."""
    tensors = any((use.module or "").startswith("torch.utils.data") for use in uses)
    images = [use for use in uses if (use.module or "").startswith(_IMAGES_IN_MEMORY)]
    return tensors or (bool(images) and _repeats(images, measurement))


def _repeats(uses: Sequence[LoaderUse], measurement: Measurement) -> bool:
    """Return whether a sample may be the same each time that it is read."""
    return any(not any(name.startswith(_DRAWING) for name in use.transforms) for use in uses)


def _decodes(uses: Sequence[LoaderUse], measurement: Measurement) -> bool:
    return _opens_images(uses, measurement) or any(use.transforms for use in uses)


_FITS: Mapping[str, Callable[[Sequence[LoaderUse], Measurement], bool]] = {
    "whole_batch_fetch": _is_plain,
    "preloaded_samples": _repeats,
    "dataset_cache": _repeats,
    "decoded_cache": _decodes,
    "jpeg_decoder": _opens_images,
    "prepared_data": _opens_images,
    "fused_sampling": lambda uses, _: any(use.dataset == "range" for use in uses),
}

_SUPERSEDES: Mapping[str, tuple[str, ...]] = {
    "prepared_data": ("jpeg_decoder", "decoded_cache"),
    "decoded_cache": ("jpeg_decoder", "prepared_data"),
}
"""Of a lever, those that would make cheaper what it has removed: the decoding of an image."""
