"""Checks what sources of samples hold: one for itself, or two against each other.

In: the places of one or two sources. Out: a `DataCheckReport`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from steptime.data.check.sample_checks import (
    check_copies,
    check_labels,
    check_leakage,
    check_readable,
    check_same_order,
    check_same_samples,
)
from steptime.data.check.sample_digests import SampleDigests, digest_source
from steptime.data.check.similar_checks import Pictures, check_similar
from steptime.data.source import SampleSource
from steptime.data.sources.opening import open_source
from steptime.data.values.data_check_values import DataCheck, DataCheckReport, outcome_of

SOURCE_CHECKS = (
    "readable",
    "copies",
    "labels",
    "same_samples",
    "same_order",
    "leakage",
    "similar_images",
)

NAMES = ("A", "B")


def check_sources(
    places: tuple[str, ...],
    *,
    budget_s: float,
    formats: tuple[str, ...] | None = None,
    only: tuple[str, ...] | None = None,
    is_leakage: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> DataCheckReport:
    """Read one or two sources, and check what they hold.

    Args:
        places: one source to check, or two to compare.
        budget_s: time for reading [s]; two sources have half of it each.
        formats: of each source; None tells them by what is in them.
        only: names of the checks; None for all.
        is_leakage: the first trains and the second evaluates; else they should be the same.
        clock: seconds.

    Raises:
        NotFoundError: there is no such source.
        DataError: it cannot be told what it is.
    """
    with ExitStack() as stack:
        sources = [
            stack.enter_context(closing(open_source(place, format=one)))
            for place, one in zip(places, formats or [None] * len(places), strict=True)
        ]
        pixels = {c.name for s in sources for c in s.columns if c.kind == "array"}
        held = [_read(source, pixels, budget_s / len(sources), clock) for source in sources]
        checks = [check for check in _checks(sources, held, is_leakage=is_leakage) if check]
        limits = [
            _told(place, one, found)
            for place, one, (found, _) in zip(places, sources, held, strict=True)
        ]
    chosen = tuple(check for check in checks if only is None or check.name in only)
    return DataCheckReport(
        subject=places, outcome=outcome_of(chosen), checks=chosen, limits=tuple(limits)
    )


def _read(
    source: SampleSource, pixels: set[str], budget_s: float, clock: Callable[[], float]
) -> tuple[SampleDigests, Pictures]:
    """Read a source; pictures whose pixels the other one may hold are compared by their pixels."""
    images = {column.name for column in source.columns if column.kind == "image"}
    until_s, pictures = clock() + budget_s, Pictures(images)
    found = digest_source(
        source, is_time_up=lambda: clock() > until_s, see=pictures.see, decoded=images & pixels
    )
    for number, reason in pictures.damaged:
        found.unreadable.append((number, source.place_of(number), reason))
    return found, pictures


def _checks(
    sources: list[SampleSource],
    held: list[tuple[SampleDigests, Pictures]],
    *,
    is_leakage: bool,
) -> list[DataCheck | None]:
    found, pictures = [one for one, _ in held], [one for _, one in held]
    found_checks: list[DataCheck | None] = []
    names = NAMES if len(sources) > 1 else ("the source",)
    for name, source, one in zip(names, sources, found, strict=True):
        found_checks.append(check_readable(one, what=name))
        found_checks.append(check_copies(one, what=name, place_of=source.place_of))
        found_checks.append(check_labels(one, what=name, place_of=source.place_of))
    if len(sources) == 1:
        return found_checks
    places = (sources[0].place_of, sources[1].place_of)
    if is_leakage:
        found_checks.append(check_leakage(found[0], found[1], places=places))
        found_checks.append(check_similar(pictures[0], pictures[1], places=places))
        return found_checks
    found_checks.append(check_same_samples(found[0], found[1], places=places))
    found_checks.append(check_same_order(found[0], found[1], places=places))
    return found_checks


def _told(place: str, source: SampleSource, found: SampleDigests) -> str:
    told = f"{place}: {source.name}, {len(found.digests):,} of {found.num_samples:,} samples read"
    if found.labels is None:
        return told
    counts: dict[str, int] = {}
    for label in found.labels:
        counts[label] = counts.get(label, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{label}: {n:,}" for label, n in ranked[:5])
    return f"{told}; {len(counts):,} labels ({shown}{', ...' if len(ranked) > 5 else ''})"
