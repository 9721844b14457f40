"""Compares two runs' losses in lockstep (L2): whether they differ by more than rounding or chance.

In: recordings of whole runs of one script, with the same batches. Out: checks. Perturbed (or
redrawn) runs give the envelope; docs/explanation/quality.md says how its factor was calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from steptime.verify.recordings import RecordedUpdate, Recording
from steptime.verify.values import Outcome, QualityCheck

LOCKSTEP_FACTOR = 8.0
"""Factor over the perturbed runs' largest measure. Training forks: where three runs of eight take
the other branch, three runs may miss it; a right lever's distance was six times theirs."""

REDRAWN_FACTOR = 4.0
"""Factor over redrawn runs, whose losses differ by chance in each update and do not fork."""

STRETCH = 12
"""After so many updates the difference of two perturbed runs is independent; of redrawn runs: 1."""

MIN_UPDATES = 20
"""Least updates for lockstep over a longer training: fewer show only a gross drift."""

WIDEST_BIAS = 0.5
"""Where the losses' mean may differ by more than this (a half), chance hides any other cause."""

HIDDEN = "chance alone moves the losses by"
"""What a check says that chance leaves open, whatever the candidate is."""

LEAST_HORIZON = 3
"""Least updates in which the losses of perturbed runs are predictable: fewer compare only the
initial weights. The second loss shows what the first update did, the third shows the second."""

BEYOND_FACTOR = 2.0
"""Beyond the horizon a mean may lie so many times the perturbed runs' range outside this range."""

LOSS_FLOOR = 1e-4
EVALUATION_FLOOR = 1e-2
"""Relative differences of losses, and of evaluation results, that need no envelope."""

FLOORS = {"lockstep_evaluation": EVALUATION_FLOOR}


def check_finite(baseline: Recording, candidate: Recording) -> QualityCheck:
    """Check that the candidate's losses are finite where the baseline's are."""
    for a, b in zip(baseline.ranks, candidate.ranks, strict=False):
        for one, other in zip(a.updates, b.updates, strict=False):
            if _is_bad(other) and not _is_bad(one):
                return _fail("finite", f"the loss of update {other.n} is not finite")
    return QualityCheck(name="finite", outcome=Outcome.PASS)


def _is_bad(update: RecordedUpdate) -> bool:
    return update.loss is not None and not math.isfinite(update.loss)


def check_lockstep(
    baseline: Recording,
    others: Sequence[Recording],
    candidate: Recording,
    *,
    are_redrawn: bool = False,
) -> tuple[QualityCheck, ...]:
    """Check L2: the losses' distance from the baseline's, against perturbed (or redrawn) runs."""
    runs = (baseline, candidate, *others)
    n = min((one.num_updates for one in runs), default=0)
    is_whole = all(map(_is_whole, runs))
    if n < (LEAST_HORIZON if is_whole else MIN_UPDATES):
        found = f"{n} updates in all runs, at least {MIN_UPDATES} are needed"
        return (QualityCheck(name="lockstep", outcome=Outcome.INCONCLUSIVE, n=n, detail=found),)
    lanes = lanes_of(baseline, candidate, others)
    if lanes is None:
        return (_cannot_tell("lockstep", "no backward call from a loss was seen"),)
    ours, *theirs = lanes.differences
    if not all(math.isfinite(_rms(one)) for one in (ours, *theirs)):
        return (_cannot_tell("lockstep", "not all losses of the baseline are finite"),)
    late = slice(len(ours) * 3 // 4, None)
    stretch = 1 if are_redrawn else STRETCH
    floor = max(map(_rms, theirs)) / math.sqrt(max(1.0, len(ours) / stretch))
    factor = REDRAWN_FACTOR if are_redrawn else LOCKSTEP_FACTOR
    bias = _envelope("lockstep_bias", ours, theirs, factor=factor, measure=_bias, floor=floor)
    checks = (
        _envelope("lockstep", ours, theirs, factor=factor),
        bias,
        _envelope("lockstep_late", ours[late], [one[late] for one in theirs], factor=factor),
        *_check_evaluations(baseline, others, candidate),
    )
    if all(c.outcome is Outcome.PASS for c in checks) and (bias.limit or 0.0) > WIDEST_BIAS:
        found = f"{HIDDEN} {(bias.limit or 0.0) / factor:.0%}"
        horizon = 0 if are_redrawn else _horizon(theirs)
        if horizon < LEAST_HORIZON:
            return (_cannot_tell("lockstep", found), *checks[1:])
        return (*_check_to_horizon(ours, theirs, horizon, found), *checks[3:])
    return checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The losses of several runs beside each other, where every run has one.

    Attributes:
        updates: numbers of the updates (num_updates,).
        optimizers: the number of the optimizer of each update (num_updates,).
        losses: of each run (num_runs, num_updates): the baseline, the candidate, the others.
        differences: from the baseline, of each run but that (num_runs - 1, num_updates).
    """

    updates: Sequence[int]
    optimizers: Sequence[int]
    losses: Sequence[Sequence[float]]
    differences: Sequence[Sequence[float]]


def lanes_of(
    baseline: Recording, candidate: Recording, others: Sequence[Recording]
) -> Lanes | None:
    """Return the losses of runs beside each other; None where no update has one in all runs."""
    runs = (baseline, candidate, *others)
    n = min((one.num_updates for one in runs), default=0)
    found = [_losses(one, n) for one in runs]
    places = [i for i in range(n) if all(lane[i] is not None for lane in found)]
    if not places:
        return None
    first = baseline.ranks[0].updates
    optimizers = [first[i].opt for i in places]
    losses = [[lane[i] or 0.0 for i in places] for lane in found]
    return Lanes(
        updates=[first[i].n for i in places],
        optimizers=optimizers,
        losses=losses,
        differences=list(_differences(losses, optimizers)),
    )


def _horizon(theirs: Sequence[Sequence[float]]) -> int:
    """Return for how many updates from the first rounding alone leaves the losses as they are."""
    n = min(map(len, theirs))
    widest = WIDEST_BIAS / LOCKSTEP_FACTOR
    known = (k for k in range(1, n + 1) if max(_rms(one[:k]) for one in theirs) <= widest)
    return max(known, default=0)


def _check_to_horizon(
    ours: Sequence[float], theirs: Sequence[Sequence[float]], horizon: int, found: str
) -> tuple[QualityCheck, ...]:
    """Check losses side by side while they are predictable; beyond, check that their size agrees.

    An unstable training forgets its beginning within a few updates. Two runs of it, though both
    are right, then have different losses.
    """
    near = _envelope(
        "lockstep", ours[:horizon], [one[:horizon] for one in theirs], factor=LOCKSTEP_FACTOR
    )
    near = replace(near, detail=f"over {horizon} of {len(ours)} steps; further on {found}")
    means = [0.0, *(_mean(one[horizon:]) for one in theirs)]
    low, high, mean = min(means), max(means), _mean(ours[horizon:])
    outside, limit = max(low - mean, mean - high, 0.0), BEYOND_FACTOR * (high - low)
    outcome = Outcome.PASS if outside <= limit else Outcome.FAIL
    num_beyond = len(ours) - horizon
    beyond = QualityCheck(
        name="lockstep_beyond", outcome=outcome, estimate=outside, limit=limit, n=num_beyond
    )
    return (near, beyond)


def _is_whole(recording: Recording) -> bool:
    """Return whether the training ended before it made all updates that were to be recorded."""
    return all(rank.end and rank.end.n < rank.head.num_updates for rank in recording.ranks)


def _check_evaluations(
    baseline: Recording, others: Sequence[Recording], candidate: Recording
) -> tuple[QualityCheck, ...]:
    """Check the size of the models' evaluation results, over the calls that every run made.

    A call counts whose result is finite in the baseline and in all runs of the envelope: scripts
    call a model with memory that was never written, to count its operations.
    """
    first, ours, *theirs = (_evaluated(one) for one in (baseline, candidate, *others))
    calls = zip(first, ours, *theirs, strict=False)
    lanes = [list(lane) for lane in zip(*filter(_is_known, calls), strict=True)]
    if not lanes:
        return ()
    ours, *theirs = _differences(lanes, [0] * len(lanes[0]))
    return (_envelope("lockstep_evaluation", ours, theirs, factor=LOCKSTEP_FACTOR),)


def _is_known(call: Sequence[float]) -> bool:
    """Whether a call's result is finite in each run but the second, which is the candidate."""
    return all(map(math.isfinite, (call[0], *call[2:])))


def _evaluated(recording: Recording) -> list[float]:
    ranks = recording.ranks[:1]
    return [float.fromhex(v) for rank in ranks for u in rank.updates for v in u.evaluated]


def _losses(recording: Recording, n: int) -> list[float | None]:
    """Return each update's loss as the mean over ranks."""
    return [_mean_loss([rank.updates[i].loss for rank in recording.ranks]) for i in range(n)]


def _mean_loss(losses: list[float | None]) -> float | None:
    known = [loss for loss in losses if loss is not None]
    return sum(known) / len(known) if known else None


def _differences(lanes: list[list[float]], optimizers: list[int]) -> Iterator[list[float]]:
    """Yield differences from the first lane: of logs where all losses are positive, else scaled."""
    first, *rest = lanes
    sizes: dict[int, float | None] = {}
    for optimizer in set(optimizers):
        places = [i for i, one in enumerate(optimizers) if one == optimizer]
        is_positive = all(lane[i] > 0 for lane in lanes for i in places)
        mean = sum(abs(first[i]) for i in places) / len(places)
        sizes[optimizer] = None if is_positive else mean or 1.0
    for lane in rest:
        yield [
            math.log(x / y) if (size := sizes[optimizer]) is None else (x - y) / size
            for optimizer, x, y in zip(optimizers, lane, first, strict=True)
        ]


def _envelope(
    name: str,
    ours: Sequence[float],
    others: Sequence[Sequence[float]],
    *,
    factor: float,
    measure: Callable[[Sequence[float]], float] | None = None,
    floor: float = 0.0,
) -> QualityCheck:
    """Check that a measure of the differences is within the envelope of the other runs' largest.

    `floor` is a mean's size by chance, for the case that all the others' are small by chance.
    """
    measure = measure or _rms
    largest = max(floor, *map(measure, others))
    limit = factor * largest + FLOORS.get(name, LOSS_FLOOR)
    estimate = measure(ours)
    outcome = Outcome.PASS if estimate <= limit else Outcome.FAIL
    return QualityCheck(name=name, outcome=outcome, estimate=estimate, limit=limit, n=len(ours))


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(v * v for v in values) / len(values))


def _bias(values: Sequence[float]) -> float:
    return abs(_mean(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _fail(name: str, detail: str) -> QualityCheck:
    return QualityCheck(name=name, outcome=Outcome.FAIL, detail=detail)


def _cannot_tell(name: str, detail: str) -> QualityCheck:
    return QualityCheck(name=name, outcome=Outcome.INCONCLUSIVE, detail=detail)
