"""Finds texts that share most of their pieces of five letters with a text of another table.

In: two lists of texts. Out: which of the first have such a twin among the second. Signatures of the
least hashes find candidates; each is checked by the pieces themselves. scikit-learn hashes the
pieces and NumPy takes the least of all texts at once, which a library that makes one signature at a
time does tens of times more slowly.

Source: A. Z. Broder, SEQUENCES 1997 (MinHash); P. Indyk, R. Motwani, STOC 1998 (bands).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steptime.verify.model.twins.row_hashes import mix, normal_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steptime.verify.model.twins.row_hashes import Hashes

_LETTERS = 5
_BANDS, _IN_BAND = 16, 4
"""Two texts that share 0.8 of their pieces meet in a band with a chance of 99.98 %, texts that
share 0.3 with one of 12 %: these are then checked, and refused."""

_SIMILAR = 0.8
"""Of all pieces of both, those that both have (Jaccard)."""


def near_texts(texts: Sequence[str], others: Sequence[str]) -> NDArray[np.bool_]:
    """Return which texts (num_texts,) have a twin among the others; themselves do not count."""
    found = np.zeros(len(texts), dtype=bool)
    if not len(texts) or not len(others):
        return found
    a = _pieces(texts)
    b = a if others is texts else _pieces(others)
    sizes_a, sizes_b = np.diff(a.indptr), np.diff(b.indptr)
    signs_a = _signatures(a)
    signs_b = signs_a if b is a else _signatures(b)
    for wanted, known in zip(signs_a, signs_b, strict=True):
        rows, twins = _meeting(wanted, known, is_same=b is a)
        kept = ~found[rows] & (sizes_a[rows] > 0)
        rows, twins = rows[kept], twins[kept]
        if len(rows):
            shared = np.asarray(a[rows].multiply(b[twins]).sum(axis=1)).ravel()
            whole = sizes_a[rows] + sizes_b[twins] - shared
            found[rows] |= shared >= _SIMILAR * whole
    return found


def _meeting(wanted: Hashes, known: Hashes, *, is_same: bool) -> tuple[Any, Any]:
    """Return the rows that have an equal in the other, and the place of one such equal."""
    keys, first = np.unique(known, return_index=True)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    rows = np.flatnonzero(keys[at] == wanted)
    twins = first[at[rows]]
    if is_same:
        last = len(known) - 1 - np.unique(known[::-1], return_index=True)[1]
        twins = np.where(twins == rows, last[at[rows]], twins)
        rows, twins = rows[twins != rows], twins[twins != rows]
    return rows, twins


def _pieces(texts: Sequence[str]) -> Any:
    """Return the pieces of each text as ones of a sparse matrix (num_texts, 2^20)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    size = (_LETTERS, _LETTERS)
    made = HashingVectorizer(analyzer="char", ngram_range=size, preprocessor=normal_text,
                             binary=True, norm=None, alternate_sign=False)  # fmt: skip
    return made.transform(texts).tocsr()


def _signatures(pieces: Any) -> Hashes:
    """Return the signature of each text in each band (num_bands, num_texts)."""
    found = np.zeros((_BANDS, pieces.shape[0]), dtype=np.uint64)
    filled = np.flatnonzero(np.diff(pieces.indptr) > 0)
    words = pieces.indices.astype(np.uint64)
    for number in range(_BANDS * _IN_BAND if len(filled) else 0):
        hashes = mix(words ^ mix(np.array([number], dtype=np.uint64)))
        least = np.minimum.reduceat(hashes, pieces.indptr[filled])
        band = number // _IN_BAND
        found[band, filled] = mix(found[band, filled] * np.uint64(31) + least)
    return found
