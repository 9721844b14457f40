"""Chooses which blocks are computed again: the least time that frees the wanted bytes.

In: blocks in the order of their calls, each with measured bytes and seconds. Out: a `BlockChoice`.
While the backward computes a block again, all blocks before it hold what they keep and this one all
of its insides. So the peak is not the sum of what is kept, and the last block frees nothing by
itself.

A block has three ways: it keeps everything; it is computed again `whole` from its inputs; or
`partly`, where the results of operators that are expensive for their size are kept. The best set is
found by dynamic programming over the blocks: of two choices for the first blocks, one that keeps
more and takes longer cannot become the better one. This is no lever, as it has no `LEVER`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import BlockFacts

MODE_S = 2e-5
"""Python that runs around an operator under torch's selective checkpoint, in both computations
together (20 us on one core of an AMD EPYC, torch 2.13)."""

MAX_STATES = 1000
"""Partial choices that are followed. Beyond it (dozens of unlike blocks), some between the extremes
are dropped, and the choice may be a little slower than the best one."""

MAX_KEPT = 6
"""Operators whose results may be kept: the most expensive ones for their size."""

MIN_SHARE = 0.01
"""Of the forward: an operator that takes less is not worth the memory of its results."""

KEPT, WHOLE, PARTLY = "kept", "whole", "partly"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChoice:
    """Blocks that are computed again, by name; `keep` are the operators of `partly`."""

    whole: tuple[str, ...]
    partly: tuple[str, ...]
    keep: tuple[str, ...]
    frees_bytes: int
    takes_s: float


def choose(blocks: Sequence[BlockFacts], free_bytes: int) -> BlockChoice | None:
    """Return the choice that takes least time; None if no choice frees so many bytes."""
    limit = sum(one.kept_bytes for one in blocks) - free_bytes
    found = [choose_with(blocks, limit, keep) for keep in keep_sets(blocks)]
    return min(
        (one for one in found if one is not None),
        key=lambda one: (one.takes_s, -one.frees_bytes, len(one.keep)),
        default=None,
    )


def choose_with(
    blocks: Sequence[BlockFacts], limit: int, keep: tuple[str, ...]
) -> BlockChoice | None:
    """Return the quickest choice whose peak is at most `limit` bytes, if these results are kept."""
    states: list[tuple[int, float, Any]] = [(0, 0.0, None)]
    for block in blocks:
        ways = [(way, *price(block, way, keep)) for way in ways_of(block, keep)]
        following = [
            (held + size, taken + seconds, (way, before))
            for held, taken, before in states
            if held + block.kept_bytes <= limit
            for way, size, seconds in ways
        ]
        states = thin(undominated(following))
    states = [one for one in states if one[0] <= limit]
    if not states:
        return None
    _, taken, link = min(states, key=lambda one: (one[1], one[0]))
    chosen = list(unlink(link))[::-1]
    whole = tuple(one.name for one, way in zip(blocks, chosen, strict=True) if way == WHOLE)
    partly = tuple(one.name for one, way in zip(blocks, chosen, strict=True) if way == PARTLY)
    return BlockChoice(
        whole=whole,
        partly=partly,
        keep=keep if partly else (),
        frees_bytes=freed_bytes(blocks, whole=whole, partly=partly, keep=keep),
        takes_s=taken,
    )


def ways_of(block: BlockFacts, keep: Collection[str]) -> tuple[str, ...]:
    """Return the ways that a block has, with these operators kept."""
    can_keep = any(one.can_keep and one.name in keep for one in block.operators)
    return (KEPT, WHOLE, PARTLY) if can_keep else (KEPT, WHOLE)


def price(block: BlockFacts, way: str, keep: Collection[str]) -> tuple[int, float]:
    """Return the bytes that a block keeps for its backward, and the seconds that this costs."""
    if way == KEPT:
        return block.kept_bytes, 0.0
    if way == WHOLE:
        return block.input_bytes, block.forward_s
    held = [one for one in block.operators if one.can_keep and one.name in keep]
    spared_s = min(block.forward_s, sum(one.seconds for one in held))
    mode_s = MODE_S * sum(one.num for one in block.operators)
    size = block.input_bytes + sum(one.result_bytes for one in held)
    return size, block.forward_s - spared_s + mode_s


def undominated(states: list[tuple[int, float, Any]]) -> list[tuple[int, float, Any]]:
    """Return the states that no other one beats in both bytes and time, the least bytes first."""
    found: list[tuple[int, float, Any]] = []
    for one in sorted(states, key=lambda state: state[:2]):
        if not found or one[1] < found[-1][1]:
            found.append(one)
    return found


def thin(states: list[tuple[int, float, Any]]) -> list[tuple[int, float, Any]]:
    """Return at most `MAX_STATES` of them, with both ends."""
    last = len(states) - 1
    if last < MAX_STATES:
        return states
    return [states[round(place * last / (MAX_STATES - 1))] for place in range(MAX_STATES)]


def unlink(link: Any) -> Iterator[str]:
    """Yield the ways of a chain, the last block's first."""
    while link is not None:
        way, link = link
        yield way


def keep_sets(blocks: Sequence[BlockFacts]) -> list[tuple[str, ...]]:
    """Return sets of operators to keep: none, the most expensive for its size, two of them, ..."""
    forward_s = sum(one.forward_s for one in blocks)
    totals: dict[str, tuple[float, int]] = {}
    for one in (one for block in blocks for one in block.operators if one.can_keep):
        seconds, size = totals.get(one.name, (0.0, 0))
        totals[one.name] = seconds + one.seconds, size + one.result_bytes
    worth = [
        (seconds / max(1, size), name)
        for name, (seconds, size) in totals.items()
        if seconds >= MIN_SHARE * forward_s
    ]
    names = [name for _, name in sorted(worth, key=lambda pair: (-pair[0], pair[1]))[:MAX_KEPT]]
    return [tuple(names[:number]) for number in range(len(names) + 1)]


def freed_bytes(
    blocks: Sequence[BlockFacts],
    *,
    whole: Collection[str],
    partly: Collection[str] = (),
    keep: Collection[str] = (),
) -> int:
    """Return by what the peak of all blocks becomes lower, in bytes."""
    held = peak = 0
    for block in blocks:
        peak = max(peak, held + block.kept_bytes)
        way = WHOLE if block.name in whole else PARTLY if block.name in partly else KEPT
        held += price(block, way, keep)[0]
    return sum(one.kept_bytes for one in blocks) - max(peak, held)


# -- names in settings


def fold(names: Sequence[str]) -> str:
    """Return names in one line: `GPT.h.0`, `GPT.h.1`, `GPT.h.2` are `GPT.h.[0-2]`."""
    words: list[str] = []
    place = 0
    while place < len(names):
        stem, _, number = names[place].rpartition(".")
        end = place
        if stem and number.isdecimal():
            while [*names[end + 1 : end + 2]] == [f"{stem}.{int(number) + end + 1 - place}"]:
                end += 1
        words.append(
            names[place] if end == place else f"{stem}.[{number}-{int(number) + end - place}]"
        )
        place = end + 1
    return " ".join(words)


def unfold(text: str) -> tuple[str, ...]:
    """Return the names in what `fold` returned."""
    found: list[str] = []
    for word in text.split():
        stem, bracket, ends = word.partition("[")
        if bracket:
            first, _, last = ends.rstrip("]").partition("-")
            found += [f"{stem}{number}" for number in range(int(first), int(last) + 1)]
        else:
            found.append(word)
    return tuple(found)
