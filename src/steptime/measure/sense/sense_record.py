"""Reads the lines of the sense checks: `se`, `rp`, `ri` of a rank, `ws` of its loader's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.core.codec import from_json
from steptime.measure.values.model.sense_values import Sense
from steptime.record.lines import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochNumbers:
    """Whole numbers of a data set in the parent, at the beginning of its first epochs."""

    data_set: int
    numbers: tuple[Mapping[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SenseSeen:
    """What a rank saw: the values, with files as the guest names them, and its data sets."""

    sense: Sense
    epochs: tuple[EpochNumbers, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """What a worker saw in an epoch; the last line of each counts.

    `states` are digests of its generators, at the beginning and after each batch, `shared` those
    of each generator that all code of the process draws from; `batches` are
    digests of what an iterable yielded first. `epoch` is that of the training process when it
    started the worker, 0 where it is not known; `turn` counts the epochs of the worker itself.
    """

    pid: int
    worker: int
    data_set: int
    epoch: int
    turn: int
    class_name: str
    names: tuple[str, ...] = ()
    numbers: Mapping[str, int]
    states: tuple[str, ...] = ()
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    batches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSeen:
    """A few weights of a rank's data-parallel models after `n` updates.

    `ranks` are those of the model; `largest` is the size of the largest weight that was read, and
    `moved` the most elements that the script has moved between ranks itself, None where that is not
    known. `hooked` says that a hook of the script's exchanges gradients, `written` that the script
    has changed weights since the update before.
    """

    n: int
    ranks: tuple[int, ...]
    values: tuple[float, ...]
    largest: int
    moved: int | None
    hooked: bool
    written: bool
    exchanges: int
    local: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsSeen:
    """Digests of the first inputs of a data-parallel model.

    `talks` says that ranks exchange something in its forward.
    """

    ranks: tuple[int, ...]
    digests: tuple[str, ...]
    talks: bool


def read_sense(line: Line) -> SenseSeen:
    """Return what the line of a rank says."""
    return from_json(SenseSeen, {**line, "sense": line})


def read_worker(line: Line) -> WorkerSeen:
    """Return what the line of a worker says."""
    return from_json(WorkerSeen, line)
