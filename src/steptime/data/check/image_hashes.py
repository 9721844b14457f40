"""A perceptual hash of pictures: pictures that look alike have hashes with few unlike bits.

In: pictures of any size as arrays. Out: hashes of 64 bits, and pairs of them. The hash (dHash)
compares neighbors in a grey picture of 9 x 8 pixels: it does not change by scaling, and changes in
a few bits by compression and by a change of brightness.

Source: Krawetz, Kind of like that (2013), https://www.hackerfactor.com/blog/?/archives/529-.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from steptime.data.pictures import NoPictureError, decode_by_pillow
from steptime.errors import MissingExtraError

HASH_ROWS, HASH_COLUMNS = 8, 8

MAX_UNLIKE_BITS = 2
"""Pairs with more are not taken for one picture."""

MIN_SET_BITS = 6
"""Of a hash and of its complement: smooth pictures (a plain wall, a gradient) all look alike."""

_BANDS = 4  # of 16 bits: with up to 3 unlike bits, one of them is equal


def dhash(pixels: np.ndarray) -> int:
    """Return the hash of a picture.

    Args:
        pixels: (height, width) or (height, width, channels), at least 1 x 1.
    """
    grey = pixels.astype(np.float64)
    if grey.ndim == 3:
        grey = grey[..., :3].mean(axis=2)
    small = _mean_rows(_mean_rows(grey, HASH_ROWS).T, HASH_COLUMNS + 1).T
    bits = (small[:, 1:] > small[:, :-1]).ravel()
    return int(np.packbits(bits).view(">u8")[0])


def _mean_rows(values: np.ndarray, num: int) -> np.ndarray:
    """Return the means of `num` equal parts of the rows, pixels on an edge shared by area."""
    edges = np.linspace(0, len(values), num + 1)
    sums = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    below = np.minimum(edges.astype(int), len(values) - 1)
    at_edges = sums[below] + (edges - below)[:, None] * values[below]
    means: np.ndarray = np.diff(at_edges, axis=0) / np.diff(edges)[:, None]
    return means


def is_telling(picture_hash: int) -> bool:
    """Return whether a hash tells a picture from others; those of plain ones do not."""
    return MIN_SET_BITS <= picture_hash.bit_count() <= 64 - MIN_SET_BITS


def similar_pairs(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the places (in `one`, in `other`) of hashes with at most `MAX_UNLIKE_BITS` unlike bits.

    Args:
        one: (n,) uint64.
        other: (m,) uint64; equal hashes of one picture in both are pairs too.
    """
    seen: set[tuple[int, int]] = set()
    for band in range(_BANDS):
        shift = np.uint64(16 * band)
        keys = (other >> shift) & np.uint64(0xFFFF)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        wanted = (one >> shift) & np.uint64(0xFFFF)
        starts = np.searchsorted(ranked, wanted, "left")
        ends = np.searchsorted(ranked, wanted, "right")
        for i in np.flatnonzero(ends > starts):
            near = order[starts[i] : ends[i]]
            unlike = _num_bits(one[i] ^ other[near])
            seen.update((int(i), int(j)) for j in near[unlike <= MAX_UNLIKE_BITS])
    yield from sorted(seen)


def _num_bits(values: np.ndarray) -> np.ndarray:
    """Return how many bits are set; numpy 1 has no function for it."""
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), 8)
    counts: np.ndarray = np.unpackbits(octets, axis=1).sum(axis=1)
    return counts


def pixels_of(value: Any, *, is_image: bool = False) -> np.ndarray | None:
    """Return the pixels of a picture: an array as it is, an encoded one decoded; None of no one.

    Raises:
        ValueError: the bytes are an image that is damaged, or should be an image and are none.
    """
    if isinstance(value, np.ndarray):
        is_picture = value.ndim == 2 or (value.ndim == 3 and value.shape[-1] in (1, 3, 4))
        return value if is_picture and min(value.shape[:2]) > 1 else None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return None
    held = bytes(value)
    if held[:2] == b"\xff\xd8":
        import simplejpeg

        grey: np.ndarray = simplejpeg.decode_jpeg(held, colorspace="GRAY")
        return grey[..., 0]
    try:
        return decode_by_pillow(held, "L")[..., 0]
    except MissingExtraError:
        return None
    except NoPictureError:
        if is_image:
            raise
        return None
