"""Counts the rows of an evaluation that also stand in the training.

In: both tables, part by part. Out: a `LeakVerdict`. Ids decide where there are any. Rows whose
features are the same may be copies, or may repeat by nature where few values are possible; then
training rows repeat each other as often, and the two cannot be distinguished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
"""Rows of each side whose text is compared piece by piece: some seconds of one core."""

_LONG_TEXT = 40
"""Letters on average: shorter texts share most of their pieces by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """Some rows of a table.

    Attributes:
        columns: the features (num_rows,) each, in the same order for both tables.
        ids: the id of each row (num_rows,); None without ids.
    """

    columns: Sequence[Any]
    ids: Any = None


@dataclass(frozen=True, slots=True)
class _Side:
    """The hashes of all rows by kind, and the ids and texts of the first ones."""

    hashes: dict[str, Any]
    names: list[str]
    texts: list[str]
    num: int


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
    here, there = _read(evaluation, "evaluation"), _read(train, "training")
    found, counts = np.zeros(here.num, dtype=bool), list[LeakCount]()
    for kind, hashes in here.hashes.items():
        hit = np.isin(hashes, there.hashes[kind]) & ~found
        own = None if kind == "id" else _repeats(there.hashes[kind])
        counts.append(_count(kind, hit, here.names, own=own))
        found |= hit
    has_texts = bool(here.texts and there.texts)
    if has_texts:
        hit = near_texts(here.texts, there.texts) & ~found[: len(here.texts)]
        twins = int(near_texts(there.texts, there.texts).sum()) if hit.any() else 0
        own = rate_of(twins, len(there.texts))
        counts.append(_count("text", hit, here.names, own=own))
    outcomes = {count.outcome for count in counts}
    if "id" in here.hashes:
        outcomes -= {Outcome.INCONCLUSIVE}  # the ids tell copies from what repeats
    grave = (Outcome.FAIL, Outcome.INCONCLUSIVE)
    return LeakVerdict(
        num_train=there.num,
        num_rows=here.num,
        columns=tuple(columns),
        counts=tuple(counts),
        outcome=next((one for one in grave if one in outcomes), Outcome.PASS),
        num_texts=max(len(here.texts), len(there.texts)) if has_texts else None,
    )


def _read(parts: Iterable[RowPart], name: str) -> _Side:
    hashes, num = dict[str, list[Any]](), 0
    names, texts = list[str](), list[str]()
    for part in parts:
        for kind, some in _hashed(part):
            hashes.setdefault(kind, []).append(some)
        begin, num = num, num + len(part.ids if part.ids is not None else part.columns[0])
        if begin < _MOST_TEXTS:
            names += map(str, range(begin, num) if part.ids is None else part.ids.tolist())
            if len(texts) == begin:  # text i is that of row i
                texts += _texts(part.columns, _MOST_TEXTS - begin)
    if not num:
        raise DataError(f"EmptySlice: the {name} has no rows.")
    return _Side({kind: np.concatenate(some) for kind, some in hashes.items()}, names, texts, num)


def _hashed(part: RowPart) -> Iterator[tuple[str, Any]]:
    if part.ids is not None:
        yield "id", hash_rows([part.ids], is_near=False)
    if part.columns:
        yield "exact", hash_rows(part.columns, is_near=False)
        yield "near", hash_rows(part.columns, is_near=True)


def _texts(columns: Sequence[Any], most: int) -> list[str]:
    """Return the long texts of each row in one; nothing where there are none."""
    texts = [values[:most].tolist() for values in columns if values.dtype.kind in "UO"]
    long = [some for some in texts if sum(map(len, some)) > _LONG_TEXT * len(some)]
    return [" ".join(row) for row in zip(*long, strict=True)]


def _repeats(hashes: Any) -> Interval:
    """Return the fraction of rows that another row repeats."""
    counts = np.unique(hashes, return_counts=True)[1]
    return rate_of(int(counts[counts > 1].sum()), len(hashes))


def _count(kind: str, hit: Any, names: Sequence[str], *, own: Interval | None) -> LeakCount:
    num_found = int(hit.sum())
    share = rate_of(num_found, len(hit))
    outcome = Outcome.PASS
    if num_found:
        # Rows drawn alike meet a training row as often as training rows meet each other.
        is_nature = own is not None and own.estimate > 0 and share.low <= own.high
        outcome = Outcome.INCONCLUSIVE if is_nature else Outcome.FAIL
    return LeakCount(
        kind=kind,
        num_rows=len(hit),
        num_found=num_found,
        share=share,
        own_share=None if own is None else own.estimate,
        outcome=outcome,
        examples=tuple(
            names[i] if i < len(names) else f"row {i}"
            for i in np.flatnonzero(hit)[:_EXAMPLES].tolist()
        ),
    )
