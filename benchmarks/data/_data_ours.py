"""An epoch of Steptime's loader over the same samples as its rivals in `_data_rivals.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _data_rivals import BATCH, Epoch, arm, decode_with_pillow, decode_with_simplejpeg


def _source(folder: Path, name: str) -> Any:
    from steptime.data import open_source

    return open_source(str(folder / name))


def _pixels(source: Any) -> str:
    """Return the column with the pixels, or with the pictures that hold them."""
    return next(column.name for column in source.columns if column.kind in ("image", "array"))


def _loader(source: Any, **facts: Any) -> Epoch:
    from steptime.data import Loader

    names = [_pixels(source), "label"]
    loader = Loader(source, batch_size=BATCH, columns=names, as_tuple=True, **facts)
    return lambda: loader


@arm("ab")
def steptime_prepared(kind: str, folder: Path) -> Epoch:
    """Mapped arrays that `steptime data convert` wrote: decoded pixels, whole batches, shuffled."""
    return _loader(_source(folder, "prepared"))


@arm("ab")
def steptime_npy(kind: str, folder: Path) -> Epoch:
    """The same from plain .npy files."""
    return _loader(_source(folder, "npy"))


@arm("a")
def steptime_mapdataset(kind: str, folder: Path) -> Epoch:
    """The same source under torch's own DataLoader."""
    from torch.utils.data import DataLoader

    from steptime.data import MapDataset

    data = MapDataset(_source(folder, "prepared"), columns=["image", "label"], as_tuple=True)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    return lambda: loader


def _jpegs(folder: Path, decode: Callable[[bytes], np.ndarray[Any, Any]]) -> Epoch:
    source = _source(folder, "files")
    name = _pixels(source)

    def decoded(columns: Any) -> Any:
        return {**columns, name: np.stack([decode(data) for data in columns[name]])}

    return _loader(source, decode=decoded)


@arm("b")
def steptime_jpeg_pillow(kind: str, folder: Path) -> Epoch:
    """JPEG kept as JPEG, loose files, decoded by Pillow."""
    return _jpegs(folder, decode_with_pillow)


@arm("b")
def steptime_jpeg_simplejpeg(kind: str, folder: Path) -> Epoch:
    """JPEG kept as JPEG, loose files, decoded by simplejpeg: the pixels that Pillow gives."""
    return _jpegs(folder, decode_with_simplejpeg)
