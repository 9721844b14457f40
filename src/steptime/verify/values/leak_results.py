"""What rows of the evaluation also stand in the training: by id, exactly, and nearly."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.interval import Interval
from steptime.verify.values import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakCount:
    """One way in which rows are the same.

    Attributes:
        kind: `id`, `exact` (all features), `near` (numbers rounded, text without case and spaces)
            or `text` (most pieces of five letters).
        num_rows: rows of the evaluation that were examined.
        num_found: those that stand in the training, and by no way before this one.
        share: their fraction, with its two-sided interval of 90 % (Clopper and Pearson).
        own_share: the fraction of training rows that another training row repeats; None where it
            was not examined.
        outcome: FAIL where rows are in both more often than they repeat within the training.
        examples: ids of such rows; their numbers where rows have no id.
    """

    kind: str
    num_rows: int
    num_found: int
    share: Interval
    own_share: float | None = None
    outcome: Outcome
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakVerdict:
    """Whether evaluation rows stand in the training.

    Attributes:
        num_train, num_rows: rows of the training and of the evaluation.
        columns: the features that were compared.
        counts: what was found.
        outcome: FAIL where one of them is; INCONCLUSIVE where rows repeat by nature and have no
            ids that would tell copies from others.
        num_texts: rows of each side whose text was compared piece by piece, where it was.
    """

    num_train: int
    num_rows: int
    columns: tuple[str, ...]
    counts: tuple[LeakCount, ...]
    outcome: Outcome
    num_texts: int | None = None
