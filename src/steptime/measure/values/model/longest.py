"""The largest batch of an epoch, and the memory that its step will take.

In: what the guest read of an epoch's order and of the sizes of rows, and the followed peaks. Out: a
`LongestBatch`, which survives a round trip through JSON. docs/explanation/memory.md says how.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBatch:
    """A batch of an epoch.

    Attributes:
        batch: its number in the epoch, from 0; None where the order is not known.
        sample: the row of the data set that is its largest.
        size: how much that row holds, in the units of the attribute that told.
        num_rows: rows of the batch; None where the order is not known.
        elements: numbers that its largest tensor will hold; None where sizes do not say it.
    """

    batch: int | None
    sample: int
    size: int
    num_rows: int | None = None
    elements: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakForecast:
    """The most memory that a step with a larger batch will hold at once, as an interval.

    Attributes:
        low: if all that grows with the batch grows in proportion to its elements [bytes].
        estimate: by a sum that gives the followed peaks from one another; else by what two of them
            and the states say; else between the two bounds [bytes].
        high: if all of it grows with the square of a row [bytes].
        how: `fitted`: a sum of sizes gives the followed peaks to a thousandth. `between`: from two
            followed peaks. `parts`: from the parts of one followed step.
    """

    low: int
    estimate: int
    high: int
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestBatch:
    """How large the batches of an epoch become, and whether the largest one has come.

    Attributes:
        rank: the rank whose loader it is.
        dataset: class of the data set.
        epoch: the epoch of the loader, from 0.
        order: `known`; `iterable`: the data set gives what it likes; `own_sampler` and
            `as_it_goes`: the sampler chooses only when it is asked.
        num_batches: batches of the epoch; None where the order is not known.
        num_handed: batches of it that the training took.
        told_by: attribute of the data set that tells the sizes of its rows; None without one.
        missing: why no batch can be named: `iterable`; `no_sizes`: nothing in the data set says
            how large its rows are; `sizes_say_nothing`: what it holds does not go with the size
            of the batches; `same_size`: all batches are of one size.
        largest: the largest batch of the epoch; without a known order, its largest row alone.
        seen: the largest batch that was taken so far.
        last: the batch that was taken last.
        is_to_come: whether a larger batch than all so far is still to come; None where that is
            not known.
        growth: elements of the largest batch over those of the largest one so far.
        seen_peak_bytes: the largest peak of the steps so far [bytes].
        peak: what the step of the largest batch will hold; None unless it is to come.
    """

    rank: int
    dataset: str
    epoch: int
    order: str
    num_batches: int | None
    num_handed: int
    told_by: str | None = None
    missing: str | None = None
    largest: EpochBatch | None = None
    seen: EpochBatch | None = None
    last: EpochBatch | None = None
    is_to_come: bool | None = None
    growth: float | None = None
    seen_peak_bytes: int | None = None
    peak: PeakForecast | None = None
