"""Checks that the number of workers changes nothing: the same samples, in the same order.

In: the same loader as children with 0, 1, 2, 4 workers saw it, all generators seeded alike. Out:
one `DataCheck`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from steptime.data.check.epoch_checks import failed, passed, undecided
from steptime.data.check.seen_orders import LoaderSeen, PassSeen
from steptime.data.values.data_check_values import DataCheck
from steptime.verify.values import Outcome

NAME = "same_over_workers"
COPIES = (
    "A random generator that the data set holds is one: each worker's copy draws the same numbers. "
    "Seed it in worker_init_fn by torch.initial_seed(), or draw from torch's."
)


def check_workers(children: Mapping[int, LoaderSeen], *, again: LoaderSeen | None) -> DataCheck:
    """Return whether a loader hands out the same with any number of workers.

    Args:
        children: by number of workers; 0 is what the others are compared with.
        again: the same as 0, a second time; None where there was no difference to explain.
    """
    base = children.get(0)
    first = None if base is None else _epoch(base)
    others = {n: _epoch(one) for n, one in children.items() if n}
    if base is None or first is None or not any(others.values()):
        return undecided(NAME, "no epoch was seen with 0 workers and with others", None)
    if again is not None and (second := _epoch(again)) and not _is_same(first, second):
        reason = "two runs without workers differ too: the order does not depend on seeds alone"
        return undecided(NAME, reason, base.place)
    compare = _compare_samples if first.order is None else _compare_orders
    told = [(n, compare(first, epoch, n)) for n, epoch in others.items() if epoch is not None]
    found = [check for _, check in told if check is not None]
    place = base.place
    names = ", ".join(map(str, [0, *(n for n, _ in told)]))
    if not found and first.order is not None and (check := _of_values(first, others)):
        return replace(check, place=place)
    if not found:
        same = "samples in the same order" if first.order is not None else "samples"
        num_other = max(_num_other(first, one) for one in others.values())
        values = f"; the values of {num_other:,} of {len(_flat(first)):,} of them are others"
        values = values if num_other else ""
        if first.order is None:
            values = "" if all(_in_order(first, one) for one in others.values()) else MOVED
        return passed(NAME, f"the same {same} with {names} workers{values}", place)
    failures = [check for check in found if check.outcome is Outcome.FAIL]
    return replace((failures or found)[0], place=place)


MOVED = "; the order changes, as each worker has its part: keep num_workers to repeat a run"


def needs_again(children: Mapping[int, LoaderSeen]) -> bool:
    """Return whether a second run without workers would tell something."""
    return check_workers(children, again=None).outcome is Outcome.FAIL


def _epoch(loader: LoaderSeen) -> PassSeen | None:
    return next((one for one in loader.passes if one.digests), None)


def _is_same(one: PassSeen, other: PassSeen) -> bool:
    return one.order == other.order and (one.order is not None or one.digests == other.digests)


def _flat(seen: PassSeen) -> list[str]:
    return [digest for batch in seen.digests for digest in batch or ()]


def _num_other(one: PassSeen, other: PassSeen | None) -> int:
    """Return how many samples at the same place hold something else."""
    mine, theirs = _flat(one), [] if other is None else _flat(other)
    return sum(a != b for a, b in zip(mine, theirs, strict=False))


def _of_values(first: PassSeen, others: Mapping[int, PassSeen | None]) -> DataCheck | None:
    """Fail where one worker gives the values that none gives, and several give others."""
    differing = {n: num for n, one in others.items() if (num := _num_other(first, one))}
    if not differing or 1 in differing or others.get(1) is None:
        return None
    num_workers, num_other = next(iter(differing.items()))
    return failed(
        NAME,
        f"with {num_workers} workers {num_other:,} of {len(_flat(first)):,} samples have other "
        "values; with 1 worker they have those that they have without workers",
        None,
        evidence=("so the values depend on something of which each worker has a copy",),
        advice=COPIES,
    )


def _in_order(one: PassSeen, other: PassSeen | None) -> bool:
    num = 0 if other is None else min(len(one.digests), len(other.digests))
    return other is None or one.digests[:num] == other.digests[:num]


def _compare_orders(first: PassSeen, other: PassSeen, num_workers: int) -> DataCheck | None:
    """Compare two epochs of a data set with indices."""
    if first.order != other.order:
        return failed(
            NAME,
            f"with {num_workers} workers other samples come, or in another order",
            None,
            evidence=(_first_difference(first.order or [], other.order or []),),
            advice="Draw the order in the sampler, from a generator that no worker touches.",
        )
    mine, theirs = _flat(first), _flat(other)
    if mine == theirs or Counter(mine) != Counter(theirs):
        return None  # other values of the same samples: random transforms
    return failed(
        NAME,
        f"with {num_workers} workers the same batches come in another order",
        None,
        evidence=(_first_difference(mine, theirs),),
        advice="Leave in_order=True.",
    )


def _compare_samples(first: PassSeen, other: PassSeen, num_workers: int) -> DataCheck | None:
    """Compare two passes of an iterable data set by what the samples hold."""
    mine, theirs = Counter(_flat(first)), Counter(_flat(other))
    if not mine or not theirs:
        return undecided(NAME, "what a sample holds could not be read from its batch", None)
    twice = [d for d, n in theirs.items() if n >= 2 * mine.get(d, 1)]
    share = len(twice) / len(theirs)
    if share > 0.5 and num_workers > 1:
        return failed(
            NAME,
            f"with {num_workers} workers the same sample comes {_times(theirs)} times: "
            "each worker has a copy of the iterable data set",
            None,
            evidence=(f"{len(twice):,} of {len(theirs):,} samples seen come more than once",),
            advice="In __iter__, take every num_workers-th sample: torch.utils.data."
            "get_worker_info() has id and num_workers.",
        )
    if not (first.is_at_end and other.is_at_end):
        reason = "the epoch was not seen to its end; no sample came twice"
        return undecided(NAME, reason, None, advice="See more of it: --batches.")
    if mine == theirs:
        return None
    if not set(mine) & set(theirs):
        return undecided(NAME, "no sample holds the same twice: its values are random", None)
    missing, more = mine - theirs, theirs - mine
    return failed(
        NAME,
        f"with {num_workers} workers {missing.total():,} of {mine.total():,} samples are missing, "
        f"and {more.total():,} are new",
        None,
        evidence=(f"{mine.total():,} samples without workers, {theirs.total():,} with them",),
        advice="Give each worker its part in __iter__, and keep incomplete last batches.",
    )


def _times(counts: Counter[str]) -> int:
    return counts.most_common(1)[0][1]


def _first_difference(one: Sequence[object], other: Sequence[object]) -> str:
    pairs = enumerate(zip(one, other, strict=False))
    at = next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
    mine = one[at] if at < len(one) else "nothing"
    theirs = other[at] if at < len(other) else "nothing"
    return f"first difference at position {at:,}: {mine} without workers, {theirs} with them"
