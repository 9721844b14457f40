"""Reads what NCCL chose from a log of NCCL_DEBUG=INFO.

In: its text. Out: an `NcclChoice`. It skips lines of other programs, and leaves out what NCCL words
differently than here.
"""

from __future__ import annotations

import re
from collections import Counter

from steptime.machine.values.check_values import NcclChoice
from steptime.record.numbers_told import whole_number_in

MAX_BYTES = 64 << 20
"""So much of a log is read; NCCL's choices are at its beginning."""

_VERSION = re.compile(r"NCCL version ([\d.]+)")
_NETWORK = re.compile(r"NCCL INFO (?:Using network |NET/)([A-Za-z]\w*)")
_INTERFACE = re.compile(r"Bootstrap ?: Using (?:\[\d+\])?([\w.@-]+?):")
_CHANNEL = re.compile(r"NCCL INFO Channel \S+ ?:.*(?:->|\[send\]|\[receive\]).* via (\S+)")
_NODES = re.compile(r"nNodes (\d+)")
_RANKS = re.compile(r"n[Rr]anks (\d+)")
_CHOICE = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+)")
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
"""The names in the order of NCCL's numbers (nccl_common.h)."""


def parse_nccl_log(text: str, *, path: str) -> NcclChoice | None:
    """Return what NCCL chose; None where no line is from NCCL."""
    if "NCCL INFO" not in text and "NCCL version" not in text:
        return None
    ways = Counter(_way(found) for found in _CHANNEL.findall(text))
    nodes, ranks = (_numbers(pattern.findall(text)) for pattern in (_NODES, _RANKS))
    using = re.findall(r"Using network (\w+)", text)
    network = using[-1] if using else _first(_NETWORK, text)
    return NcclChoice(
        path=path,
        version=_first(_VERSION, text),
        network=network,
        interface=_first(_INTERFACE, text),
        transports=dict(ways.most_common()),
        num_nodes=max(nodes, default=None),
        num_ranks=max(ranks, default=None),
        has_rings="Connected all rings" in text or bool(re.search(r"Ring \d+ ?:", text)),
        has_trees="Connected all trees" in text or bool(re.search(r"Trees? \[\d+\]", text)),
        algorithms=tuple(dict.fromkeys(_choice(*found) for found in _CHOICE.findall(text))),
    )


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found.group(1) if found else None


def _way(text: str) -> str:
    """Return the transport without the device's number: `NET/IB/GDRDMA` of `NET/IB/0/GDRDMA`."""
    parts = [part.split("(")[0] for part in text.rstrip(".,").split("/")]
    return "/".join(part for part in parts if part and not part.isdigit())


def _choice(collective: str, size: str, algorithm: str) -> str:
    number = whole_number_in(algorithm)
    is_known = number is not None and number < len(_ALGORITHMS)
    name = _ALGORITHMS[number] if number is not None and is_known else algorithm
    return f"{collective} of {size} bytes by {name}"


def _numbers(words: list[str]) -> list[int]:
    return [number for word in words if (number := whole_number_in(word)) is not None]
