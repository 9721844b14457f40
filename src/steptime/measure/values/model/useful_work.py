"""The values of useful work: how much of the batches is padding, and how even ranks share it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin:
    """Rows whose lengths lie in a range.

    Attributes:
        low, high: the shortest and the longest length of the range, both included.
        num_rows: rows of such a length.
    """

    low: int
    high: int
    num_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The distribution of the lengths of rows, without padding, in positions.

    Attributes:
        num_rows: rows that were seen.
        mean: mean length.
        shortest, median, p95, longest: lengths by order; 95 % are at most `p95`.
        bins: the distribution in ranges of equal size, without those that are empty.
    """

    num_rows: int
    mean: float
    shortest: int
    median: float
    p95: int
    longest: int
    bins: tuple[LengthBin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """Batches with the same number of rows.

    Attributes:
        num_rows: rows of the batch.
        num_batches: batches of that size that were looked at.
    """

    num_rows: int
    num_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """How much of the batches is padding, from those that were looked at, over all ranks.

    Fractions of work are of the work of the batches as they were: each row has work in proportion
    to its positions, and, as far as the count of work knows it, attention in proportion to their
    square. They are predictions where the batches would be made in another way.

    Attributes:
        num_batches: batches that were looked at.
        seen_by: what said which positions are used: `sequence_bounds` (cu_seqlens, or positions
            that count from 0 again), `attention_mask`, `pixel_mask`, `labels` (-100 at the ends of
            rows) or `padding_token` (the run of one token at the ends of rows).
        token: the padding token, where its runs said it and there were any.
        useful_fraction: share of the positions that are no padding.
        trained_fraction: share of the used positions that the loss takes; null where labels were
            not seen.
        lengths: the lengths of the rows, or of the packed sequences.
        batch_sizes: how many rows the batches have, the most frequent first; eight at most.
        trimmed_fraction: share of the positions that would be left if each batch were cut to its
            longest row.
        attention_fraction: share of the work that grows with the square of the length; null where
            the count of work does not know it, and then it is taken to be zero.
        useful_work: share of the work that is done for used positions, which is what packing
            leaves.
        trimmed_work: share of the work that cutting each batch to its longest row would leave; null
            for packed sequences.
        grouped_work: the same where batches are also made of rows of similar length; null for
            packed sequences.
        places: lines of the script that pad, as `file:line`.
    """

    num_batches: int
    seen_by: str
    token: int | None = None
    useful_fraction: float
    trained_fraction: float | None
    lengths: Lengths
    batch_sizes: tuple[BatchSize, ...]
    trimmed_fraction: float
    attention_fraction: float | None
    useful_work: float
    trimmed_work: float | None
    grouped_work: float | None
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """The work of one rank among several.

    Attributes:
        rank: the rank.
        elements_per_step: elements of its inputs in a mean step, with padding.
        work_fraction: its work over that of the mean rank.
        longest_fraction: share of the steps in which it had the most work.
        forward_s: mean time of its forward [s]; null where it was not seen.
    """

    rank: int
    elements_per_step: float
    work_fraction: float
    longest_fraction: float
    forward_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBalance:
    """How even the work of the ranks is, step by step.

    Attributes:
        num_steps: steps that were compared.
        excess_fraction: by how much the rank with the most work of a step exceeds the mean rank, of
            the work of the mean rank.
        ranks: the ranks in order.
    """

    num_steps: int
    excess_fraction: float
    ranks: tuple[RankShare, ...]
