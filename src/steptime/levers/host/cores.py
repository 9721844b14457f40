"""Which cores share a NUMA node or are threads of one physical core, by the kernel's files.

In: the cores that a process may use. Out: parts of them. Everything is within what was allowed.
"""

from __future__ import annotations

import os
from collections.abc import Collection

NODES = "sys/devices/system/node"
CORES = "sys/devices/system/cpu"


def parse_cores(text: str) -> frozenset[int]:
    """Return the cores of a list such as `0-3,8`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def nodes_of(allowed: Collection[int], root: str = "/") -> dict[int, frozenset[int]]:
    """Return the allowed cores by NUMA node, without nodes that have none of them."""
    folder, found = os.path.join(root, NODES), {}
    try:
        names = sorted(name for name in os.listdir(folder) if name[4:].isdecimal())
    except OSError:
        return {}
    for name in names:
        cores = parse_cores(read(os.path.join(folder, name, "cpulist"))) & set(allowed)
        if name.startswith("node") and cores:
            found[int(name[4:])] = cores
    return dict(sorted(found.items()))


def one_of_each(allowed: Collection[int], root: str = "/") -> list[int]:
    """Return one allowed core for each physical core, those of a node beside each other."""
    seen: set[int] = set()
    found = []
    nodes = nodes_of(allowed, root) or {0: frozenset(allowed)}
    for core in (core for cores in nodes.values() for core in sorted(cores)):
        path = os.path.join(root, CORES, f"cpu{core}", "topology", "thread_siblings_list")
        siblings = parse_cores(read(path)) or frozenset({core})
        if not seen & siblings:
            seen |= siblings
            found.append(core)
    return found


def read(path: str) -> str:
    """Return what is in a file; nothing where it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""
