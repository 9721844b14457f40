"""Checks that a resumed training goes on with the samples that were to come.

In: the loader as one rank saw it until its second epoch began, and as the resumed command saw it.
Out: one `DataCheck`.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.data.check.epoch_checks import NO_INDICES, failed, passed, shown, undecided
from steptime.data.check.seen_orders import LoaderSeen, PassSeen
from steptime.data.values.data_check_values import DataCheck

NAME = "resume"

HOW = (
    'Say how the script resumes: --resume-command "python train.py --resume ck.pt". It runs after '
    "the command, in the same place, where nothing it writes stays."
)


def check_resume(before: LoaderSeen | None, after: LoaderSeen | None) -> DataCheck:
    """Return whether the resumed command trains on what the checkpoint had not seen.

    Args:
        before: the loader of the command as written; it ended as its second epoch began, and the
            order of that one was drawn.
        after: the same of the command that resumed from its last checkpoint.
    """
    if before is None or len(before.epochs) < 2:
        return undecided(NAME, "the command as written did not come to a second epoch", None)
    place, (first, second) = before.place, before.epochs[:2]
    if not before.saves:
        return undecided(NAME, "the script saved no checkpoint in its first epoch", place)
    if after is None or not after.epochs:
        return undecided(NAME, "the resumed command did not train", place)
    if first.order is None or second.order is None or after.epochs[0].order is None:
        return undecided(NAME, NO_INDICES, place)
    resumed, saved = _trained_on(after.epochs[0]), before.saves[-1]
    num_seen = max(0, min(saved.num_handed, len(first.digests)) - first.ahead)
    if saved.number == first.number and not saved.has_ended:
        expected = _left(first, num_seen) or second.order
        return _judge_within(place, first, expected, resumed, num_seen=num_seen)
    if resumed and resumed == _left(first, len(first.digests)):
        # Its epoch was cut short, and it counts the batches of a whole one.
        return passed(NAME, f"the resumed training goes on after batch {num_seen}", place)
    return _judge_between(place, first.order, second.order, resumed)


def _left(seen: PassSeen, num_batches: int) -> list[int]:
    """Return the order of an epoch behind its first batches."""
    return (seen.order or [])[sum(seen.sizes[:num_batches]) :]


def _trained_on(seen: PassSeen) -> list[int]:
    """Return the order of an epoch without the batches that the script passed over."""
    return _left(seen, max(0, seen.num_passed_over - seen.ahead))


def _judge_between(
    place: str | None, first: list[int], second: list[int], resumed: list[int]
) -> DataCheck:
    """Judge a checkpoint of the end of the first epoch."""
    if resumed == second:
        return passed(NAME, "the resumed training goes on with the second epoch's order", place)
    if resumed == first:
        return failed(
            NAME,
            f"the resumed training repeats the first epoch's order of {len(first):,} samples",
            place,
            evidence=(
                f"the first epoch begins with {shown(first)}",
                f"the second would begin with {shown(second)}",
                f"the resumed one begins with {shown(resumed)}",
            ),
            advice="Tell the sampler the epoch after loading: sampler.set_epoch(epoch), or save "
            "and load the state of the generator that draws the order.",
        )
    if sorted(resumed) != sorted(second):
        return _wrong_samples(place, second, resumed)
    return undecided(
        NAME,
        "the resumed epoch has all samples in a new order, neither the first nor the second one's",
        place,
        advice="To repeat a run exactly, seed the order by the epoch, or save the generator.",
    )


def _judge_within(
    place: str | None,
    first: PassSeen,
    expected: list[int],
    resumed: list[int],
    *,
    num_seen: int,
) -> DataCheck:
    """Judge a checkpoint after `num_seen` batches of the first epoch."""
    if resumed == expected:
        return passed(NAME, f"the resumed training goes on after batch {num_seen}", place)
    if resumed == first.order:
        return failed(
            NAME,
            f"the resumed training begins the epoch again: {num_seen} batches come twice",
            place,
            evidence=(f"the checkpoint was saved after {num_seen} batches",),
            advice="Skip the batches that were seen: accelerator.skip_first_batches, or a "
            "StatefulDataLoader with its state in the checkpoint.",
        )
    if sorted(resumed) == sorted(expected):
        return undecided(NAME, "what is left of the epoch comes in another order", place)
    return _wrong_samples(place, expected, resumed)


def _wrong_samples(place: str | None, expected: Sequence[int], resumed: Sequence[int]) -> DataCheck:
    missing, twice = set(expected) - set(resumed), set(resumed) - set(expected)
    return failed(
        NAME,
        f"the resumed training leaves out {len(missing):,} samples that were to come, and has "
        f"{len(twice):,} that were not",
        place,
        evidence=(f"left out: {shown(sorted(missing))}", f"not to come: {shown(sorted(twice))}"),
        advice="Restore the order of the epoch before batches are skipped: set_epoch(epoch) first.",
    )
