"""The rows of both arms as columns of numbers: scores, ids and slices, joined by id.

In: one column for each arm. Out: `Arms`, whose rows are pairs where both arms have the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from steptime.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Codes: TypeAlias = NDArray[np.int64]


LARGEST = 1e60
"""Products of squares of such numbers are still finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRows:
    """The rows of one arm.

    Attributes:
        scores: the metric of each row in each training (num_seeds, num_rows).
        rescored: the same of some rows (num_chosen,), where the metric of a part is no mean of
            the scores above.
        ids: code of each row's id (num_rows,), the same codes in both arms; None without ids.
        labels: code of what is true of each row (num_rows,), the same codes in both arms.
        groups: code of what each row belongs to (num_rows,), such as a user; None where rows are
            independent.
        slices: by column, the code of each row's value (num_rows,), the same codes in both arms.
    """

    scores: Floats
    rescored: Callable[[Codes], Floats] | None = None
    ids: Codes | None = None
    labels: Codes | None = None
    groups: Codes | None = None
    slices: Mapping[str, Codes] = field(default_factory=dict)

    @property
    def num(self) -> int:
        """Rows."""
        return int(self.scores.shape[1])

    def mean_scores(self) -> Floats:
        """Return the mean over trainings of each row (num_rows,)."""
        import numpy as np

        one = self.scores[0] if len(self.scores) == 1 else self.scores.mean(axis=0)
        return np.asarray(one)

    def chosen(self, rows: Codes) -> ArmRows:
        """Return some rows, by their places (num_chosen,), with the metric that these have.

        Raises:
            DataError: these rows alone have no such metric.
        """
        again = self.rescored
        return ArmRows(
            scores=self.scores[:, rows] if again is None else again(rows),
            rescored=None if again is None else lambda some: again(rows[some]),
            groups=None if self.groups is None else self.groups[rows],
        )

    def ordered(self, rows: Codes) -> ArmRows:
        """Return all rows in another order."""
        ids = None if self.ids is None else self.ids[rows]
        labels = None if self.labels is None else self.labels[rows]
        slices = {name: codes[rows] for name, codes in self.slices.items()}
        return replace(self.chosen(rows), ids=ids, labels=labels, slices=slices)


@dataclass(frozen=True, slots=True)
class Arms:
    """Both arms; where `is_paired`, row i of one is the same row as row i of the other.

    Else `num_missing` and `num_extra` are rows of the reference, and of the candidate, whose ids
    the other arm has not, where most ids are in both; 0 where the arms are no such rows.
    """

    reference: ArmRows
    candidate: ArmRows
    is_paired: bool
    num_missing: int = 0
    num_extra: int = 0


def join(reference: ArmRows, candidate: ArmRows, *, must_pair: bool = False) -> Arms:
    """Put the rows of the same id beside each other, where both arms have the same ids.

    Args:
        reference: rows of the one arm.
        candidate: rows of the other.
        must_pair: refuse arms with unlike ids.

    Raises:
        DataError: an id stands twice in an arm, a score is no finite number, an arm is empty, or
            the arms have unlike ids and must be paired, or unlike labels (`RowsDiffer`).
    """
    for name, arm in (("reference", reference), ("candidate", candidate)):
        _check(name, arm)
    a, b = reference.ids, candidate.ids
    if a is None or b is None:
        if must_pair:
            raise DataError(
                "RowsDiffer: the rows have no id, so they cannot be paired.",
                hint="Name the column of the ids; rows are never joined by their order.",
            )
        return Arms(reference, candidate, is_paired=False)
    import numpy as np

    order_a, order_b = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    if len(a) == len(b) and bool(np.array_equal(a[order_a], b[order_b])):
        first, second = reference.labels, candidate.labels
        is_known = first is not None and second is not None
        if is_known and (num := int((first[order_a] != second[order_b]).sum())):  # type: ignore[index]
            raise DataError(
                f"RowsDiffer: {num:,} rows have one label in the reference and another in the "
                "candidate.",
                hint="Score both models by the same labels.",
            )
        # Labels have served, and take as much memory as scores.
        one, other = replace(reference, labels=None), replace(candidate, labels=None)
        return Arms(one.ordered(order_a), other.ordered(order_b), is_paired=True)
    num_shared = len(np.intersect1d(a, b, assume_unique=True))
    missing, extra = len(a) - num_shared, len(b) - num_shared
    if must_pair:
        raise DataError(
            f"RowsDiffer: {missing:,} rows of the reference are missing in the candidate, and "
            f"{extra:,} are in the candidate alone.",
            hint="Score both models on the same rows, or do not ask for pairs.",
        )
    if 2 * num_shared <= min(len(a), len(b)):  # numbers of rows may be alike by chance
        missing = extra = 0
    return Arms(reference, candidate, False, missing, extra)


def _check(name: str, arm: ArmRows) -> None:
    import numpy as np

    if not arm.num:
        raise DataError(f"EmptySlice: the {name} arm has no rows.")
    num_bad = int((~(np.abs(arm.scores) <= LARGEST)).sum())
    if num_bad:
        raise DataError(
            f"NonFiniteMetric: the metric is no number up to {LARGEST:g} in {num_bad:,} of "
            f"{arm.scores.size:,} rows of the {name} arm.",
            hint="A row that failed counts: give it the score of a failure, or leave it out of "
            "both arms.",
        )
    if arm.ids is not None:
        num_twice = len(arm.ids) - len(np.unique(arm.ids))
        if num_twice:
            raise DataError(
                f"{num_twice:,} rows of the {name} arm have an id that stands there already.",
                hint="Each row needs an id of its own: is that the right column of ids?",
            )
