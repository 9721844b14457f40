"""How much of a loader's batches is padding, for the levers that remove it; in a trial only.

What is padding, an attention mask in the batch says. It is read as the levers read it
(`levers/lengths/mask_padding.py`), so that facts and levers agree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..trial_plan import lever_tool

MAX_BATCHES = 16
"""As many as `length_grouping` sorts together, so that what it would give can be computed."""

MAX_TRIES = 16
"""Batches in which a mask is looked for; then there is none."""


class BatchRows(NamedTuple):
    """The rows of a batch: their lengths up to the last content, and how wide the batch is.

    `is_left`: some row begins with padding.
    """

    width: int
    lengths: list[int]
    num_useful: int
    is_left: bool


def rows_in(torch: Any, batch: Any) -> BatchRows | None:
    """Return the rows of a batch; None where it holds no attention mask."""
    own = lever_tool("lengths/mask_padding")
    found = own.find_useful(torch, list(own.fields_of(torch, batch)))
    if found is None:
        return None
    useful = found[1]
    return BatchRows(
        width=int(useful.shape[1]),
        lengths=own.row_lengths(torch, useful),
        num_useful=int(useful.sum()),
        is_left=not bool(useful[:, 0].all()),
    )


class PaddingBook:
    """The rows of the first batches of a loader."""

    def __init__(self) -> None:
        self.num_batches = 0
        self.rows: list[BatchRows] = []

    def see(self, torch: Any, batch: Any) -> None:
        """Take in a batch, if it is one of the first."""
        if self.num_batches >= MAX_BATCHES:
            return
        self.num_batches += 1
        found = rows_in(torch, batch)
        if found is not None:
            self.rows.append(found)

    def describe(self) -> dict[str, Any] | None:
        """Return a `PaddingFacts`; None where no batch was seen."""
        if not self.num_batches:
            return None
        facts: dict[str, Any] = {"num_batches": self.num_batches}
        rows = self.rows
        if not rows:
            return facts
        positions = sum(one.width * len(one.lengths) for one in rows)
        widths = {one.width for one in rows}
        return facts | {
            "side": "left" if any(one.is_left for one in rows) else "right",
            "useful_fraction": sum(one.num_useful for one in rows) / positions,
            "longest_fraction": longest(one.lengths for one in rows) / positions,
            "grouped_fraction": longest(regroup(rows)) / positions,
            "is_fixed": len(widths) == 1 and max(widths) > min(max(one.lengths) for one in rows),
        }


def longest(batches: Any) -> int:
    """Return the positions of batches that are as wide as their longest rows."""
    return sum(len(lengths) * max(lengths) for lengths in batches)


def regroup(rows: list[BatchRows]) -> list[list[int]]:
    """Return the lengths of all rows in order, cut into batches of the same sizes."""
    ordered = iter(sorted(length for one in rows for length in one.lengths))
    return [[next(ordered) for _ in one.lengths] for one in rows]


class TokenCounter:
    """Counts the tokens of a batch that are not padding, once a mask was seen in a batch.

    Their number is the same however much padding there is, so it is what times are divided by.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.mask: str | None = None
        self.num_tries = 0

    def count(self, batch: Any) -> int | None:
        """Return the number of tokens; None where no mask says it, or one on a device."""
        if self.mask is None and self.num_tries >= MAX_TRIES:
            return None
        own, torch = lever_tool("lengths/mask_padding"), self.torch
        fields = [one for one in own.fields_of(torch, batch) if one[1].device.type == "cpu"]
        if self.mask is None:
            self.num_tries += 1
            found = own.find_useful(torch, fields)
            if found is None:
                return None
            self.mask = found[0]
            return int(found[1].sum())
        table = next((t for name, t in fields if name == self.mask and t.dim() == 2), None)
        useful = None if table is None else own.as_mask(torch, table)
        return None if useful is None else int(useful.sum())
