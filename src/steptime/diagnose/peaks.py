"""Finds the peaks that a rank's device has: the user's own figures first, then the datasheet's.

In: a Measurement. Out: `DevicePeaks`, by type. A type without a figure has no peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.devices.hardware import find_accelerator
from steptime.measure.values.measurement import RankSummary

GIVEN = "given by the user"
"""The source of a peak that the user gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeaks:
    """The dense peaks of a device.

    Attributes:
        part: name of the device in its datasheet; None where it is not in the table.
        source: source of the datasheet's figures.
        flops_per_s: peak by type [FLOP/s].
        given: the types whose peak the user gave.
    """

    part: str | None
    source: str | None
    flops_per_s: Mapping[str, float]
    given: frozenset[str]

    def source_of(self, dtype: str | None) -> str | None:
        """Return where the peak of a type comes from."""
        return GIVEN if dtype in self.given else self.source


def find_peaks(rank: RankSummary | None, given: Mapping[str, float]) -> DevicePeaks:
    """Return the peaks of a rank's device.

    Args:
        rank: the rank; None where no process stepped.
        given: peaks that the user gave by type [FLOP/s].
    """
    part = None
    if rank is not None and rank.device.partition(":")[0] != "cpu":
        part = find_accelerator(
            rank.device_name,
            memory_bytes=rank.device_bytes,
            num_multiprocessors=rank.num_multiprocessors,
        )
    known = {} if part is None else part.peak_flops_per_s
    own = {name: peak for name, peak in given.items() if peak > 0}  # a file may hold anything
    return DevicePeaks(
        part=None if part is None else part.name,
        source=None if part is None else part.source,
        flops_per_s={**known, **own},
        given=frozenset(own),
    )
