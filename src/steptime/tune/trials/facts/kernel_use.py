"""How much the kernel does for a step: page faults and system time, evaluations included.

In: a rank's samples of memory, and when its updates ended. Out: a `KernelUse`. `measure` leaves out
each stretch between two samples that holds an evaluation or a checkpoint, for a step's own numbers.
Where each stretch holds one, that leaves nothing; these numbers are then what a step has at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from steptime.measure.fold.seen_lines import MemorySample
from steptime.record.places import NS

LEAST_UPDATES = 2
"""Between the first and the last sample: what one update needed may have been the first of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """What the process needed for an update at most; None where it was not counted."""

    minor_faults: float | None
    system_s: float | None


def kernel_use(
    samples: Sequence[MemorySample], ends_s: Sequence[float], *, first: int
) -> KernelUse | None:
    """Return the use of an update; None where the samples lie too close together.

    Args:
        samples: in order of time.
        ends_s: when each update ended, on the clock of the samples [s].
        first: index of the first update that counts; what is before it is used where the rest is
            too little.
    """
    placed = [(bisect_right(ends_s, sample.t * NS), sample) for sample in samples]
    for least in (first, 1):
        counted = [(number, sample) for number, sample in placed if number >= least]
        if counted and counted[-1][0] - counted[0][0] >= LEAST_UPDATES:
            (before, begin), (after, end) = counted[0], counted[-1]
            num = after - before
            system = _growth(begin.stime_ns, end.stime_ns, num)
            return KernelUse(
                minor_faults=_growth(begin.minflt, end.minflt, num),
                system_s=None if system is None else system * NS,
            )
    return None


def _growth(before: int | None, after: int | None, num: int) -> float | None:
    return None if before is None or after is None else max(0, after - before) / num
