"""Machines made up for tests: trees of the kernel's files, and an NVML of our own."""

# ruff: noqa: N802, N815 - the names are those of NVML
from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from steptime.machine._files import KernelFiles

XEON = "fpu fma f16c avx2 avx512f avx512_bf16 amx_tile amx_bf16 amx_int8 hypervisor"


class Tree:
    """A machine's files under a folder; everything is added by hand."""

    def __init__(self, folder: Path) -> None:
        self.kernel = KernelFiles(proc=folder / "proc", sys=folder / "sys", root=folder)
        self.kernel.proc.mkdir()
        self.kernel.sys.mkdir()

    def proc(self, name: str, text: str) -> None:
        _write(self.kernel.proc / name, text)

    def sys(self, name: str, text: str) -> None:
        _write(self.kernel.sys / name, text)

    def link(self, name: str, target: str) -> None:
        """A link in /sys to a folder there, which is made."""
        at, to = self.kernel.sys / name, self.kernel.sys / target
        to.mkdir(parents=True, exist_ok=True)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(to)

    def cores(self, num: int, *, threads: int = 1, flags: str = XEON) -> None:
        """Logical cores of one socket, hyper-threads numbered after all cores."""
        names = ("processor", "core id", "flags", "model name\t: Xeon  Gold\nphysical id\t: 0")
        block = "{}\t: {{}}\n{}\t: {{}}\n{}\t: {{}}\n{}\n\n".format(*names)
        each = num // threads
        self.proc("cpuinfo", "".join(block.format(i, i % each, flags) for i in range(num)))
        self.sys("devices/system/cpu/online", f"0-{num - 1}\n" if num > 1 else "0\n")
        for i in range(num):
            here = f"devices/system/cpu/cpu{i}"
            siblings = ",".join(str(i % each + k * each) for k in range(threads))
            self.sys(f"{here}/topology/thread_siblings_list", siblings + "\n")
            self.sys(f"{here}/topology/physical_package_id", "0\n")
            self.cache(i, level=1, kind="Data", size="48K", shared=siblings)
            self.cache(i, level=3, kind="Unified", size="32M", shared=f"0-{num - 1}")

    def cache(self, core: int, *, level: int, kind: str, size: str, shared: str) -> None:
        here = f"devices/system/cpu/cpu{core}/cache/index{level}"
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            self.sys(f"{here}/{name}", text + "\n")
        self.sys(f"{here}/shared_cpu_list", shared + "\n")

    def pci(self, bus_id: str, path: str, **files: str) -> None:
        """A device of the PCI bus, at the end of a path such as `pci0000:00/0000:00:01.0`."""
        self.link(f"bus/pci/devices/{bus_id}", f"devices/{path}/{bus_id}")
        for name, text in files.items():
            self.sys(f"devices/{path}/{bus_id}/{name}", text + "\n")

    def rdma(self, name: str, path: str, *, rate: str = "400 Gb/sec (4X NDR)") -> None:
        """A device for remote memory at a place of the PCI bus."""
        self.link(f"class/infiniband/{name}/device", f"devices/{path}")
        port = f"class/infiniband/{name}/ports/1"
        for file, text in (("rate", rate), ("state", "4: ACTIVE"), ("link_layer", "InfiniBand")):
            self.sys(f"{port}/{file}", text + "\n")

    def mounts(self, *rows: str) -> None:
        """Rows `folder kind source major:minor`."""
        lines = []
        for number, row in enumerate(rows):
            folder, kind, source, device = row.split()
            lines.append(
                f"{number} 1 {device} / {folder} rw,relatime shared:1 - {kind} {source} rw"
            )
        self.proc("self/mountinfo", "\n".join(lines) + "\n")

    def forget(self) -> None:
        """No /proc and no /sys, as elsewhere than on Linux."""
        shutil.rmtree(self.kernel.proc)
        shutil.rmtree(self.kernel.sys)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class NVMLError(Exception):
    value = 3


class FakeNvml:
    """So many GPUs of one kind; `nvlinks` is how many lead from each to a switch."""

    NVMLError = NVMLError

    def __init__(self, *bus_ids: str, nvlinks: int = 0, level: int = 50) -> None:
        self.bus_ids = bus_ids
        self.nvlinks = nvlinks
        self.level = level
        self.direct: dict[int, list[str]] = {}  # GPU to the bus ids at the ends of its links
        self.broken: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "broken"):
            raise NVMLError
        return object.__getattribute__(self, name)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.86.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        return len(self.bus_ids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80 << 30, used=1 << 30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=97 if handle == 0 else 0, memory=3)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"0000{self.bus_ids[handle].upper()}".encode())

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return self.level

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        return int(link < (self.nvlinks or len(self.direct.get(handle, ()))))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 2 if self.nvlinks else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return SimpleNamespace(busId=self.direct[handle][link].encode())


class NodeNvml(FakeNvml):
    """The GPUs of a node in full; what is not as it should be is given by GPU.

    `lost` do not answer, `off` have no active NVLink, and rows of `processes` are pid, name and
    MiB.
    """

    class c_nvmlGpuFabricInfo_t(ctypes.Structure):  # noqa: N801
        _fields_ = (("status", ctypes.c_uint), ("state", ctypes.c_ubyte))

    _FINE: Mapping[str, Any] = {
        "persistence": 1,
        "mig": 0,
        "mig_pending": 0,
        "generation": 5,
        "used_mib": 1,
        "busy": 0,
        "uncorrected": 0,
        "fabric": 3,
        "fabric_status": 0,
        "processes": (),
    }

    def __init__(
        self,
        *buses: str,
        lost: tuple[int, ...] = (),
        off: tuple[int, ...] = (),
        **odd: Mapping[int, Any],
    ) -> None:
        super().__init__(*(f"0000:{bus}:00.0" for bus in buses), nvlinks=18)
        self.lost = lost
        self.off = off
        self.odd = odd

    def _of(self, handle: int, name: str) -> Any:
        return self.odd.get(name, {}).get(handle, self._FINE[name])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise NVMLError
        return index

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        return int(handle not in self.off)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=81559 << 20, used=self._of(handle, "used_mib") << 20)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=self._of(handle, "busy"), memory=0)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return int(self._of(handle, "generation"))

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:
        return int(self._of(handle, "persistence"))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    nvmlDeviceGetPowerManagementDefaultLimit = nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetPowerManagementLimit = nvmlDeviceGetEnforcedPowerLimit

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: int) -> list[int]:
        return [200_000, 700_000]

    def nvmlDeviceGetApplicationsClock(self, handle: int, kind: int) -> int:
        return 1980

    nvmlDeviceGetDefaultApplicationsClock = nvmlDeviceGetApplicationsClock

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return 1  # it rests

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        return 34

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> int:
        return int(self._of(handle, "uncorrected"))

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [self._of(handle, "mig"), self._of(handle, "mig_pending")]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=mib << 20)
            for pid, _, mib in self._of(handle, "processes")
        ]

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        rows = [row for of_gpu in self.odd["processes"].values() for row in of_gpu]
        return next(name for one, name, _ in rows if one == pid)

    def nvmlDeviceGetGpuFabricInfo(self, handle: int, info: Any) -> int:
        told = ctypes.cast(info, ctypes.POINTER(self.c_nvmlGpuFabricInfo_t)).contents
        told.state, told.status = self._of(handle, "fabric"), self._of(handle, "fabric_status")
        return 0
