"""Counts the rows of an evaluation that also stand in the training.

In: both tables, part by part. Out: a `LeakVerdict`. Ids decide where there are any. Rows whose
features are the same may be copies, or may repeat by nature where few values are possible; then
training rows repeat each other as often, and the two cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptime.core.interval import Interval
from steptime.errors import DataError
from steptime.verify.model.probe_judging import rate_of
from steptime.verify.model.twins.near_text import near_texts
from steptime.verify.model.twins.row_hashes import hash_rows
from steptime.verify.values import Outcome
from steptime.verify.values.leak_results import LeakCount, LeakVerdict

_EXAMPLES = 5
_MOST_TEXTS = 100_000
"""Rows of each side whose text is compared piece by piece: a minute of one core."""

_LONG_TEXT = 40
"""Letters on average: shorter texts share most of their pieces by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """Some rows of a table.

    Attributes:
        columns: the features (num_rows,) each, in the same order for both tables.
        ids: the id of each row as text (num_rows,); None without ids.
    """

    columns: Sequence[Any]
    ids: Any = None


@dataclass(slots=True)
class _Side:
    """The hashes of all rows of a table, and its first texts."""

    exact: Any
    near: Any
    ids: Any
    names: Any
    texts: list[str]


def find_leaks(
    train: Iterable[RowPart], evaluation: Iterable[RowPart], columns: Sequence[str]
) -> LeakVerdict:
    """Return which rows of the evaluation stand in the training.

    Args:
        train: the rows of the training, in parts.
        evaluation: the rows of the evaluation.
        columns: the names of the features.

    Raises:
        DataError: a table has no rows.
    """
    one, other = _read(evaluation, "evaluation"), _read(train, "training")
    num, found = len(one.exact), np.zeros(len(one.exact), dtype=bool)
    counts = list[LeakCount]()
    if one.ids is not None and other.ids is not None:
        hit = np.isin(one.ids, other.ids)
        counts.append(_count("id", hit, one, own=None))
        found |= hit
    has_ids = bool(counts)
    for kind in ("exact", "near") if columns else ():
        hit = np.isin(getattr(one, kind), getattr(other, kind)) & ~found
        counts.append(_count(kind, hit, one, own=_repeats(getattr(other, kind))))
        found |= hit
    if one.texts and other.texts:
        counts.append(_text_count(one, other, found))
    outcomes = {count.outcome for count in counts}
    outcome = Outcome.PASS
    if Outcome.FAIL in outcomes:
        outcome = Outcome.FAIL
    elif Outcome.INCONCLUSIVE in outcomes and not has_ids:
        outcome = Outcome.INCONCLUSIVE
    texts = max(len(one.texts), len(other.texts)) if one.texts and other.texts else None
    return LeakVerdict(
        num_train=len(other.exact),
        num_rows=num,
        columns=tuple(columns),
        counts=tuple(counts),
        outcome=outcome,
        num_texts=texts,
    )


def _read(parts: Iterable[RowPart], name: str) -> _Side:
    exact, near, ids, names = list[Any](), list[Any](), list[Any](), list[Any]()
    texts, num_rows = list[str](), 0
    for part in parts:
        if part.columns:
            exact.append(hash_rows(part.columns, is_near=False))
            near.append(hash_rows(part.columns, is_near=True))
            num = len(part.columns[0])
        else:
            num = len(part.ids)
            exact.append(np.zeros(num, dtype=np.uint64))
            near.append(exact[-1])
        num_rows += num
        if part.ids is not None:
            ids.append(hash_rows([part.ids], is_near=False))
        if num_rows - num < _MOST_TEXTS:
            # The first rows name examples, and hold what is compared piece by piece.
            names.append(part.ids)
            if len(texts) == num_rows - num:  # text i is that of row i
                texts += _texts(part, _MOST_TEXTS - len(texts))
    if not num_rows:
        raise DataError(f"EmptySlice: the {name} has no rows.")
    return _Side(
        exact=np.concatenate(exact),
        near=np.concatenate(near),
        ids=np.concatenate(ids) if ids else None,
        names=None if not ids else np.concatenate(names),
        texts=texts,
    )


def _texts(part: RowPart, most: int) -> list[str]:
    """Return the long texts of each row in one; nothing where there are none."""
    long = [
        values[:most]
        for values in part.columns
        if values.dtype.kind in "USO"
        and np.char.str_len(values[:1000].astype(str)).mean() > _LONG_TEXT
    ]
    if not long:
        return []
    return [" ".join(map(str, row)) for row in zip(*(v.tolist() for v in long), strict=True)]


def _text_count(one: _Side, other: _Side, found: Any) -> LeakCount:
    """Count the texts that nearly stand in the training, and were not found before."""
    hit = near_texts(one.texts, other.texts) & ~found[: len(one.texts)]
    own = rate_of(0, len(other.texts))
    if hit.any():
        own = rate_of(int(near_texts(other.texts, other.texts).sum()), len(other.texts))
    return _count("text", hit, one, own=own)


def _repeats(hashes: Any) -> Interval:
    """Return the fraction of rows that another row repeats."""
    counts = np.unique(hashes, return_counts=True)[1]
    return rate_of(int(counts[counts > 1].sum()), len(hashes))


def _count(kind: str, hit: Any, one: _Side, *, own: Interval | None) -> LeakCount:
    num_found = int(hit.sum())
    share: Interval = rate_of(num_found, len(hit))
    outcome = Outcome.PASS
    if num_found:
        # Rows drawn alike meet a training row as often as training rows meet each other.
        is_nature = own is not None and own.estimate > 0 and share.low <= own.high
        outcome = Outcome.INCONCLUSIVE if is_nature else Outcome.FAIL
    places = np.flatnonzero(hit)[:_EXAMPLES].tolist()
    names = one.names
    return LeakCount(
        kind=kind,
        num_rows=len(hit),
        num_found=num_found,
        share=share,
        own_share=None if own is None else own.estimate,
        outcome=outcome,
        examples=tuple(
            str(i) if names is None or i >= len(names) else str(names[i]) for i in places
        ),
    )
