"""Compares what the ranks of a data-parallel model hold and get.

In: what each rank wrote of its own weights and inputs. Out: replicas that drift, or that are given
the same samples. What is not compared on two ranks at least gives nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from steptime.measure.sense.sense_record import InputsSeen, ReplicaSeen
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.values.model.sense_values import Drift, SameInputs

MIN_DRIFT = 0.01
"""Of what training has changed: rounding that differs between processors is a millionth."""

MIN_APART = 1e-3
"""Of the weights themselves, before the first update."""

MIN_SAMPLES = 2
"""Samples that must differ, the last among them."""

Values = tuple[float, ...]


def find_drift(ranks: Sequence[RankSteps]) -> Drift | None:
    """Return the two ranks of a data-parallel model whose weights differ most, if they do."""
    found = [one for group in _groups(ranks) if (one := _drift_of(group)) is not None]
    return max(found, key=lambda one: one.difference, default=None)


def find_same_inputs(ranks: Sequence[RankSteps]) -> SameInputs | None:
    """Return the ranks of a data-parallel model that are given the same inputs."""
    for group in _groups(ranks):
        alike: dict[Values | tuple[str, ...], list[int]] = defaultdict(list)
        for number, rank in group.items():
            seen = rank.signals.rank_inputs
            if seen is not None and _tells(seen):
                alike[seen.digests].append(number)
        for digests, numbers in alike.items():
            if len(numbers) > 1:
                return SameInputs(ranks=tuple(sorted(numbers)), num_calls=len(digests))
    return None


def _tells(seen: InputsSeen) -> bool:
    """Return whether equal inputs say something: all of them differ, and ranks share no sample."""
    return not seen.talks and len(set(seen.digests)) == len(seen.digests) > 1


def _groups(ranks: Sequence[RankSteps]) -> Iterator[Mapping[int, RankSteps]]:
    """Yield the ranks of each data-parallel model by number, where several of them wrote."""
    found: dict[tuple[int, ...], dict[int, RankSteps]] = defaultdict(dict)
    for one in ranks:
        seen = (*one.signals.replicas, one.signals.rank_inputs)
        for members in {each.ranks for each in seen if each is not None}:
            found[members][one.head.rank] = one
    yield from (group for group in found.values() if len(group) > 1)


def _drift_of(group: Mapping[int, RankSteps]) -> Drift | None:
    first, *others = sorted(group)
    found = [_compare(group[first], group[other]) for other in others]
    return max(filter(None, found), key=lambda one: one.difference, default=None)


def _compare(a: RankSteps, b: RankSteps) -> Drift | None:
    """Return how two ranks drift; None where a script may have moved weights between them."""
    seen = {one.n: one for one in a.signals.replicas}
    pairs = [(seen[one.n], one) for one in b.signals.replicas if one.n in seen]
    if len(pairs) < MIN_SAMPLES or not all(_is_comparable(*pair) for pair in pairs):
        return None
    if len({len(one.values) for pair in pairs for one in pair}) > 1:
        return None
    start = pairs[0][0].values, pairs[0][1].values
    apart = [_apart(one.values, other.values, start) for one, other in pairs]
    differs = [share >= MIN_DRIFT for share in apart]
    differs[0] = apart[0] >= MIN_APART  # of the weights themselves
    since = next((at for at, _ in enumerate(differs) if all(differs[at:])), len(differs))
    if len(differs) - since < MIN_SAMPLES:
        return None
    last = pairs[-1][0]
    return Drift(
        ranks=(a.head.rank, b.head.rank),
        first_update=pairs[since][0].n if since else None,
        difference=apart[-1],
        num_updates=last.n,
        num_local=last.local,
        num_exchanges=last.exchanges,
    )


def _is_comparable(a: ReplicaSeen, b: ReplicaSeen) -> bool:
    """Return whether DDP alone keeps the weights of two samples alike."""
    return a.ranks == b.ranks and not any(
        one.hooked or one.written or one.moved is None or one.moved >= one.largest for one in (a, b)
    )


def _apart(a: Values, b: Values, start: tuple[Values, Values]) -> float:
    """Return how far two ranks are apart, of what training has changed; at the start of all."""
    travel = max(math.dist(a, start[0]), math.dist(b, start[1]))
    if a == start[0] and b == start[1]:
        travel = math.hypot(*a)
    return math.dist(a, b) / travel if travel else 0.0
