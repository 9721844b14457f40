"""Makes the values of the sense checks from what a rank and the workers wrote.

In: what a rank saw last, and what its workers saw. Out: a `Sense`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steptime.core.codec import from_json, to_json
from steptime.measure.sense.find_replicas import find_drift, find_same_inputs
from steptime.measure.sense.sense_record import EpochNumbers, WorkerSeen
from steptime.measure.values.model.sense_values import RepeatedWorkers, Sense, StaleNumber

if TYPE_CHECKING:
    from steptime.measure.fold.code_places import CodePlaces
    from steptime.measure.fold.run_records import RunRecords
    from steptime.measure.steps.step_fold import RankSteps

NUM_ALIKE = 3
"""States of generators (before and after two batches) and batches that must agree, and differ among
themselves: an order is drawn once."""

NUM_EPOCHS = 3
"""Epochs in which a worker must draw the same: two may be a trial and its repetition."""


def find_sense(
    rank: RankSteps, ranks: Sequence[RankSteps], records: RunRecords, places: CodePlaces
) -> Sense | None:
    """Return what tells whether the training does what its owner thinks; None if nothing does."""
    seen = rank.signals.sense
    if seen is None:
        return None
    own = {one.data_set for one in seen.epochs}
    last = {(one.pid, one.data_set, one.turn): one for one in records.worker_facts}
    workers = [one for one in last.values() if one.data_set in own]
    return replace(
        from_json(Sense, _placed(to_json(seen.sense), places)),
        repeated=find_repeated(workers),
        reseeded=find_reseeded(workers),
        duplicated=find_duplicated(workers),
        stale=find_stale(workers, seen.epochs),
        drift=find_drift(ranks),
        same_inputs=find_same_inputs(ranks),
    )


def _placed(value: Any, places: CodePlaces) -> Any:
    """Name the files of lines as a reader would, with their texts; a loss has one of its own."""
    if isinstance(value, list):
        return [_placed(one, places) for one in value]
    if not isinstance(value, dict):
        return value
    if "line" not in value:
        return {key: _placed(one, places) for key, one in value.items()}
    file, line = value["file"], value["line"]
    loss = places.source.losses.get((file, line))
    if loss is not None:
        return {"file": places.name(loss.file), "line": loss.line, "text": loss.text}
    text = places.source.texts.get((file, line))
    return {"file": places.name(file), "line": line, "text": text}


# -- workers


def _groups(workers: Sequence[WorkerSeen]) -> Iterator[list[WorkerSeen]]:
    """Yield the workers that began an epoch together, two at least."""
    found: dict[tuple[int, int], dict[int, WorkerSeen]] = defaultdict(dict)
    for one in workers:
        if one.turn == 1:
            found[one.data_set, one.epoch][one.worker] = one
    yield from (list(group.values()) for group in found.values() if len(group) > 1)


def _are_alike(digests: Sequence[Sequence[str]]) -> bool:
    """Return whether all workers have the same digests, which differ among themselves."""
    first = digests[0][:NUM_ALIKE]
    is_one = all(one[:NUM_ALIKE] == first for one in digests)
    return is_one and len(set(first)) == NUM_ALIKE and all(first)


def find_repeated(workers: Sequence[WorkerSeen]) -> RepeatedWorkers | None:
    """Return generators that draw the same in each worker: equal before and after a batch."""
    found = [one for one in _groups(workers) if _are_alike([worker.states for worker in one])]
    if not found:
        return None
    first = found[0][0]
    same = [one[0] for one in found if one[0].data_set == first.data_set]
    is_each = len({one.states[:NUM_ALIKE] for one in same}) == 1
    return RepeatedWorkers(
        data_set=first.class_name,
        num_workers=len(found[0]),
        names=first.names,
        num_epochs=len(same) if is_each else 1,
    )


def find_reseeded(workers: Sequence[WorkerSeen]) -> RepeatedWorkers | None:
    """Return a generator that draws the same in each epoch, because each worker seeds it alike."""
    runs: dict[tuple[int, str], dict[int, list[tuple[str, ...]]]] = defaultdict(dict)
    for one in sorted(workers, key=lambda one: one.epoch):
        if one.turn == 1 and one.epoch:
            for name, states in (*one.shared.items(), (", ".join(one.names), one.states)):
                runs[one.data_set, name].setdefault(one.worker, []).append(states)
    kinds = {one.data_set: one.class_name for one in workers}
    for (data_set, name), by_worker in runs.items():
        num = min(len(epochs) for epochs in by_worker.values())
        if name and num >= NUM_EPOCHS and all(map(_are_alike, by_worker.values())):
            return RepeatedWorkers(
                data_set=kinds[data_set],
                num_workers=len(by_worker),
                names=(name,),
                num_epochs=num,
            )
    return None


def find_duplicated(workers: Sequence[WorkerSeen]) -> RepeatedWorkers | None:
    """Return an iterable that each worker begins in the same way."""
    for group in _groups(workers):
        if _are_alike([one.batches for one in group]):
            return RepeatedWorkers(data_set=group[0].class_name, num_workers=len(group))
    return None


def find_stale(workers: Sequence[WorkerSeen], epochs: Sequence[EpochNumbers]) -> StaleNumber | None:
    """Return a number that is another one in each epoch, and that staying workers keep."""
    for known in epochs:
        for name, first in known.numbers[0].items() if known.numbers else ():
            parent = tuple(seen[name] for seen in known.numbers if name in seen)
            own = [one for one in workers if one.data_set == known.data_set and one.turn > 1]
            held = [one.numbers[name] for one in own if name in one.numbers]
            if held and set(held) == {first} and len(set(parent)) == len(parent) > 1:
                return StaleNumber(name=name, parent=parent, worker=first)
    return None
