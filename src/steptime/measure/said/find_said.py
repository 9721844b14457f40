"""Puts together what libraries said in all ranks, and in output that was kept.

In: the rows of the ranks, and what `read_output` found. Out: `LibraryMessage`s, the first at the
beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from steptime.measure.values.said import LibraryMessage, UnusedSearch
from steptime.record.places import NS

if TYPE_CHECKING:
    from steptime.measure.fold.code_places import CodePlaces
    from steptime.measure.steps.step_fold import RankSteps

MAX_SAID = 50

_DIGITS = re.compile(r"\d+")


def find_said(
    ranks: Iterable[RankSteps], places: CodePlaces, output: Iterable[LibraryMessage]
) -> tuple[LibraryMessage, ...]:
    """Return what was said, each text once; `output` is what `read_output` returned."""
    each = (_by_text(_of_rank(rank, places), is_one_rank=True) for rank in ranks)
    found = _by_text((*chain.from_iterable(each), *output), is_one_rank=False)
    return tuple(sorted(found, key=lambda one: one.first_update or 0)[:MAX_SAID])


def _by_text(said: Iterable[LibraryMessage], *, is_one_rank: bool) -> list[LibraryMessage]:
    found: dict[str, LibraryMessage] = {}
    for one in said:
        key = _DIGITS.sub("", one.text)
        known = found.get(key)
        found[key] = one if known is None else _merged(known, one, is_one_rank=is_one_rank)
    return list(found.values())


def find_search(ranks: Iterable[RankSteps]) -> UnusedSearch | None:
    """Return DDP's search for unused parameters in the rank that searched most, if one did."""
    seen = [(rank, rank.signals.search) for rank in ranks if rank.signals.search is not None]
    if not seen:
        return None
    rank, search = max(seen, key=lambda one: one[1].iterations)
    return UnusedSearch(
        iterations=search.iterations,
        with_unused=search.with_unused,
        s_per_step=search.total_ns * NS / rank.num_steps if search.searches else None,
    )


def _of_rank(rank: RankSteps, places: CodePlaces) -> Iterator[LibraryMessage]:
    for row in rank.signals.said:
        yield LibraryMessage(
            channel=row.channel,
            who=row.who,
            text=row.text,
            origin=places.name(row.origin),
            num=row.num,
            first_update=row.first_update,
            last_update=row.last_update,
            where=places.where(row.file, row.line),
        )


def _merged(a: LibraryMessage, b: LibraryMessage, *, is_one_rank: bool) -> LibraryMessage:
    """Return one for two ranks, for two loggers of one, or for a record written to stderr, too."""
    if b.channel == "stderr" != a.channel:
        return a
    firsts = [n for n in (a.first_update, b.first_update) if n is not None]
    lasts = [n for n in (a.last_update, b.last_update) if n is not None]
    is_again = is_one_rank or b.channel == "stderr"
    return replace(
        a,
        who=", ".join(dict.fromkeys([*a.who.split(", "), *b.who.split(", ")])),
        num=a.num + b.num if is_again else max(a.num, b.num),
        num_ranks=a.num_ranks + (not is_again),
        first_update=min(firsts, default=None),
        last_update=max(lasts, default=None),
        where=a.where or b.where,
    )
