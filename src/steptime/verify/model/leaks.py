"""Counts the rows of an evaluation that also stand in the training.

In: the rows of both, column by column. Out: a `LeakVerdict`. Ids decide where there are any. Rows
whose features are the same may be copies, or may repeat by nature where few values are possible;
then training rows repeat each other as often, and the two cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptime.core.interval import Interval
from steptime.errors import DataError
from steptime.verify.model.near_text import near_texts, normal_text
from steptime.verify.model.signed_gains import rate_of
from steptime.verify.values import Outcome
from steptime.verify.values.check_results import LeakCount, LeakVerdict

_EXAMPLES = 5
_STEPS = 512
"""Of a number's leading digits: numbers that agree in about three digits are nearly equal, as a
table that was exported twice differs in later ones."""

_MOST_TEXTS = 100_000
"""Rows of each side whose text is compared piece by piece: some seconds of one core."""

_FINE = 0.9
"""Of the rows have a value of their own in some column: others do not meet them by chance."""

_LONG_TEXT = 40
"""Letters on average: shorter texts share most of their pieces by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakRows:
    """The rows of one table.

    Attributes:
        num: how many there are.
        columns: the features, numbers or text (num_rows,) each, in the same order and of the same
            types for both tables; each is used once.
        ids: the id of each row (num_rows,); None without ids.
    """

    num: int
    columns: Iterable[Any]
    ids: Any = None


def find_leaks(train: LeakRows, rows: LeakRows, columns: Sequence[str]) -> LeakVerdict:
    """Return which rows of the evaluation stand in the training.

    Args:
        train: the rows of the training.
        rows: the rows of the evaluation.
        columns: the names of the features.

    Raises:
        DataError: a table has no rows.
    """
    for name, one in (("evaluation", rows), ("training", train)):
        if not one.num:
            raise DataError(f"EmptySlice: the {name} has no rows.")
    here, there = _read(rows), _read(train)
    found, counts = np.zeros(rows.num, dtype=bool), list[LeakCount]()
    for kind, hashes in here.hashes.items():
        hit = np.isin(hashes, there.hashes[kind]) & ~found
        own = None if kind == "id" else _repeats(there.hashes[kind])
        is_copy = kind == "exact" and there.is_fine and own is not None and not own.estimate
        counts.append(_count(kind, hit, rows.ids, own, is_copy=is_copy))
        found |= hit
    texts, known = here.texts, there.texts
    if texts and known:
        hit = near_texts(texts, known) & ~found[: len(texts)]
        own = None
        if hit.any():  # one half of the training is examined beside the other, as a sample
            twins = near_texts(known[::2], known[1::2])
            own = rate_of(int(twins.sum()), len(twins))
        counts.append(_count("text", hit, rows.ids, own))
    outcomes = {count.outcome for count in counts}
    if rows.ids is not None:
        outcomes -= {Outcome.INCONCLUSIVE}  # the ids tell copies from what repeats
    grave = (Outcome.FAIL, Outcome.INCONCLUSIVE)
    return LeakVerdict(
        num_train=train.num,
        num_rows=rows.num,
        columns=tuple(columns),
        counts=tuple(counts),
        outcome=next((one for one in grave if one in outcomes), Outcome.PASS),
        num_texts=max(len(texts), len(known)) if texts and known else None,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """Hashes of all rows by kind; long texts of the first rows; whether a column hardly repeats.

    Two unlike rows of ten million beside ten million have the same hash of 64 bits with a chance
    of 1 in 200,000 over all pairs.
    """

    hashes: dict[str, Any]
    texts: list[str]
    is_fine: bool


def _read(rows: LeakRows) -> _Side:
    from pandas.util import hash_array

    found, texts, is_fine = dict[str, Any](), list[list[str]](), False
    if rows.ids is not None:
        found["id"] = hash_array(rows.ids, categorize=False)
    for values in rows.columns:
        for kind, same in (("exact", _plain(values)), ("near", _rounded(values))):
            before = found.get(kind, np.zeros(rows.num, dtype=np.uint64))
            hashes = hash_array(same, categorize=False)
            found[kind] = hash_array(before * np.uint64(31) + hashes)
            is_fine |= kind == "exact" and len(np.unique(hashes)) > _FINE * rows.num
        some = values[:_MOST_TEXTS].tolist() if values.dtype == object else []
        if sum(map(len, some)) > _LONG_TEXT * len(some):
            texts.append(some)
    return _Side(found, [" ".join(row) for row in zip(*texts, strict=True)], is_fine)


def _plain(values: Any) -> Any:
    """Return numbers with one NaN, and without minus zero."""
    return np.where(np.isnan(values), np.nan, values + 0.0) if values.dtype.kind == "f" else values


def _rounded(values: Any) -> Any:
    """Return what people would call the same: numbers of three digits, and normal text."""
    if values.dtype == object:
        return np.array([normal_text(text) for text in values.tolist()], dtype=object)
    leading, power = np.frexp(_plain(values.astype(np.float64)))
    return np.ldexp(np.rint(leading * _STEPS) / _STEPS, power) + 0.0


def _repeats(hashes: Any) -> Interval:
    """Return the fraction of rows that another row repeats.

    They come in pairs at least, and two rows tell as much as one.
    """
    counts = np.unique(hashes, return_counts=True)[1]
    return rate_of(int(counts[counts > 1].sum()) // 2, max(len(hashes) // 2, 1))


def _count(
    kind: str, hit: Any, ids: Any, own: Interval | None, *, is_copy: bool = False
) -> LeakCount:
    share, outcome = rate_of(int(hit.sum()), len(hit)), Outcome.PASS
    if hit.any():
        # Rows drawn alike meet a training row as often as training rows meet each other.
        is_nature = own is not None and not is_copy and share.low <= own.high
        outcome = Outcome.INCONCLUSIVE if is_nature else Outcome.FAIL
    first = np.flatnonzero(hit)[:_EXAMPLES].tolist()
    return LeakCount(
        kind=kind,
        num_rows=len(hit),
        num_found=int(hit.sum()),
        share=share,
        own_share=None if own is None else own.estimate,
        outcome=outcome,
        examples=tuple(f"row {i}" if ids is None else str(ids[i]) for i in first),
    )
