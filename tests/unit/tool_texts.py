"""What tools of a node say, in the form of public samples: our own words, filled in by machine."""

from __future__ import annotations

from collections.abc import Mapping

from unit.machines import Tree


def journal(*lines: tuple[float, str], host: str = "node7") -> str:
    """`journalctl -k -o short-monotonic`: what a boot says, then the lines given with seconds."""
    boot = (
        (0.0, "Linux version 5.15.0-1046-nvidia (buildd@lcy02) #46-Ubuntu SMP"),
        (0.0, "Command line: BOOT_IMAGE=/boot/vmlinuz-5.15.0 ro console=tty0 iommu=pt"),
        (8.123456, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15"),
        (12.5, "mlx5_core 0000:1a:00.0: Port module event: module 0, Cable plugged"),
    )
    return "".join(f"[{at:13.6f}] {host} kernel: {words}\n" for at, words in (*boot, *lines))


# -- lspci and ibstat, from which the kernel's own files are made

_ROOT_PORT = """\
{root}:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 04) (prog-if 00 [Normal])
\tNUMA node: {node}
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkCap:\tPort #1, Speed 32GT/s, Width x16, ASPM L1, Exit Latency L1 <16us
\t\tLnkSta:\tSpeed 32GT/s, Width x16
{acs}"""
_SWITCH = """\
{path} PCI bridge [0604]: Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030] (rev b0)
\tNUMA node: {node}
{acs}"""
_DEVICE = """\
{path} {kind}
\tNUMA node: {node}
\tIOMMU group: {group}
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s, Width x16
\tKernel driver in use: {driver}
"""
_CONTROL = (
    "\tCapabilities: [100 v1] Access Control Services\n"
    "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+\n"
    "\t\tACSCtl:\t{0}\n"
)
_ACS = {
    "off": _CONTROL.format(
        "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
    ),
    "on": _CONTROL.format(
        "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
    ),
    "denied": "\tCapabilities: <access denied>\n",
}
GPU = "3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)"
NVSWITCH = "Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)"
NIC = "Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]"
MI300X = "Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] [1002:74a1]"


def lspci(
    gpus: tuple[str, ...],
    *,
    nics: tuple[str, ...] = (),
    switches: tuple[str, ...] = (),
    acs: str = "denied",
    gpu: str = GPU,
) -> str:
    """`lspci -D -PP -nn -vv`: each GPU and its card behind a switch, NVSwitches behind a port."""
    parts = []
    for i, bus in enumerate(gpus):
        base = int(bus, 16) - 4
        node = 0 if i < len(gpus) / 2 else 1
        root, up, down = (f"{base + k:02x}" for k in (0, 1, 2))
        way = f"0000:{root}:01.0/{up}:00.0"
        given = {"node": node, "acs": _ACS[acs]}
        parts.append(_ROOT_PORT.format(root=f"0000:{root}", **given))
        parts += [
            _SWITCH.format(path=path, **given)
            for path in (way, f"{way}/{down}:00.0", f"{way}/{down}:01.0")
        ]
        parts.append(
            _DEVICE.format(
                path=f"{way}/{down}:00.0/{bus}:00.0",
                kind=gpu,
                node=node,
                group=i,
                driver="nvidia" if gpu == GPU else "amdgpu",
            )
        )
        if i < len(nics):
            parts.append(
                _DEVICE.format(
                    path=f"{way}/{down}:01.0/{nics[i]}:00.0",
                    kind=NIC,
                    node=node,
                    group=64 + i,
                    driver="mlx5_core",
                )
            )
    parts += [
        _DEVICE.format(
            path=f"0000:02:01.0/{bus}:00.0", kind=NVSWITCH, node=0, group=99, driver="nvidia"
        )
        for bus in switches
    ]
    return "\n".join(parts)


def plant_lspci(tree: Tree, text: str, *, iommu: str | None = "identity") -> None:
    """Make the kernel's files of the PCI devices that `lspci -D -PP -nn -vv` shows."""
    for part in _devices_in(text):
        _plant_device(tree, part, iommu)
    (tree.kernel.sys / "class" / "iommu").mkdir(parents=True)
    if iommu is not None:
        (tree.kernel.sys / "class" / "iommu" / "dmar0").mkdir()


def _devices_in(text: str) -> list[str]:
    parts: list[str] = []
    for line in text.splitlines(keepends=True):
        if not line.startswith("\t") and line.strip():
            parts.append("")
        if parts:
            parts[-1] += line
    return parts


def _plant_device(tree: Tree, text: str, iommu: str | None) -> None:
    head, _, rest = text.partition("\n")
    path, _, words = head.partition(" ")
    steps = [step if step.count(":") == 2 else f"0000:{step}" for step in path.split("/")]
    place = "/".join((f"pci{steps[0][:7]}", *steps[:-1]))
    kind = words.partition("[")[2].partition("]")[0]
    numbers = ("10de", "15b3", "1002", "1000", "8086")
    vendor = next(f"0x{number}" for number in numbers if f"[{number}:" in words)
    node = rest.partition("NUMA node: ")[2].split("\n")[0] or "-1"
    files = {"class": f"0x{kind}00", "vendor": vendor, "numa_node": node}
    if "LnkSta" in rest:
        files |= {"current_link_width": "16", "max_link_width": "16"}
    files["local_cpulist"] = {"0": "0-47", "1": "48-95"}.get(node, "0-95")
    tree.pci(steps[-1], place, **files)
    folder = tree.kernel.sys / "devices" / place / steps[-1]
    (folder / "config").write_bytes(_config(rest))
    if "IOMMU group" in rest and iommu is not None:
        (folder / "iommu_group").mkdir()
        (folder / "iommu_group" / "type").write_text(iommu + "\n")


def _config(rest: str) -> bytes:
    """The registers: 64 bytes for a user, 4096 for root, with access control at 0x100."""
    if "access denied" in rest:
        return bytes(64)
    data = bytearray(4096)
    if "ACSCtl" in rest:
        words = rest.partition("ACSCtl:")[2].split("\n")[0].split()
        names = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd")
        bits = sum(1 << i for i, name in enumerate(names) if f"{name}+" in words)
        data[0x100:0x104] = (0x000D | 1 << 16).to_bytes(4, "little")
        data[0x106:0x108] = bits.to_bytes(2, "little")
    return bytes(data)


def ibstat(num: int, *, rates: Mapping[int, int] | None = None, **odd: Mapping[int, str]) -> str:
    """`ibstat` of so many ConnectX-7 cards; values that differ are given by card."""
    parts = []
    for i in range(num):
        state = odd.get("state", {}).get(i, "Active")
        physical = odd.get("physical", {}).get(i, "LinkUp")
        rate = (rates or {}).get(i, 400)
        parts.append(
            f"CA 'mlx5_{i}'\n"
            "\tCA type: MT4129\n"
            "\tNumber of ports: 1\n"
            "\tFirmware version: 28.39.1002\n"
            "\tHardware version: 0\n"
            f"\tNode GUID: 0xa088c2030012340{i:x}\n"
            f"\tSystem image GUID: 0xa088c2030012340{i:x}\n"
            "\tPort 1:\n"
            f"\t\tState: {state}\n"
            f"\t\tPhysical state: {physical}\n"
            f"\t\tRate: {rate}\n"
            f"\t\tBase lid: {40 + i}\n"
            "\t\tLMC: 0\n"
            "\t\tSM lid: 1\n"
            "\t\tCapability mask: 0xa751e848\n"
            f"\t\tPort GUID: 0xa088c2030012340{i:x}\n"
            "\t\tLink layer: InfiniBand\n"
        )
    return "".join(parts)


_WIDTHS = {400: "4X NDR", 200: "4X HDR", 100: "4X EDR"}


def plant_ibstat(
    tree: Tree,
    text: str,
    *,
    devices: Mapping[str, str],
    widths: Mapping[str, str] | None = None,
) -> None:
    """Make the kernel's files of the cards that `ibstat` shows.

    `devices` are bus ids of the cards by name; `widths` says `1X NDR` where `ibstat` does not.
    """
    for block in text.split("CA '")[1:]:
        name, _, rest = block.partition("'\n")
        told = dict(line.strip().split(": ", 1) for line in rest.splitlines() if ": " in line)
        at = (tree.kernel.sys / "bus" / "pci" / "devices" / devices[name]).resolve()
        tree.link(f"class/infiniband/{name}/device", str(at.relative_to(tree.kernel.sys)))
        tree.sys(f"class/infiniband/{name}/hca_type", told["CA type"] + "\n")
        rate = int(told["Rate"])
        width = (widths or {}).get(name, _WIDTHS.get(rate, "4X"))
        states = {"Active": "4: ACTIVE", "Initializing": "2: INIT", "Down": "1: DOWN"}
        physical = {"LinkUp": "5: LinkUp", "Polling": "2: Polling", "Disabled": "3: Disabled"}
        for file, value in (
            ("state", states[told["State"]]),
            ("phys_state", physical[told["Physical state"]]),
            ("rate", f"{rate} Gb/sec ({width})"),
            ("link_layer", told["Link layer"]),
        ):
            tree.sys(f"class/infiniband/{name}/ports/1/{file}", value + "\n")
