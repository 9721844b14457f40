"""Checks that what a script evaluates on is not what it trains on.

In: the loaders of a child, with what their samples hold. Out: `DataCheck` values.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.data.check.epoch_checks import failed, passed, undecided
from steptime.data.check.seen_orders import ContentsSeen, LoaderSeen
from steptime.data.values.data_check_values import DataCheck

NAME = "leakage"
NUM_SHOWN = 5


def check_loaders_apart(loaders: Sequence[LoaderSeen]) -> list[DataCheck]:
    """Return, for each loader that does not train, whether it shares samples with those that do.

    One that was never used and has the data that trains is none: a library has made its own of it.
    """
    train = [one for one in loaders if one.trained and one.contents is not None]
    known = {one.contents.dataset for one in train if one.contents is not None}
    return [
        _check(train, one, one.contents)
        for one in loaders
        if train and not one.trained and one.contents is not None
        if one.passes or one.contents.dataset not in known
    ]


def _check(train: Sequence[LoaderSeen], loader: LoaderSeen, held: ContentsSeen) -> DataCheck:
    place, known = loader.place, [one.contents for one in train if one.contents is not None]
    if any(one.dataset == held.dataset for one in known):
        return undecided(
            NAME,
            "a loader that does not train has the very data set that trains",
            place,
            advice="If its figures are to say how well the model does on other data, split it.",
        )
    unread = next((one.failed for one in (*known, held) if one.failed), None)
    if unread is not None:
        return undecided(NAME, f"samples could not be read: {unread}", place)
    if not all(one.is_same for one in (*known, held)):
        return undecided(NAME, "a sample that is read twice is not the same: it is random", place)
    trained = {digest: number for one in known for number, digest in enumerate(one.digests)}
    leaked = [(n, trained[d]) for n, d in enumerate(held.digests) if d in trained]
    if leaked:
        return failed(
            NAME,
            f"{len(leaked):,} of {len(held.digests):,} samples of a loader that does not train are "
            "in the data that trains",
            place,
            evidence=tuple(
                f"its sample {mine} is sample {theirs} of {train[0].place}"
                for mine, theirs in leaked[:NUM_SHOWN]
            ),
            advice="Remove them from one of the two: what is evaluated is too good now.",
        )
    if any(len(one.digests) < one.num for one in (*known, held)):
        read = ", ".join(f"{len(one.digests):,} of {one.num:,}" for one in (*known, held))
        return undecided(NAME, f"no leak in the samples that were read ({read})", place)
    num = sum(one.num for one in known)
    return passed(NAME, f"none of {held.num:,} samples is among {num:,} that train", place)
