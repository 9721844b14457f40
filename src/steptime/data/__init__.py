"""The data of a training: read it, prepare it once, feed it, check it. Needs `steptime[data]`."""

from __future__ import annotations

import typing
from typing import Any

if typing.TYPE_CHECKING:
    from steptime.data.feed.array_source import ArraySource
    from steptime.data.feed.feed_loader import Loader
    from steptime.data.feed.image_decoder import ImageDecoder
    from steptime.data.feed.map_dataset import MapDataset
    from steptime.data.prepared.prepared_source import open_prepared
    from steptime.data.source import Column, SampleSource
    from steptime.data.sources.opening import open_source
    from steptime.data.stores.cloud_files import CloudFiles
    from steptime.data.tiers.cached_source import CachedSource
    from steptime.errors import DataError, MissingExtraError

__all__ = [
    "ArraySource",
    "CachedSource",
    "CloudFiles",
    "Column",
    "DataError",
    "ImageDecoder",
    "Loader",
    "MapDataset",
    "MissingExtraError",
    "SampleSource",
    "open_prepared",
    "open_source",
]

# Each is imported when somebody asks for it, with the packages that it needs.
_PLACES = {
    "ArraySource": "data.feed.array_source",
    "CachedSource": "data.tiers.cached_source",
    "CloudFiles": "data.stores.cloud_files",
    "Column": "data.source",
    "DataError": "errors",
    "ImageDecoder": "data.feed.image_decoder",
    "Loader": "data.feed.feed_loader",
    "MapDataset": "data.feed.map_dataset",
    "MissingExtraError": "errors",
    "SampleSource": "data.source",
    "open_prepared": "data.prepared.prepared_source",
    "open_source": "data.sources.opening",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from steptime.errors import MissingExtraError

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"steptime.{_PLACES[name]}")
    except ImportError as error:
        raise MissingExtraError(
            f"steptime.data.{name} needs a package that cannot be imported: {error}",
            needs="steptime[data]",
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
