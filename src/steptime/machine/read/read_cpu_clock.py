"""Reads how the kernel chooses the clock of the cores, and what a hypervisor takes from them.

In: the kernel's files. Out: `CpuClock` and `Steal`.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from steptime.machine._files import KernelFiles, parse_cpu_list, read_int, read_text
from steptime.machine.values.node_facts import CpuClock, Steal

_KHZ = 1000.0
_MIN_WANTED_S = 0.2
"""Core-seconds below which a share of them is the kernel's rounding to ticks of 10 ms."""


def read_cpu_clock(kernel: KernelFiles, *, cpus: str | None) -> CpuClock | None:
    """Return the policy of the allowed cores; None where the kernel has none, as in most guests."""
    folder = kernel.sys / "devices" / "system" / "cpu"
    wanted = parse_cpu_list(cpus) or parse_cpu_list(read_text(folder / "online"))
    places = [folder / f"cpu{cpu}" / "cpufreq" for cpu in sorted(wanted)]
    governors = _count(places, "scaling_governor")
    if not governors:
        return None
    return CpuClock(
        driver=next(iter(_count(places, "scaling_driver")), None),
        governors=governors,
        preferences=_count(places, "energy_performance_preference"),
        limit_hz=_least(places, "scaling_max_freq"),
        best_hz=_least(places, "cpuinfo_max_freq"),
    )


def _count(places: list[Path], name: str) -> dict[str, int]:
    words = Counter(word for place in places if (word := read_text(place / name)) is not None)
    return dict(words.most_common())


def _least(places: list[Path], name: str) -> float | None:
    found = [value for place in places if (value := read_int(place / name)) is not None]
    return min(found) * _KHZ if found else None


Ticks = tuple[float, float]
"""Core-seconds that the virtual cores worked, and that were stolen from them."""


def read_ticks(kernel: KernelFiles) -> Ticks | None:
    """Return the counts of all cores since the boot; None where the kernel does not count."""
    words = (read_text(kernel.proc / "stat") or "").split("\n")[0].split()
    with suppress(ValueError, IndexError):
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [int(word) for word in words[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        return (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / second, ticks[7] / second
    return None


def steal_between(before: Ticks | None, after: Ticks | None) -> Steal | None:
    """Return what was stolen between two readings, and since the boot."""
    if after is None:
        return None
    now = None
    if before is not None:
        now = _share(after[0] - before[0], after[1] - before[1])
    return Steal(now_fraction=now, boot_fraction=_share(*after))


def _share(worked_s: float, stolen_s: float) -> float | None:
    wanted_s = worked_s + stolen_s
    return stolen_s / wanted_s if wanted_s >= _MIN_WANTED_S else None
