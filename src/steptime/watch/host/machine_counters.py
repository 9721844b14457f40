"""One sample of the whole machine: its cores, its network, its clocks.

In: the files of the kernel, or psutil where there are none. Out: counters since the machine
started, and the clocks of this moment. `watch.host_sampler` knows the command's share of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from steptime.watch.host.processes import read_file

_PROC, _SYS = Path("/proc"), Path("/sys")
_MAX_CLOCKS = 8  # a read may interrupt the core itself


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """CPU time of all cores so far [s]; idle cores that waited for a disk are in `io_wait_s`."""

    busy_s: float
    io_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBytes:
    """Traffic so far, over interfaces that lead out of the machine, and over the loopback."""

    received: int
    sent: int
    loopback: int


def read_cpu_times() -> CpuTimes:
    """Return the CPU time; what the hypervisor stole counts as busy, as somebody else's work."""
    times = psutil.cpu_times()._asdict()
    # The time of virtual guests is in `user` and `nice` already; a wait for a disk is not busy.
    idle = ("idle", "iowait", "guest", "guest_nice")
    busy_s = float(sum(value for name, value in times.items() if name not in idle))
    return CpuTimes(busy_s=busy_s, io_wait_s=times.get("iowait"))


def network_reader(
    *, proc: Path = _PROC, sys_folder: Path = _SYS
) -> Callable[[], NetworkBytes | None]:
    """Return a reader of the traffic; it returns None where the kernel does not say (macOS).

    A bridge, bond or tunnel passes on what another interface counts too. So where there is network
    hardware, only hardware counts; elsewhere (in a container), interfaces that are built on no
    other.
    """
    counted: dict[frozenset[str], frozenset[str]] = {}

    def read() -> NetworkBytes | None:
        rows = {}
        for line in _lines(proc / "net" / "dev")[2:]:
            name, _, rest = line.partition(":")
            fields = rest.split()
            if len(fields) >= 9:
                rows[name.strip()] = (int(fields[0]), int(fields[8]))
        if not rows:
            return None
        names = frozenset(rows)
        if names not in counted:
            counted.clear()
            counted[names] = _outward(names, sys_folder / "class" / "net")
        return NetworkBytes(
            received=sum(rows[name][0] for name in counted[names]),
            sent=sum(rows[name][1] for name in counted[names]),
            loopback=rows.get("lo", (0, 0))[0],
        )

    return read


def _outward(names: Iterable[str], folder: Path) -> frozenset[str]:
    others = [name for name in names if name != "lo"]
    hardware = {name for name in others if (folder / name / "device").exists()}
    lowest = {name for name in others if not any((folder / name).glob("lower_*"))}
    return frozenset(hardware or lowest)


def clock_reader(
    *, proc: Path = _PROC, sys_folder: Path = _SYS
) -> Callable[[Iterable[int]], float | None]:
    """Return a reader of the mean clock of some cores [Hz]; None where it is not measured.

    A hypervisor often reports the nominal clock to its guests, which is no observation.
    """
    cpus = sys_folder / "devices" / "system" / "cpu"
    if (cpus / "cpu0" / "cpufreq" / "scaling_cur_freq").is_file():
        return lambda cores: _mean(_scaling_hz(cpus, core) for core in _spread(cores))
    is_counted = any(" aperfmperf" in line for line in _lines(proc / "cpuinfo"))
    if is_counted and (os.cpu_count() or 1) <= _MAX_CLOCKS:
        return lambda cores: _cpuinfo_hz(proc / "cpuinfo", set(cores))
    return lambda cores: None


def _spread(cores: Iterable[int]) -> list[int]:
    ordered = sorted(set(cores))
    return ordered[:: -(-len(ordered) // _MAX_CLOCKS)] if ordered else []


def _scaling_hz(cpus: Path, core: int) -> float | None:
    text = read_file(str(cpus / f"cpu{core}" / "cpufreq" / "scaling_cur_freq"))
    try:
        return float(text) * 1e3 if text else None
    except ValueError:
        return None  # `<unknown>`


def _cpuinfo_hz(path: Path, cores: set[int]) -> float | None:
    found, core = [], -1
    for line in _lines(path):
        name, _, value = line.partition(":")
        if name.strip() == "processor":
            core = int(value)
        elif name.strip() == "cpu MHz" and core in cores:
            found.append(float(value) * 1e6)
    return _mean(found)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return sum(known) / len(known) if known else None


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that one read may not return whole; none if unreadable."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
