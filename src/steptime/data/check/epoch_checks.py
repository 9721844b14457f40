"""Checks of the epochs of a loader: reshuffled, nothing twice, nothing lost, ranks apart.

In: the same loader as each rank saw it. Out: one `DataCheck` each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from steptime.data.check.seen_orders import LoaderSeen, PassSeen
from steptime.data.values.data_check_values import DataCheck
from steptime.verify.values import Outcome

MIN_ORDER = 10
"""Two random orders of ten samples are the same once in 3,628,800 times."""

NUM_SHOWN = 5

NO_INDICES = "the data set is iterable, so no sampler draws indices"


def check_epochs(ranks: Sequence[LoaderSeen]) -> list[DataCheck]:
    """Return what holds of a loader that trains; `ranks` are its copies, rank 0 first."""
    found = [check_reshuffled(ranks[0]), check_duplicates(ranks[0]), check_lost(ranks)]
    if int(ranks[0].nature.get("world_size") or 1) > 1:
        found.append(check_ranks(ranks))
    return found


def check_reshuffled(loader: LoaderSeen) -> DataCheck:
    """Return whether each epoch that was seen has an order of its own.

    The check is `set_epoch` where a DistributedSampler draws, else `reshuffled`.
    """
    is_told = loader.nature.get("is_distributed") and not loader.nature.get("is_sequential")
    name, place = "set_epoch" if is_told else "reshuffled", loader.place
    if len(loader.epochs) < 2:
        return undecided(name, "fewer than two epochs were seen", place, advice=MORE_EPOCHS)
    orders = [one.order for one in loader.epochs]
    if any(order is None for order in orders):
        return undecided(name, NO_INDICES, place)
    first = orders[0] or ()
    if len(first) < MIN_ORDER:
        return undecided(name, f"an epoch has only {len(first)} samples", place)
    same = _same_order(orders)
    if same is None:
        others = "the second epoch has another order than the first"
        if len(orders) > 2:
            others = f"each of {len(orders)} epochs has an order of its own"
        return passed(name, others, place)
    return _judge_same(name, loader, *same, is_told=bool(is_told))


def _same_order(orders: Sequence[Sequence[int] | None]) -> tuple[int, int] | None:
    """Return the first two epochs with the same order; None where all differ."""
    seen: dict[tuple[int, ...], int] = {}
    for number, order in enumerate(orders):
        before = seen.setdefault(tuple(order or ()), number)
        if before != number:
            return before, number
    return None


def _judge_same(
    name: str, loader: LoaderSeen, before: int, after: int, *, is_told: bool
) -> DataCheck:
    """Return what two epochs with the same order mean."""
    epochs, place = loader.epochs, loader.place
    order = epochs[before].order or ()
    both = "both epochs" if len(epochs) == 2 else f"epochs {before + 1} and {after + 1}"
    found = f"the order of {len(order):,} samples is the same in {both}"
    evidence = (f"both begin with {shown(order)}",)
    if is_told:
        is_stuck = epochs[before].epoch == epochs[after].epoch
        why = f": DistributedSampler was at epoch {epochs[after].epoch} in both" if is_stuck else ""
        advice = "Call sampler.set_epoch(epoch) at the beginning of each epoch."
        return failed(name, f"{found}{why}", place, evidence=evidence, advice=advice)
    if list(order) == sorted(order):
        return undecided(
            name,
            f"the loader does not shuffle: {both} go from the first sample to the last",
            place,
            advice="Pass shuffle=True, unless the samples have an order of their own.",
        )
    advice = "Draw a new order each epoch: seed the sampler's generator once, before the loop."
    return failed(name, found, place, evidence=evidence, advice=advice)


def check_duplicates(loader: LoaderSeen) -> DataCheck:
    """Return whether a sample comes more than once in an epoch of one rank."""
    name, place = "duplicates", loader.place
    orders = [one.order for one in loader.epochs if one.order]
    if not orders:
        return undecided(name, NO_INDICES, place)
    if loader.nature.get("is_replacing"):
        return passed(name, "the sampler draws with replacement, so samples repeat", place)
    each = [[(index, n) for index, n in Counter(order).most_common() if n > 1] for order in orders]
    number = next((number for number, repeated in enumerate(each) if repeated), None)
    if number is None:
        return passed(name, f"each of {len(orders[0]):,} samples comes once an epoch", place)
    repeated = each[number]
    return failed(
        name,
        f"{len(repeated):,} samples come more than once in {_which(number)}",
        place,
        evidence=tuple(f"sample {index} comes {n} times" for index, n in repeated[:NUM_SHOWN]),
        advice="Look at the sampler: it draws with replacement, or joins overlapping ranges.",
    )


def _which(number: int) -> str:
    """Return an epoch for a person; that of the first stands for all."""
    return f"epoch {number + 1}" if number else "an epoch"


def check_lost(ranks: Sequence[LoaderSeen]) -> DataCheck:
    """Return whether all samples come in an epoch; the rest must at least be another each time."""
    loader, name = ranks[0], "samples_lost"
    place, num = loader.place, loader.nature.get("num_samples")
    if num is None or any(not one.epochs or one.epochs[0].order is None for one in ranks):
        return undecided(name, NO_INDICES, place)
    if len(ranks) < int(loader.nature.get("world_size") or 1):
        return undecided(name, "not all ranks were seen", place)
    replicas = int(loader.nature.get("replicas") or 1)
    if replicas > len(ranks):
        reason = f"the sampler splits for {replicas} ranks, and {len(ranks)} ran"
        return undecided(name, reason, place, advice="Give the command with its launcher.")
    if not all(one.epochs[0].is_whole for one in ranks):
        return undecided(name, "the sampler has no end", place)
    if loader.nature.get("is_replacing"):
        return passed(name, "the sampler draws with replacement, so some are left out", place)
    num_epochs = min(len(one.epochs) for one in ranks)
    whole = [n for n in range(num_epochs) if all(one.epochs[n].is_whole for one in ranks)]
    lost = [_lost(ranks, epoch, int(num)) for epoch in whole]
    return _judge_lost(loader, lost, num_ranks=len(ranks))


def _lost(ranks: Sequence[LoaderSeen], epoch: int, num: int) -> set[int]:
    return set(range(num)).difference(*(one.epochs[epoch].order or () for one in ranks))


def _judge_lost(loader: LoaderSeen, lost: Sequence[set[int]], *, num_ranks: int) -> DataCheck:
    name, place, nature = "samples_lost", loader.place, loader.nature
    num = int(nature["num_samples"])
    number = next((number for number, one in enumerate(lost) if one), None)
    if number is None:
        return passed(name, f"an epoch has all {num:,} samples", place)
    first = lost[number]
    told = f"{len(first):,} of {num:,} samples are not in {_which(number)}"
    if len(lost) < 2:
        return undecided(name, f"{told}; one epoch was seen", place, advice=MORE_EPOCHS)
    always = sorted(set.intersection(*lost))
    is_torchs = nature.get("is_shuffled") or nature.get("is_sequential")
    tail = int(nature.get("batch_size") or 1) * num_ranks
    if len(always) < len(first) and len(first) <= tail:
        return passed(name, f"{told}, others each epoch (drop_last)", place)
    where = "neither epoch" if len(lost) == 2 else f"none of {len(lost)} epochs"
    evidence = (f"{len(always):,} are in {where}: {shown(always)}",)
    if always == sorted(first) and (is_torchs or len(first) <= tail):
        advice = "Keep the last batch (drop_last=False), or shuffle before it is cut off."
        return failed(name, f"{told}, the same each epoch", place, evidence=evidence, advice=advice)
    reason = f"{told}: whether the sampler chooses them on purpose is not known"
    return undecided(name, reason, place, evidence=evidence)


def check_ranks(ranks: Sequence[LoaderSeen]) -> DataCheck:
    """Return whether ranks share out the samples of each epoch: none twice but for padding."""
    num_epochs = min(len(one.epochs) for one in ranks)
    found = [_check_ranks(ranks, number) for number in range(max(1, num_epochs))]
    return next((one for one in found if one.outcome is not Outcome.PASS), found[0])


def _check_ranks(ranks: Sequence[LoaderSeen], number: int) -> DataCheck:
    loader, name = ranks[0], "ranks_apart"
    place, world_size = loader.place, int(loader.nature["world_size"])
    seen_epochs = (one.epochs[number] for one in ranks if len(one.epochs) > number)
    orders = [epoch.order for epoch in seen_epochs if epoch.order]
    if len(orders) < world_size:
        reason = f"indices of {len(orders)} of {world_size} ranks were seen"
        return undecided(name, reason, place)
    seen = Counter(index for order in orders for index in set(order or ()))
    shared = [index for index, n in seen.items() if n > 1]
    if len(shared) < world_size:  # DistributedSampler fills the last ranks up with first samples
        num = sum(len(order or ()) for order in orders)
        padded = f", {len(shared)} of them twice to make ranks even" if shared else ""
        return passed(name, f"{world_size} ranks share out {num:,} samples{padded}", place)
    is_same = all(order == orders[0] for order in orders)
    what = "all ranks have the same samples in the same order" if is_same else "ranks overlap"
    return failed(
        name,
        f"{what}{f' in epoch {number + 1}' if number else ''}: {len(shared):,} samples are on "
        f"more than one of {world_size} ranks",
        place,
        evidence=tuple(
            f"rank {one.rank} begins with {shown(order or [])}"
            for one, order in zip(ranks[:NUM_SHOWN], orders, strict=False)
        ),
        advice="Give each rank its own part: DistributedSampler, or accelerator.prepare(loader).",
    )


MORE_EPOCHS = "Give it more time (--budget), so that it comes to a second epoch."


def shown(indices: Sequence[int]) -> str:
    """Return the first indices for a person."""
    more = ", ..." if len(indices) > NUM_SHOWN else ""
    return ", ".join(map(str, indices[:NUM_SHOWN])) + more


def passed(name: str, finding: str, place: str | None) -> DataCheck:
    """Return a check that passed."""
    return DataCheck(name=name, outcome=Outcome.PASS, finding=finding, place=place)


def failed(
    name: str, finding: str, place: str | None, *, evidence: tuple[str, ...], advice: str
) -> DataCheck:
    """Return a check that failed."""
    return DataCheck(
        name=name,
        outcome=Outcome.FAIL,
        finding=finding,
        place=place,
        evidence=evidence,
        advice=advice,
    )


def undecided(
    name: str,
    finding: str,
    place: str | None,
    *,
    evidence: tuple[str, ...] = (),
    advice: str | None = None,
) -> DataCheck:
    """Return a check that could not be decided, with the reason as its finding."""
    return DataCheck(
        name=name,
        outcome=Outcome.INCONCLUSIVE,
        finding=finding,
        place=place,
        evidence=evidence,
        advice=advice,
    )


def first_epoch(loader: LoaderSeen) -> PassSeen | None:
    """Return the first pass that trained."""
    return loader.epochs[0] if loader.epochs else None
