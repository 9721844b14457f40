"""Finds a device's row in the table of accelerators.

In: a device's name as torch gives it, and what torch says of its memory and multiprocessors. Out:
its row, or None: an unknown device has no peak, and hence no utilization. Only whole names match,
since parts that differ by a suffix differ in speed. Ceilings are measured elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import replace

from steptime.core.devices.accelerators import ACCELERATORS, Accelerator

_SLICE = re.compile(r"(?P<device>.+?) (?P<slice>MIG \d+[cg]\.\S+)")
"""What NVIDIA's driver calls a slice: the whole device, then the profile of the slice."""

_NEAR = 0.12
"""A driver keeps some of the memory for itself; two parts of one name differ by more than this."""


def find_accelerator(
    name: str | None,
    *,
    memory_bytes: int | None = None,
    num_multiprocessors: int | None = None,
) -> Accelerator | None:
    """Return the row of a device, by what torch calls it or by the name of the part.

    A slice of a device has the part of the peaks that its multiprocessors are of all.

    Args:
        name: name of the device or of the part.
        memory_bytes: size of its memory, which tells parts of one name apart [bytes].
        num_multiprocessors: its multiprocessors; without them a slice has no row.
    """
    if name is None:
        return None
    sliced = _SLICE.fullmatch(name)
    if sliced is not None:
        return _slice_of(sliced["device"], sliced["slice"], num_multiprocessors)
    rows = _rows(name)
    if len(rows) > 1:
        rows = [one for one in rows if _fits(one, memory_bytes, num_multiprocessors)]
    return _only(rows, name)


def _rows(name: str) -> list[Accelerator]:
    """Return the rows with that name; older drivers leave out the vendor's."""
    bare = name.removeprefix("NVIDIA ")
    return [
        one
        for one in ACCELERATORS
        if name == one.name or bare in [known.removeprefix("NVIDIA ") for known in one.device_names]
    ]


def _fits(row: Accelerator, memory_bytes: int | None, num_multiprocessors: int | None) -> bool:
    """Return whether what torch says of a device is not another part's."""
    if row.memory_gib is not None and memory_bytes is not None:
        return abs(memory_bytes / 2**30 / row.memory_gib - 1) <= _NEAR
    if row.num_multiprocessors is not None and num_multiprocessors is not None:
        return num_multiprocessors == row.num_multiprocessors
    return True


def _only(rows: list[Accelerator], name: str) -> Accelerator | None:
    """Return the only row; of several with the same peaks, what they share."""
    if not rows or any(one.peak_flops_per_s != rows[0].peak_flops_per_s for one in rows):
        return None
    if len(rows) == 1:
        return rows[0]
    return replace(rows[0], name=name.removeprefix("NVIDIA "), bandwidth_bytes_per_s=None)


def _slice_of(device: str, name: str, num_multiprocessors: int | None) -> Accelerator | None:
    whole = _only(_rows(device), device)
    if whole is None or not whole.num_multiprocessors or not num_multiprocessors:
        return None
    part = num_multiprocessors / whole.num_multiprocessors
    if part > 1:
        return None
    share = f"{num_multiprocessors} of {whole.num_multiprocessors} multiprocessors"
    return replace(
        whole,
        name=f"{whole.name}, {name}",
        peak_flops_per_s={kind: peak * part for kind, peak in whole.peak_flops_per_s.items()},
        bandwidth_bytes_per_s=None,
        source=f"{whole.source}; {share}",
    )
