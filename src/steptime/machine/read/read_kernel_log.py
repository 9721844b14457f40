"""Reads what the kernel's log of this boot says of GPUs and NVSwitches: Xid and SXid errors.

In: what `journalctl` or `dmesg` said. Out: a `KernelLog`, or why there is none. The journal comes
first, because it keeps the whole boot; the kernel's own buffer forgets. Neither needs more rights
than the user has, and a user who may not read them gets no *nothing found*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from steptime.machine._files import KernelFiles, read_text
from steptime.machine.read.run_tool import RunTool
from steptime.machine.values.node_facts import KernelLog, XidCount

_TOOLS = (
    # The newest lines: a bound that a node with a chatty driver reaches after weeks.
    ("journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager", "-q", "-n", "40000"),
    ("dmesg",),
)
_STAMP = re.compile(r"^\[\s*(\d+\.\d+)\]\s")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d{1,4}),?\s*(.*)")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d{1,6}), Fatal,?\s*(.*)")
_GPU = re.compile(r"NVRM: (?:The NVIDIA GPU|GPU) ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})")
_FALLEN = re.compile(r"fallen off the bus")
FALLEN = 79
"""The Xid of a GPU that no longer answers on the bus; some drivers say so in words alone."""

_MAX_WORDS = 160
_MAX_KINDS = 256  # GPUs times numbers; a log with more is none of NVIDIA's


@dataclass(slots=True)
class _XidTally:
    """What was found so far of one GPU and number."""

    num: int = 0
    first_s: float | None = None
    last_s: float | None = None
    words: str = ""

    def add(self, at_s: float | None, words: str) -> None:
        self.num += 1
        self.words = words[:_MAX_WORDS] or self.words
        if at_s is not None:
            self.first_s = at_s if self.first_s is None else min(self.first_s, at_s)
            self.last_s = at_s if self.last_s is None else max(self.last_s, at_s)


@dataclass(slots=True)
class _LogReading:
    xids: dict[tuple[str, int], _XidTally] = field(default_factory=dict)
    fallen: dict[str, _XidTally] = field(default_factory=dict)
    named: str | None = None
    named_ago: int = 0
    sxids: dict[tuple[str, int], _XidTally] = field(default_factory=dict)
    first_s: float | None = None


def read_kernel_log(kernel: KernelFiles, run: RunTool) -> KernelLog | str:
    """Return what the log says, or why it cannot be read, a machine word."""
    uptime_s = _uptime_s(kernel)
    why = "no_tool"
    for words in _TOOLS:
        said = run(words)
        lines = said.text.splitlines()
        # The kernel speaks at every boot: no line at all means that this user is shown none.
        if any(_STAMP.match(line) for line in lines[:50]):
            return parse_kernel_log(said.text, source=words[0], uptime_s=uptime_s)
        if said.missing != "no_tool":
            why = "no_right_to_read_the_log"
    return why


def parse_kernel_log(text: str, *, source: str, uptime_s: float | None) -> KernelLog:
    """Return the errors in a log whose lines begin with seconds since the boot: `[ 12.345678]`."""
    found = _LogReading()
    for line in text.splitlines():
        _read_line(line, found)
    xids = {**found.xids}
    for bus_id, told in found.fallen.items():
        # The words stand beside the Xid; they count where they stand alone.
        xids.setdefault((bus_id, FALLEN), told)
    return KernelLog(
        source=source,
        covers_s=_age(found.first_s, uptime_s),
        xids=_counts(xids, uptime_s),
        sxids=_counts(found.sxids, uptime_s),
    )


def _counts(
    tallies: Mapping[tuple[str, int], _XidTally], uptime_s: float | None
) -> tuple[XidCount, ...]:
    return tuple(
        XidCount(
            bus_id=bus_id,
            code=code,
            num=tally.num,
            last_age_s=_age(tally.last_s, uptime_s),
            first_age_s=_age(tally.first_s, uptime_s),
            words=tally.words,
        )
        for (bus_id, code), tally in sorted(tallies.items())
    )


def _read_line(line: str, found: _LogReading) -> None:
    stamp = _STAMP.match(line)
    at_s = float(stamp.group(1)) if stamp else None
    if found.first_s is None:
        found.first_s = at_s
    for pattern, place in ((_XID, found.xids), (_SXID, found.sxids)):
        error = pattern.search(line)
        if error is not None:
            key = (bus_id_in(error.group(1)), int(error.group(2)))
            if key in place or len(place) < _MAX_KINDS:
                # whose process it was may be another user's affair
                place.setdefault(key, _XidTally()).add(
                    at_s, re.sub(r"(?:pid=\S+,\s*|name=[^,]*,\s*)", "", error.group(3)).strip()
                )
            return
    named = _GPU.search(line)
    found.named_ago += 1
    if named is not None:
        found.named, found.named_ago = bus_id_in(named.group(1)), 0
    if _FALLEN.search(line) and found.named is not None and found.named_ago <= 2:
        # `The NVIDIA GPU 0000:b3:00.0`, its numbers, and then the words, on three lines
        found.fallen.setdefault(found.named, _XidTally()).add(at_s, "has fallen off the bus")


def bus_id_in(text: str) -> str:
    """Return the bus id as the kernel writes it: `0000:18:00` and `00000000:18:00.0` alike."""
    parts = text.lower().split(":")
    domain = parts[0][-4:] if len(parts) == 3 else "0000"
    bus, device = parts[-2:] if len(parts) > 1 else ("00", parts[-1])
    return f"{domain}:{bus}:{device if '.' in device else device + '.0'}"


def _age(at_s: float | None, uptime_s: float | None) -> float | None:
    return None if at_s is None or uptime_s is None else max(0.0, uptime_s - at_s)


def _uptime_s(kernel: KernelFiles) -> float | None:
    words = (read_text(kernel.proc / "uptime") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None
