"""What the processes of a run answered while they trained.

In: the answer files that the guest wrote. Out: an answer for each rank, which survives a round trip
through JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.measure.values.model.anatomy import Anatomy
from steptime.measure.values.model.profiled import RankProfile
from steptime.measure.values.model.work import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """Tensors of one type and shape that are no weights, gradients, states or activations.

    Attributes:
        name: type and shape, such as `fp32 [64, 1000]`.
        bytes: bytes of all of them.
        num: how many of them there are.
    """

    name: str
    bytes: int
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Who held the memory in one update.

    Attributes:
        anatomy: the parts; activations are those at the beginning of the backward call, all other
            parts those at the end of the update.
        others_bytes: tensors that belong to none of the parts, at the end of the update [bytes].
        others: these tensors by type and shape, the largest first; twelve at most.
        resident_bytes: resident memory of the process; None where the system does not say [bytes].
    """

    anatomy: Anatomy
    others_bytes: int
    others: tuple[TensorGroup, ...] = ()
    resident_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedStep:
    """The work of one step, which may have several updates.

    Attributes:
        updates: the work of each update, in order.
        flops: the work of all of them [FLOP].
        step_time_s: the usual time of a step then; None where it is not known [s].
        flops_per_s: the work over the usual time; None where that is not known [FLOP/s].
    """

    updates: tuple[Count, ...]
    flops: int
    step_time_s: float | None = None
    flops_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSteps:
    """Steps that were examined because somebody asked while the run trained; they do not count.

    Attributes:
        what: what was asked: `memory`, `count`, `profile` or `health`.
        first_step: the first of these steps, from 0.
        last_step: the last one, in which the answer was written.
    """

    what: str
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """What one rank answered, or why it did not.

    Attributes:
        rank: its rank.
        pid: its process id.
        training: number of its training, where the command has several.
        first_update: the first update that was examined, counted from 0 in the process; None where
            none was.
        num_updates: how many updates were examined.
        missing: why there is no answer, as a machine word; None where there is one.
        memory: who holds the memory; None unless that was asked.
        count: the work of a step; None unless that was asked.
        profile: what a profiler saw; None unless that was asked.
    """

    rank: int
    pid: int
    training: int | None = None
    first_update: int | None = None
    num_updates: int = 0
    missing: str | None = None
    memory: HeldMemory | None = None
    count: CountedStep | None = None
    profile: RankProfile | None = None
