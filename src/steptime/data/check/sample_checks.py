"""Checks of what samples hold: readable, not twice, the same in two sources, no leak, one label.

In: `SampleDigests` and functions that say where a sample lies. Out: one `DataCheck` each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steptime.data.check.epoch_checks import failed, passed, undecided
from steptime.data.check.sample_digests import SampleDigests
from steptime.data.values.data_check_values import DataCheck

NUM_SHOWN = 5
MORE_TIME = "Give it more time: --budget 1h."

PlaceOf = Callable[[int], str]


def check_readable(found: SampleDigests, *, what: str) -> DataCheck:
    """Return whether each sample can be read."""
    name = "readable"
    if found.unreadable:
        return failed(
            name,
            f"{what}: {len(found.unreadable):,} of {len(found.digests):,} samples cannot be read",
            None,
            evidence=tuple(f"{place}: {why}" for _, place, why in found.unreadable[:NUM_SHOWN]),
            advice="Restore these files from their source, or leave the samples out.",
        )
    if not found.is_whole:
        return undecided(name, _part(found, what), None, advice=MORE_TIME)
    return passed(name, f"{what}: {found.num_samples:,} samples can be read", None)


def check_copies(found: SampleDigests, *, what: str, place_of: PlaceOf) -> DataCheck:
    """Return whether a sample is there more than once."""
    name = "copies"
    groups = _repeated(found.digests)
    if groups:
        num = sum(len(group) - 1 for group in groups)
        return failed(
            name,
            f"{what}: {num:,} samples are copies of others",
            None,
            evidence=tuple(" = ".join(map(place_of, group[:3])) for group in groups[:NUM_SHOWN]),
            advice="Remove copies, or put all copies of a sample into the same split.",
        )
    if not found.is_whole:
        return undecided(name, _part(found, what), None, advice=MORE_TIME)
    return passed(name, f"{what}: no sample is there twice", None)


def check_labels(found: SampleDigests, *, what: str, place_of: PlaceOf) -> DataCheck | None:
    """Return whether copies of one sample have one label; None for data without labels."""
    if found.labels is None:
        return None
    name, labels = "labels", found.labels
    groups = [g for g in _repeated(found.digests) if len({labels[i] for i in g}) > 1]
    if groups:
        return failed(
            name,
            f"{what}: {len(groups):,} samples have copies with another label",
            None,
            evidence=tuple(
                " and ".join(f"{place_of(i)} ({labels[i]})" for i in group[:3])
                for group in groups[:NUM_SHOWN]
            ),
            advice="Decide which label is right; the model cannot learn both.",
        )
    return passed(name, f"{what}: no sample has two labels", None)


def check_same_samples(
    a: SampleDigests, b: SampleDigests, *, places: tuple[PlaceOf, PlaceOf]
) -> DataCheck:
    """Return whether two sources hold the same samples, each as often."""
    name = "same_samples"
    missing, more = _difference(a.digests, b.digests), _difference(b.digests, a.digests)
    if not (a.is_whole and b.is_whole):
        return undecided(name, f"{_part(a, 'A')}; {_part(b, 'B')}", None, advice=MORE_TIME)
    if not len(missing) and not len(more):
        return passed(name, f"A and B hold the same {len(a.digests):,} samples", None)
    evidence = [f"in A alone: {places[0](int(i))}" for i in missing[:NUM_SHOWN]]
    evidence += [f"in B alone: {places[1](int(i))}" for i in more[:NUM_SHOWN]]
    return failed(
        name,
        f"{len(missing):,} of {len(a.digests):,} samples of A are not in B, and {len(more):,} of "
        f"{len(b.digests):,} of B are not in A",
        None,
        evidence=tuple(evidence),
        advice="If B is a copy of A, write it again: `steptime data convert A B` checks it.",
    )


def check_same_order(
    a: SampleDigests, b: SampleDigests, *, places: tuple[PlaceOf, PlaceOf]
) -> DataCheck:
    """Return whether two sources hold their samples in the same order."""
    name, num = "same_order", min(len(a.digests), len(b.digests))
    unlike = np.flatnonzero(a.digests[:num] != b.digests[:num])
    if not len(unlike):
        if len(a.digests) != len(b.digests):
            return undecided(name, f"the first {num:,} samples are in the same order", None)
        return passed(name, f"{num:,} samples are in the same order", None)
    first = int(unlike[0])
    return failed(
        name,
        f"{len(unlike):,} of {num:,} positions differ, the first is {first:,}",
        None,
        evidence=(f"A: {places[0](first)}", f"B: {places[1](first)}"),
        advice="A shuffle hides this; where samples are read in order, write B in A's order.",
    )


def check_leakage(
    train: SampleDigests, evaluation: SampleDigests, *, places: tuple[PlaceOf, PlaceOf]
) -> DataCheck:
    """Return whether a sample of the evaluation is in the training data too."""
    name = "leakage"
    known = np.unique(train.digests[train.digests != 0])
    leaked = np.flatnonzero(np.isin(evaluation.digests, known))
    if len(leaked):
        where = [_first_place(train.digests, evaluation.digests[i]) for i in leaked[:NUM_SHOWN]]
        return failed(
            name,
            f"{len(leaked):,} of {len(evaluation.digests):,} samples of the evaluation are in the "
            "training data",
            None,
            evidence=tuple(
                f"{places[1](int(i))} = {places[0](j)}"
                for i, j in zip(leaked[:NUM_SHOWN], where, strict=True)
            ),
            advice="Remove them from one of the two: the evaluation is too good now.",
        )
    if not (train.is_whole and evaluation.is_whole):
        told = f"no leak in what was read: {_part(train, 'A')}; {_part(evaluation, 'B')}"
        return undecided(name, told, None, advice=MORE_TIME)
    return passed(name, "no sample of the evaluation is in the training data", None)


def _repeated(digests: np.ndarray) -> list[list[int]]:
    """Return the numbers of samples that hold the same, those of the first sample first."""
    order = np.argsort(digests, kind="stable")
    ranked = digests[order]
    starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
    ends = np.append(starts[1:], len(ranked))
    many = [(s, e) for s, e in zip(starts, ends, strict=True) if e - s > 1 and ranked[s] != 0]
    return sorted(order[s:e].tolist() for s, e in many)


def _difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the places in `one` of what `other` does not hold as often."""
    copies = np.unique(other, return_counts=True)
    order = np.argsort(one, kind="stable")
    ranked = one[order]
    nth = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)
    at = np.minimum(np.searchsorted(copies[0], ranked), max(0, len(copies[0]) - 1))
    if not len(copies[0]):
        return np.arange(len(one))
    held = np.where(copies[0][at] == ranked, copies[1][at], 0)
    return np.sort(order[nth >= held])


def _first_place(digests: np.ndarray, wanted: np.uint64) -> int:
    return int(np.flatnonzero(digests == wanted)[0])


def _part(found: SampleDigests, what: str) -> str:
    return f"{what}: {len(found.digests):,} of {found.num_samples:,} samples were read"
