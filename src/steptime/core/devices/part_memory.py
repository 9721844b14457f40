"""The memory of accelerators by the name that people call them: `H100-80GB`, `A100 40GB`, `L40S`.

In: a name. Out: the part and its bytes, or the parts that it may mean. Sizes are those of the data
sheets, in units of 1024^3 as drivers count; the driver keeps some of it, so less is usable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZES_GIB = {
    "H100 SXM 80GB": 80,
    "H100 PCIe 80GB": 80,
    "H100 NVL 94GB": 94,
    "H200 SXM 141GB": 141,
    "H200 NVL 141GB": 141,
    "GH200 96GB": 96,
    "GH200 144GB": 144,
    "B200 180GB": 180,
    "GB200 186GB": 186,
    "B300 288GB": 288,
    "A100 SXM 80GB": 80,
    "A100 SXM 40GB": 40,
    "A100 PCIe 80GB": 80,
    "A100 PCIe 40GB": 40,
    "A800 80GB": 80,
    "L40S 48GB": 48,
    "A10 24GB": 24,
    "A10G 24GB": 24,
    "A30 24GB": 24,
    "RTX 6000 Ada 48GB": 48,
    "RTX A6000 48GB": 48,
    "Quadro RTX 6000 24GB": 24,
    "RTX 4090 24GB": 24,
    "V100 SXM2 32GB": 32,
    "MI355X 288GB": 288,
    "MI350X 288GB": 288,
    "MI325X 256GB": 256,
    "MI300X 192GB": 192,
    "MI210 64GB": 64,
    "MI100 32GB": 32,
}
"""Sources: Machine Learning Engineering (S. Bekman), accelerator chapter, and vendors' datasheets.
A part with two dies or several sizes is listed by what one device has."""

USABLE = 0.98
"""Of a part's memory: a driver of 2025 gives 79.2 of the 80 GiB of an H100, and 39.4 of 40."""

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMemory:
    """An accelerator's memory.

    Attributes:
        name: of the part.
        bytes: its whole memory [bytes].
    """

    name: str
    bytes: int

    @property
    def usable_bytes(self) -> int:
        """What programs may have of it, with their contexts [bytes]."""
        return int(self.bytes * USABLE)


def find_parts(name: str) -> tuple[PartMemory, ...]:
    """Return the parts whose names have all words of a name; none where it is not in the table."""
    wanted = _words(name)
    if not wanted:
        return ()
    return tuple(
        PartMemory(name=part, bytes=size * _GIB)
        for part, size in _SIZES_GIB.items()
        if wanted <= _words(part)
    )


def known_parts() -> tuple[str, ...]:
    """Return the names of all parts."""
    return tuple(_SIZES_GIB)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower().removeprefix("nvidia ")))
