"""Reads GPUs from what `nvidia-smi` says, where its library cannot be asked directly.

In: the texts of `nvidia-smi -q`, `nvidia-smi topo -m` and `nvidia-smi nvlink -s`. Out: `Gpu`,
`GpuState` and `Link` values. What a driver leaves out, or marks as not available, is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from steptime.machine.checks.check_facts import GpuState
from steptime.machine.checks.node_facts import GpuProcess
from steptime.machine.checks.read_kernel_log import bus_id_in
from steptime.machine.values.inventory_values import Gpu, Link

_HEAD = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_VERSION = re.compile(r"^(Driver Version|CUDA Version)\s+: (\S+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MIB = 1 << 20
_MAX_GPUS = 64
_ABSENT = ("N/A", "[N/A]", "Unknown Error", "[Unknown Error]", "Not Supported", "None", "")

_ENFORCED = ("Current Power Limit", "Enforced Power Limit", "Power Limit")
"""What is enforced now, by the names of drivers from 530 on and before."""

_REASONS = {
    "Applications Clocks Setting": "clock_setting",
    "SW Power Cap": "power_cap",
    "HW Slowdown": "hardware",
    "HW Thermal Slowdown": "thermal",
    "SW Thermal Slowdown": "thermal",
    "HW Power Brake Slowdown": "power_brake",
    "Display Clock Setting": "clock_setting",
}
_CAPABILITIES = {
    "Volta": "7.0",
    "Ampere": None,  # 8.0, 8.6 and 8.7
    "Ada Lovelace": "8.9",
    "Hopper": "9.0",
}
_LINK_HEAD = re.compile(r"^GPU (\d+):")
_LINK = re.compile(r"^\s+Link (\d+): (.+)$")
_WAY = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiGpus:
    """What `nvidia-smi -q` said.

    Attributes:
        gpus, states: of those that answered, in its order.
        driver, cuda: versions.
        num_attached: GPUs that the driver knows, those that do not answer among them.
    """

    gpus: tuple[Gpu, ...] = ()
    states: tuple[GpuState, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    num_attached: int | None = None


_Headings = tuple[str, ...]


@dataclass(slots=True)
class _Block:
    """The lines of one GPU: values by the path of their headings, and its processes."""

    bus_id: str
    values: dict[_Headings, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)

    def text(self, *path: str) -> str | None:
        value = self.values.get(path)
        return None if value is None or value in _ABSENT else value

    def number(self, *path: str) -> float | None:
        found = _NUMBER.match(self.text(*path) or "")
        return float(found.group()) if found else None

    def whole(self, *path: str) -> int | None:
        value = self.number(*path)
        return None if value is None else int(value)

    def mib(self, *path: str) -> int | None:
        value = self.whole(*path)
        return None if value is None else value * _MIB

    def has(self, word: str, *path: str) -> bool | None:
        value = self.text(*path)
        return None if value is None else value == word


def parse_query(text: str) -> SmiGpus | None:
    """Return the GPUs of `nvidia-smi -q`; None if that is not what the text is."""
    if "NVSMI LOG" not in text:
        return None
    versions = dict(_VERSION.findall(text))
    attached = re.search(r"^Attached GPUs\s+: (\d+)", text, re.MULTILINE)
    blocks = list(_blocks(text))[:_MAX_GPUS]
    return SmiGpus(
        gpus=tuple(_gpu(block, index) for index, block in enumerate(blocks)),
        states=tuple(_state(block, index) for index, block in enumerate(blocks)),
        driver=versions.get("Driver Version"),
        cuda=versions.get("CUDA Version"),
        num_attached=int(attached.group(1)) if attached else None,
    )


def _blocks(text: str) -> Iterator[_Block]:
    block: _Block | None = None
    headings: list[tuple[int, str]] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            if block is not None:
                yield block
            block, headings = _Block(bus_id=bus_id_in(head.group(1))), []
            continue
        if block is None or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        name, colon, value = line.strip().partition(" : ")
        name = name.strip()
        while headings and headings[-1][0] >= indent:
            headings.pop()
        path = (*(heading for _, heading in headings), name)
        if colon:
            _keep(block, path, value.strip())
        # A heading may have a value itself: `Process ID : 4711`, and its lines below it.
        headings.append((indent, name))
    if block is not None:
        yield block


def _keep(block: _Block, path: _Headings, value: str) -> None:
    if path[0] != "Processes" or len(path) == 1:
        block.values.setdefault(path, value)
    elif path[-1] == "Process ID":
        block.processes.append({"Process ID": value})
    elif block.processes:
        block.processes[-1].setdefault(path[-1], value)


def _gpu(block: _Block, index: int) -> Gpu:
    link = ("PCI", "GPU Link Info")
    busy = block.number("Utilization", "GPU")
    if busy is None:
        busy = block.number("Utilization", "Gpu")  # before driver 550
    return Gpu(
        index=index,
        vendor="nvidia",
        has_driver=True,
        name=block.text("Product Name"),
        uuid=block.text("GPU UUID"),
        memory_bytes=block.mib("FB Memory Usage", "Total"),
        bus_id=block.bus_id,
        compute_capability=_CAPABILITIES.get(block.text("Product Architecture") or ""),
        power_limit_w=_power(block, *_ENFORCED),
        pcie_generation=block.whole(*link, "PCIe Generation", "Current"),
        max_pcie_generation=block.whole(*link, "PCIe Generation", "Max"),
        pcie_width=block.whole(*link, "Link Width", "Current"),
        max_pcie_width=block.whole(*link, "Link Width", "Max"),
        used_bytes=block.mib("FB Memory Usage", "Used"),
        busy_fraction=None if busy is None else busy / 100,
    )


def _power(block: _Block, *names: str) -> float | None:
    """Return a limit of power; the heading and the names changed with driver 530."""
    for heading in ("GPU Power Readings", "Power Readings"):
        for name in names:
            value = block.number(heading, name)
            if value is not None:
                return value
    return None


def _state(block: _Block, index: int) -> GpuState:
    errors = ("ECC Errors", "Volatile"), ("ECC Errors", "Aggregate")
    processes = _processes(block)
    return GpuState(
        index=index,
        persistence=block.has("Enabled", "Persistence Mode"),
        power_limit_w=_power(block, *_ENFORCED),
        default_power_limit_w=_power(block, "Default Power Limit"),
        requested_power_limit_w=_power(block, "Requested Power Limit"),
        max_power_limit_w=_power(block, "Max Power Limit"),
        num_processes=None if processes is None else len(processes),
        clock_mhz=block.whole("Applications Clocks", "Graphics"),
        default_clock_mhz=block.whole("Default Applications Clocks", "Graphics"),
        held_down=_held_down(block),
        busy_fraction=_gpu(block, index).busy_fraction,
        temperature_c=block.whole("Temperature", "GPU Current Temp"),
        num_uncorrected=_uncorrected(block, errors[0]),
        num_ever=_uncorrected(block, errors[1]),
        rows_pending=block.has("Yes", "Remapped Rows", "Pending"),
        rows_failed=block.has("Yes", "Remapped Rows", "Remapping Failure Occurred"),
        mig=block.has("Enabled", "MIG Mode", "Current"),
        mig_pending=block.has("Enabled", "MIG Mode", "Pending"),
        processes=processes,
        fabric=_fabric(block),
    )


def _held_down(block: _Block) -> tuple[str, ...] | None:
    found, is_told = set(), False
    for path in block.values:
        if path[0] in ("Clocks Event Reasons", "Clocks Throttle Reasons"):
            is_told = True
            if block.values[path] == "Active" and path[-1] in _REASONS:
                found.add(_REASONS[path[-1]])
    return tuple(sorted(found)) if is_told else None


def _uncorrected(block: _Block, where: _Headings) -> int | None:
    """Return the sum of errors that could not be corrected; drivers divide them differently."""
    counts = [
        number
        for path in block.values
        if path[: len(where)] == where and "Uncorrectable" in path[-1]
        if (number := block.whole(*path)) is not None
    ]
    return sum(counts) if counts else None


def _processes(block: _Block) -> tuple[GpuProcess, ...] | None:
    if not block.processes:
        return () if block.values.get(("Processes",)) == "None" else None
    found = []
    for one in block.processes:
        pid = _NUMBER.match(one.get("Process ID", ""))
        if pid is None or one.get("Type", "C") == "G":  # graphics alone
            continue
        used = _NUMBER.match(one.get("Used GPU Memory", ""))
        found.append(
            GpuProcess(
                pid=int(pid.group()),
                name=one.get("Name"),
                used_bytes=int(used.group()) * _MIB if used else None,
            )
        )
    return tuple(found)


def _fabric(block: _Block) -> str | None:
    """Return the state of the fabric, or its status where that is a failure."""
    state, status = block.text("Fabric", "State"), block.text("Fabric", "Status")
    if state is None:
        return None
    if state == "Completed":
        return "completed" if status in (None, "Success") else "failed"
    return state.lower().replace(" ", "_")


def parse_topology(text: str) -> tuple[Link, ...]:
    """Return the links of `nvidia-smi topo -m`, each pair once, NICs by their device's name."""
    rows = [line.replace("\x1b[4m", "").replace("\x1b[0m", "") for line in text.splitlines()]
    names = _device_names(rows)
    heads: list[str] = []
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        words = row.split()
        if not heads and words[:1] and words[0].startswith(("GPU", "NIC", "mlx")):
            heads = [word for word in words if re.fullmatch(r"(GPU|NIC|mlx\d+_)\d+", word)]
            continue
        if not heads or not words or words[0] not in heads:
            continue
        for head, way in zip(heads, words[1:], strict=False):
            pair = (names.get(words[0], words[0]), names.get(head, head))
            if _WAY.fullmatch(way) and pair[::-1] not in found:
                found[pair] = way
    return tuple(Link(first=one, second=other, kind=way) for (one, other), way in found.items())


def _device_names(rows: list[str]) -> Mapping[str, str]:
    """Return the legend: `NIC0: mlx5_0`."""
    found = {}
    for row in rows:
        legend = re.fullmatch(r"\s*(NIC\d+): (\S+)\s*", row)
        if legend is not None:
            found[legend.group(1)] = legend.group(2)
    return found


def parse_nvlinks(text: str) -> Mapping[int, tuple[int, int]]:
    """Return active links and all links by GPU, from `nvidia-smi nvlink -s`."""
    found: dict[int, tuple[int, int]] = {}
    index: int | None = None
    for line in text.splitlines():
        head = _LINK_HEAD.match(line)
        if head is not None:
            index = int(head.group(1))
            found[index] = (0, 0)
            continue
        link = _LINK.match(line)
        if link is not None and index is not None:
            active, num = found[index]
            found[index] = (active + ("inactive" not in link.group(2)), num + 1)
    return found
