"""Checks of how random an order is, and of how classes fall on batches.

In: a loader as rank 0 saw it. Out: `shuffle_quality` and `sorted_input`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from steptime.data.check.epoch_checks import failed, first_epoch, passed, undecided
from steptime.data.check.order_tests import (
    MIN_SAMPLES,
    class_dispersion,
    class_p_value,
    serial_z,
    spearman_z,
    two_sided,
)
from steptime.data.check.seen_orders import LoaderSeen, PassSeen
from steptime.data.values.data_check_values import DataCheck

LEVEL = 0.005
"""The tests share it. With the normal approximations, a sound order is unlike a permutation at most
once in a hundred times (`benchmarks/data/data_bugs.py`), and two orders once in ten thousand."""

NUM_TESTS = 3

MIN_DISPERSION = 1.5
"""From here on input counts as sorted: classes then vary half as much again from batch to batch."""

NUM_BATCHES_SHOWN = 3


def check_shuffle(loader: LoaderSeen) -> DataCheck:
    """Return whether the orders of two epochs look like random permutations.

    It fails if both do not: a bad shuffle is bad each time, and chance seldom strikes twice.
    """
    name, place, epoch = "shuffle_quality", loader.place, first_epoch(loader)
    if epoch is None or not epoch.order:
        return undecided(name, "no indices were drawn: the order cannot be tested", place)
    order = epoch.order
    if len(order) < MIN_SAMPLES:
        return undecided(name, f"an epoch has only {len(order)} samples", place)
    if loader.nature.get("is_sequential") or order == sorted(order):
        return undecided(name, "the loader does not shuffle", place)
    tested = [_least_likely(loader, one) for one in loader.epochs[:2] if one.order]
    what, p_value = max(tested, key=lambda one: one[1])
    if p_value > LEVEL:
        check = passed(name, f"{len(order):,} samples are as mixed as by chance", place)
    elif not loader.nature.get("is_shuffled"):
        sampler = loader.nature.get("sampler")
        check = undecided(name, f"{what}; {sampler} may do so on purpose", place)
    else:
        evidence = (f"the first are {', '.join(map(str, order[:10]))}",)
        advice = "Draw a permutation of all samples: DataLoader(shuffle=True)."
        check = failed(name, what, place, evidence=evidence, advice=advice)
    return replace(check, p_value=p_value)


def _least_likely(loader: LoaderSeen, epoch: PassSeen) -> tuple[str, float]:
    """Return what is least like a random permutation in an order, and its p-value (Bonferroni)."""
    order = epoch.order or []
    p_values = {
        "indices rise or fall with their position": two_sided(spearman_z(order)),
        "neighbors in the data set stay together": two_sided(serial_z(order)),
    }
    labels = labels_of_order(loader, epoch)
    if labels is not None and len(set(labels)) > 1:
        p_values["classes fall unevenly on batches"] = class_p_value(labels, epoch.sizes)
    what, least = min(p_values.items(), key=lambda item: item[1])
    return what, min(1.0, least * NUM_TESTS)


def check_sorted(loader: LoaderSeen) -> DataCheck:
    """Return whether classes fall on batches as they would by chance."""
    name, place, epoch = "sorted_input", loader.place, first_epoch(loader)
    labels, sizes = ([], []) if epoch is None else _labels_and_sizes(loader, epoch)
    if not labels:
        return undecided(name, "no labels were seen: one whole number for each sample", place)
    if len(sizes) < 2:
        return undecided(name, "fewer than two batches were seen", place)
    if len(set(labels)) < 2:
        return undecided(name, f"all {len(labels):,} samples seen are of one class", place)
    dispersion, p_value = class_dispersion(labels, sizes), class_p_value(labels, sizes)
    told = f"classes vary {dispersion:.2f} times as much from batch to batch as by chance"
    if dispersion < MIN_DISPERSION or p_value > LEVEL:
        return replace(passed(name, told, place), p_value=p_value)
    check = failed(
        name,
        told,
        place,
        evidence=tuple(_counts(labels, sizes)),
        advice="Shuffle the samples: shuffle=True, or once before they are written into shards.",
    )
    return replace(check, p_value=p_value)


def labels_of_order(loader: LoaderSeen, epoch: PassSeen) -> list[int] | None:
    """Return the labels of an epoch's samples in their order; None where they are not known."""
    labels, order = loader.labels, epoch.order
    if labels is None or not order or sum(epoch.sizes) != len(order) or max(order) >= len(labels):
        return None
    return [labels[index] for index in order]


def _labels_and_sizes(loader: LoaderSeen, epoch: PassSeen) -> tuple[list[int], list[int]]:
    """Return labels and the sizes of batches: of the whole epoch, or of the batches handed out."""
    known = labels_of_order(loader, epoch)
    if known is not None:
        return known, epoch.sizes
    batches = [labels for labels in epoch.labels if labels]
    return [label for labels in batches for label in labels], [len(labels) for labels in batches]


def _counts(labels: Sequence[int], sizes: Sequence[int]) -> list[str]:
    told, begin = [], 0
    for number, size in enumerate(sizes[:NUM_BATCHES_SHOWN]):
        counts = Counter(labels[begin : begin + size]).most_common(NUM_BATCHES_SHOWN)
        begin += size
        classes = ", ".join(f"class {label}: {n}" for label, n in counts)
        told.append(f"batch {number} of {size} samples: {classes}")
    return told
