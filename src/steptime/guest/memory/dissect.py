"""Makes the memory probe of this process, and reads what an error says about a device's memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..hooks.module_tree import has_parameters
from ..watchers.ending import find_cause, to_bytes
from ..watchers.process_memory import device_memory, load_resource, make_reader
from .device_snapshot import leave_snapshot
from .memory_probe import MemoryProbe

_SIZE = r"([\d.]+) ?(bytes|[KMGTP]iB)"
_FAILURE = {
    "free": re.compile(rf"of which {_SIZE} is free"),
    "allocated": re.compile(rf"{_SIZE} is allocated by PyTorch"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
}
"""What torch writes about a device that has no memory left."""


def read_failure(text: str) -> dict[str, int]:
    """Return what the message of a failed allocation says about the device."""
    found = {}
    for name, pattern in _FAILURE.items():
        if match := pattern.search(text):
            found[name] = to_bytes(*match.groups())
    if "unallocated" in found and "allocated" in found:
        found["reserved"] = found["allocated"] + found["unallocated"]
    found.pop("unallocated", None)
    return found


P = TypeVar("P", bound=MemoryProbe)


def make_anatomy(context: Any, announce: Callable[[str, str, dict[str, Any]], None]) -> MemoryProbe:
    """Return the memory probe of this process, which writes to processes.jsonl."""
    run = context.recorder.run
    return make_probe(context, lambda kind, facts: announce(run, kind, facts), MemoryProbe)


def make_probe(
    context: Any, write: Callable[[str, dict[str, Any]], None], probe_class: type[P]
) -> P:
    """Return a memory probe that knows the models and optimizers of this process."""
    recorder = context.recorder
    read_rss = make_reader(load_resource())

    def find_models() -> list[Any]:
        found = [known[0]() for known in list(context.kinds.values())]
        return [m for m in found if m is not None and has_parameters(m)]

    def find_optimizers() -> list[Any]:
        numbered = sorted(recorder.optimizers.values(), key=lambda item: item[0])
        return [one for _, ref in numbered if (one := ref()) is not None]

    return probe_class(
        context.torch,
        write,
        find_models=find_models,
        find_optimizers=find_optimizers,
        find_ddp=lambda: list(context.ddp_models),
        read_held=lambda: device_memory(context.torch)["allocated"] or read_rss(),
    )


def dissect_death(context: Any, error: BaseException | None) -> None:
    """Write who held the memory of a process that ran out of it."""
    if context.autopsy is None or error is None:
        return
    left: dict[str, Any] = {}
    try:
        left["limit_bytes"] = private_limit()
        left["snapshot"] = leave_snapshot(context.torch, context.recorder.run)
    except BaseException:
        context.recorder.fail("snapshot")
    context.autopsy.at_death(read_failure(str(find_cause(error))), left)


def private_limit(
    limits: Mapping[str, int | None] | None = None, status: str = "/proc/self/status"
) -> int | None:
    """Return the most private memory that this process may have [bytes]; None without a limit.

    A limit of address space counts what is mapped from files, too; that much is taken off.

    Args:
        limits: soft limits of `data` and of the address space, `as`; those of this process.
        status: what Linux says of this process.
    """
    limits = read_limits() if limits is None else limits
    found = [] if limits.get("data") is None else [limits["data"]]
    if limits.get("as") is not None:
        whole, private = mapped_sizes(status)
        found.append((limits["as"] or 0) - (whole - private))
    return min((one for one in found if one is not None and one > 0), default=None)


def mapped_sizes(status: str = "/proc/self/status") -> tuple[int, int]:
    """Return the address space of this process, and the private memory of it [bytes].

    Raises:
        OSError: the system has no such file.
        KeyError: what it says has no sizes.
    """
    with open(status, encoding="utf-8", errors="replace") as file:
        sizes = dict(line.split(":", 1) for line in file if line.startswith("Vm"))
    whole, private = (int(sizes[name].split()[0]) << 10 for name in ("VmSize", "VmData"))
    return whole, private


def read_limits() -> dict[str, int | None]:
    """Return the soft limits of private memory and of address space; None without a limit."""
    resource = load_resource()
    if resource is None:
        return {}
    numbers = {"data": resource.RLIMIT_DATA, "as": resource.RLIMIT_AS}
    soft = {name: resource.getrlimit(number)[0] for name, number in numbers.items()}
    return {name: None if one == resource.RLIM_INFINITY else one for name, one in soft.items()}
