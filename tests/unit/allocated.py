"""Counts what torch's CPU allocator gave out while something ran, for tests of levers."""

from __future__ import annotations

from typing import NamedTuple


class Allocated(NamedTuple):
    """Bytes more than at the beginning: the most, and those at the end."""

    peak: int
    held: int


def allocated(act):
    """All events of the allocator while `act()` runs; what it returns is alive to the end."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        kept = act()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    del kept
    return Allocated(peak=peak, held=held)
