"""What earlier studies of the same script on the same machine found, as far as it orders this one.

In: offers, and what helped or failed before. Out: offers in another order. Nothing is taken for
granted: what helped is compared and proven again, and what failed is tried where nothing else is
proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from steptime.tune.search.order import Offer
from steptime.tune.values.study_values import State, Study, StudyOutcome, Trial, TrialEnd
from steptime.verify.values import Outcome

_BAD_ENDS = frozenset(
    {TrialEnd.FAILED, TrialEnd.OUT_OF_MEMORY, TrialEnd.TIMED_OUT, TrialEnd.DIVERGED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What earlier studies found.

    Attributes:
        studies: their ids, newest first.
        helped: levers with their settings that were in a proven recipe.
        failed: those that ended their process, or whose training was not as good, by themselves.
    """

    studies: tuple[str, ...] = ()
    helped: State = ()
    failed: State = ()


def experience_of(studies: Sequence[Study]) -> Experience:
    """What studies found, newest first: of each lever, what its newest study says."""
    helped: list[State] = []
    failed: list[State] = []
    known: set[str] = set()
    for study in studies:
        good = study.recipe if study.outcome is StudyOutcome.FASTER else ()
        bad = tuple(t.state[0] for t in study.trials if _is_bad(t))
        helped.append(tuple(one for one in good if one.name not in known))
        failed.append(tuple(one for one in bad if one.name not in known and one not in good))
        known |= {one.name for trial in study.trials for one in trial.state}
    return Experience(
        studies=tuple(study.study_id for study in studies),
        helped=tuple(one for some in helped for one in some),
        failed=tuple(one for some in failed for one in some),
    )


def _is_bad(trial: Trial) -> bool:
    """Whether a lever by itself ended its process, or was refused for what it does to training."""
    if len(trial.state) != 1 or trial.reference:
        return False
    is_refused = trial.quality is not None and trial.quality.outcome is Outcome.FAIL
    return is_refused or trial.end in _BAD_ENDS


def ordered(
    offers: Sequence[Offer], experience: Experience
) -> tuple[tuple[Offer, ...], tuple[Offer, ...]]:
    """The offers to try at first, what helped before in front, and those that wait.

    A setting that helped comes first among its lever's, one that failed last. A lever waits whose
    settings all failed.
    """
    some = [_ordered_settings(one, experience) for one in offers]
    waits = [one for one in some if all(it in experience.failed for it in one.settings)]
    first = [one for one in some if one not in waits]
    helped = {one.name for one in experience.helped}
    return tuple(sorted(first, key=lambda one: one.name not in helped)), tuple(waits)


def _ordered_settings(offer: Offer, experience: Experience) -> Offer:
    settings = sorted(
        offer.settings, key=lambda it: (it not in experience.helped, it in experience.failed)
    )
    return replace(offer, settings=tuple(settings))
