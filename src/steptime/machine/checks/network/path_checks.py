"""Checks the way from GPU to card and from GPU to GPU.

In: facts. Out: judgements.
"""

from __future__ import annotations

from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    spans_machines,
)
from steptime.machine.checks.remedy import look, look_as_root
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty
from steptime.machine.values.inventory_values import Gpu
from steptime.machine.values.node_facts import PciPath

_RDMA = "https://docs.nvidia.com/cuda/gpudirect-rdma/"
_ACS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
    " (PCI Access Control Services)"
)
_IOMMU = (
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (IOMMU on Linux), "
    "https://rocm.docs.amd.com/en/latest/how-to/system-optimization/mi300x.html"
)

_DMA_BUF_SINCE = (5, 12)  # the kernel's RDMA takes memory by DMA-BUF (GPUDirect RDMA's guide)

# -- from GPU to card, and from GPU to GPU


def _gpu_direct_not_loaded(facts: CheckFacts) -> Judgement:
    active = [one for one in facts.inventory.rdma if one.is_active]
    if not active or not driven_gpus(facts):
        return not_applicable("no_rdma")
    log = facts.nccl_log
    if log is not None and any("GDR" in name for name in log.transports):
        return clean({"way": "NCCL's log says GDR"})
    if not any(one.name.startswith("mlx") for one in active):
        return not_checked("no_rule_for_this_card")
    memory = facts.node.peer_memory
    if memory is None:
        return not_checked(facts.missing.get("peer_memory", "not_told"))
    if memory.module is not None:
        return clean({"way": memory.module})
    if memory.is_open_driver is None:
        return not_checked("driver_not_told")
    if memory.is_open_driver and memory.kernel >= _DMA_BUF_SINCE:
        return clean({"way": "DMA-BUF"})
    is_several = spans_machines(facts)
    return fires(
        Severity.WARNING if is_several else Severity.INFO,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen={"device": active[0].name, "absent": "no nvidia_peermem, and no DMA-BUF"},
        commands=(look("grep -E 'nvidia_peermem|nv_peer_mem' /proc/modules"),),
        advice=(
            "The administrator loads nvidia-peermem, which needs NVIDIA's own drivers of the "
            "network (DOCA-OFED), or takes NVIDIA's open modules on a kernel from 5.12 on.",
        ),
    )


def _path(facts: CheckFacts) -> PciPath | Judgement:
    """Return the PCI path if peers talk over it on a machine of its own, else why not."""
    gpus, has_rdma = _peers(facts), any(one.is_active for one in facts.inventory.rdma)
    if not gpus:
        return not_applicable("no_gpu")
    if len(gpus) < 2 and not has_rdma:
        return not_applicable("one_gpu")
    if facts.inventory.cpu.is_virtual:
        return not_applicable("virtual_machine")
    if _all_on_nvlink(facts) and not has_rdma:
        return not_applicable("peers_over_nvlink")
    if facts.node.pci is None:
        return not_checked(facts.missing.get("pci", "not_told"))
    return facts.node.pci


def _peers(facts: CheckFacts) -> list[Gpu]:
    """Return the GPUs that training uses; a board's own graphics may be Intel's."""
    return [gpu for gpu in facts.inventory.gpus if gpu.vendor in ("nvidia", "amd")]


def _all_on_nvlink(facts: CheckFacts) -> bool:
    pairs = [
        link
        for link in facts.inventory.links
        if link.first.startswith("GPU") and link.second.startswith("GPU")
    ]
    return bool(pairs) and all(link.kind.startswith("NV") for link in pairs)


def _peers_redirected(facts: CheckFacts) -> Judgement:
    path = _path(facts)
    if isinstance(path, partial):
        return path
    if not path.num_bridges:
        return not_applicable("no_bridge")
    if path.redirecting is None:
        return not_checked("root_alone_may_read")
    if not path.redirecting:
        return clean({"let_through": path.num_bridges})
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen={
            "num_redirecting": len(path.redirecting),
            "num_bridges": path.num_bridges,
            "bridges": " ".join(path.redirecting[:4]),
        },
        commands=(look_as_root("sudo lspci -vvv | grep ACSCtl"),),
        advice=(
            "Access control (ACS) of PCI bridges is turned off in the firmware, or by the "
            "administrator after each start. It keeps devices apart that are handed to virtual "
            "machines, so it stays on a host of such.",
        ),
    )


def _iommu_translates(facts: CheckFacts) -> Judgement:
    path = _path(facts)
    if isinstance(path, partial):
        return path
    if path.iommu is None:
        return not_checked("iommu_not_told")
    if path.iommu != "translating":
        return clean({"iommu": path.iommu})
    is_peers = len(_peers(facts)) > 1 and not _all_on_nvlink(facts)
    return fires(
        Severity.WARNING if is_peers else Severity.INFO,
        Certainty.LIKELY if is_peers else Certainty.POSSIBLE,
        seen={"iommu": path.iommu, "num_gpus": len(_peers(facts))},
        commands=(look("cat /proc/cmdline"),),
        advice=(
            "The administrator starts the kernel with iommu=pt, or turns the IOMMU off in the "
            "firmware; on a host of virtual machines it is needed.",
        ),
    )


CHECKS = (
    CheckRow(
        code="gpu_direct_not_loaded",
        subject="network",
        title="nothing lets RDMA reach into the GPU's memory",
        seen=("{device}", "{absent}", "by {way}"),
        why="Each message between machines takes a detour through the memory of the host. The "
        "kernel offers a GPU's memory by the module nvidia_peermem, or by DMA-BUF with NVIDIA's "
        "open modules.",
        source=_RDMA,
        judge=_gpu_direct_not_loaded,
    ),
    CheckRow(
        code="peers_redirected",
        subject="network",
        title="PCI bridges send traffic between peers through the processor",
        seen=(
            "{num_redirecting} of {num_bridges} bridges",
            "{bridges}",
            "{let_through} bridges let it through",
        ),
        why="Access control (ACS) sends what one GPU or card writes to another up to the root "
        "complex and back. Peer copies become slow, or hang.",
        source=_ACS,
        judge=_peers_redirected,
    ),
    CheckRow(
        code="iommu_translates",
        subject="network",
        title="the IOMMU translates what peers send each other",
        seen=("IOMMU {iommu}", "{num_gpus} GPU(s)"),
        why="CUDA supports peer copies over PCIe on such a machine without a translating IOMMU "
        "only; copies may be wrong, or hang, and RDMA becomes slower. AMD's guide asks for "
        "iommu=pt as well.",
        source=_IOMMU,
        judge=_iommu_translates,
    ),
)
