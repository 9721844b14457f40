"""Makes the blocks on padding: what is used of the batches, their lengths, and what else costs.

In: the document of a run. Out: blocks; none where nothing told of lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

from steptime.core.printable import printable
from steptime.core.units import format_count, format_percent
from steptime.measure.values.model.useful_work import Padding, RankBalance
from steptime.report.blocks.phrasing import joined
from steptime.report.blocks.values import Block, Labeled
from steptime.report.document.run_document import RunDocument, WorkSums
from steptime.report.words.run.step_words import rounded

SEEN_BY: Mapping[str, str] = {
    "sequence_bounds": "by the bounds of packed sequences",
    "attention_mask": "by the mask",
    "pixel_mask": "by the mask of pixels",
    "labels": "by labels of -100",
    "padding_token": "by the token that ends rows",
}
"""What said which positions are used, in words."""

_WORTH_A_LINE = 0.99
"""Without padding, lengths are shown only where they differ."""

_MAX_PLACES = 3
_MAX_RANKS = 4


def padding_blocks(document: RunDocument) -> list[Block]:
    """Return what is used of the batches, the lengths, and the rates without padding."""
    padding, balance = document.measurement.padding, document.measurement.balance
    lines: list[Block] = []
    if padding is not None and _is_worth_a_line(padding):
        parts = [_describe_used(padding), _describe_lengths(padding), *_rates(document.work)]
        lines += [Labeled("padding", joined(map(printable, parts)))]
    if balance is not None and balance.excess_fraction >= 1 - _WORTH_A_LINE:
        lines += [Labeled("balance", _describe_balance(balance))]
    return lines


def _is_worth_a_line(padding: Padding) -> bool:
    lengths = padding.lengths
    return padding.useful_fraction < _WORTH_A_LINE or lengths.shortest < lengths.longest


def _describe_used(padding: Padding) -> str:
    """Return `38 % of the positions are used, by the mask of 40 batches`."""
    used = format_percent(padding.useful_fraction)
    seen = f"{SEEN_BY.get(padding.seen_by, padding.seen_by)}, {padding.num_batches:,} batches"
    text = f"{used} of the positions are used ({seen}"
    if padding.token is not None:
        text += f", token {padding.token}"
    text += ")"
    if padding.trained_fraction is not None:
        text += f", the loss takes {format_percent(padding.trained_fraction)} of these"
    if padding.places and padding.useful_fraction < _WORTH_A_LINE:
        text += f"; padded at {', '.join(padding.places[:_MAX_PLACES])}"
    return text


def _describe_lengths(padding: Padding) -> str:
    lengths = padding.lengths
    low, high = format_count(lengths.shortest), format_count(lengths.longest)
    if lengths.shortest == lengths.longest:
        return f"all rows have a length of {low}"
    text = f"lengths {low} to {high}, median {format_count(lengths.median)}, "
    return text + f"95 % up to {format_count(lengths.p95)}"


def _rates(work: WorkSums | None) -> list[str]:
    """Return the rates with and without padding."""
    if work is None:
        return []
    parts = []
    if work.tokens_per_s is not None and work.useful_tokens_per_s is not None:
        useful = rounded(work.useful_tokens_per_s)
        parts.append(f"{useful} useful of {rounded(work.tokens_per_s)} tokens per second")
    if work.useful_mfu is not None:
        parts.append(f"MFU {format_percent(work.useful_mfu)} without the work on padding")
    return parts


def _describe_balance(balance: RankBalance) -> str:
    """Return `the rank with most work of a step exceeds the mean rank by 31 %; rank 0 …`."""
    most = format_percent(balance.excess_fraction)
    ranks = [
        f"rank {one.rank} has {format_percent(one.work_fraction)} of the mean rank's work"
        for one in balance.ranks[:_MAX_RANKS]
    ]
    more = len(balance.ranks) - len(ranks)
    ranks += [f"{more} more ranks in the document of --json"] if more > 0 else []
    return joined(
        [f"the rank with the most work of a step exceeds the mean rank by {most}", *ranks]
    )
