"""Checks the path between ranks: unused RDMA, gloo for GPUs, NCCL's choices.

In: facts. Out: judgements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    Value,
    asked_gpus,
    clean,
    driven_gpus,
    fires,
    is_on,
    not_applicable,
    not_checked,
    run_on_gpu,
    spans_machines,
)
from steptime.machine.checks.node.limits_raised import started_with
from steptime.machine.checks.remedy import Remedy, by_administrator, look, unset
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Cost, Disruption, NcclChoice

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLES = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_BACKENDS = "https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use"
_GLOO = re.compile(r"""init_process_group\(\s*(?:backend\s*=\s*)?["']gloo["']|["']gloo["']""")

_SOCKETS: Mapping[str, Callable[[str | None], bool]] = {
    "NCCL_IB_DISABLE": is_on,
    "NCCL_NET": lambda value: (value or "").lower() == "socket",
    "NCCL_IB_HCA": lambda value: value is not None,
}
"""Variables that can keep NCCL off RDMA, and the values that do."""

_WHY_SOCKETS = (
    "NCCL says why it took no RDMA device in a log of NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET. "
    "It chooses among the devices by itself."
)
_GPU_DIRECT = (
    "It needs the module nvidia-peermem, or the driver's open modules with DMA-BUF on Linux 5.12 "
    "or newer: which of them this machine should have, whoever administers it decides."
)
_NO_PEERS = (
    "No variable forbids it. In a virtual machine, or with access control on the PCI bridges, peer "
    "copies are forbidden to GPUs: whoever administers the machine decides on that.",
)
_PEERS_FORBIDDEN = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
_NO_MODULE = "The files of /dev/infiniband appear with the kernel's module ib_uverbs."


def _rdma_unused(facts: CheckFacts) -> Judgement:
    active = [one for one in facts.inventory.rdma if one.is_active]
    if not active:
        return not_applicable("no_rdma")
    device = active[0].name
    log = facts.nccl_log
    if log is not None and log.network is not None:
        seen = {"device": device, "network": log.network, "log": log.path}
        if log.network != "Socket":
            return clean(seen)
        commands, advice = _off_sockets(facts)
        several = None if log.num_nodes is None else log.num_nodes > 1
        return fires(
            {True: Severity.CRITICAL, None: Severity.WARNING}.get(several, Severity.INFO),
            {True: Certainty.CERTAIN, None: Certainty.LIKELY}.get(several, Certainty.POSSIBLE),
            seen=seen,
            cost=_by_speed(facts),
            commands=commands,
            advice=advice,
        )
    if facts.system.has_infiniband_files:
        return not_checked(facts.missing.get("nccl_log", "no_nccl_log"))
    is_several = spans_machines(facts)
    return fires(
        Severity.WARNING if is_several else Severity.INFO,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen={"device": device, "absent": "/dev/infiniband"},
        cost=_by_speed(facts),
        commands=_with_infiniband(facts)[0],
        advice=_with_infiniband(facts)[1],
    )


def _off_sockets(facts: CheckFacts) -> Remedy:
    """Return what lets NCCL take RDMA: it chooses the device itself, among all that there are."""
    if not facts.system.has_infiniband_files:
        return _with_infiniband(facts)
    found = [name for name, keeps_off in _SOCKETS.items() if keeps_off(facts.environment.get(name))]
    if found:
        return unset(facts, found, is_guard=True)
    return (look("ibv_devinfo"),), (_WHY_SOCKETS,)


def _with_infiniband(facts: CheckFacts) -> Remedy:
    """Return what brings the devices' files: a module of the kernel, or the container's options."""
    if facts.inventory.limits.container is None:
        load = by_administrator("sudo modprobe ib_uverbs", Disruption.MACHINE)
        return (load,), (_NO_MODULE,)
    again = started_with(
        facts,
        "`--device /dev/infiniband --ulimit memlock=-1`",
        pod="Ask for the cluster's RDMA resource in the pod's manifest (`resources`).",
        hosts="Apptainer shows the host's /dev: the host's module ib_uverbs is not loaded.",
    )
    return (), (again,)


def _by_speed(facts: CheckFacts) -> Cost | None:
    """Return the cost: what goes over sockets takes at least as much longer as the links differ."""
    rdma = max(one.speed_bits_per_s or 0.0 for one in facts.inventory.rdma if one.is_active)
    nics = [nic.speed_bits_per_s for nic in facts.inventory.nics if nic.is_up]
    slowest = max((speed for speed in nics if speed), default=0.0)
    if not rdma or not slowest or rdma <= slowest:
        return None
    return Cost(of="communication", low=1.0, high=rdma / slowest, source="speeds of the links here")


def _ib_disabled(facts: CheckFacts) -> Judgement:
    if not any(one.is_active for one in facts.inventory.rdma):
        return not_applicable("no_rdma")
    environment = facts.environment
    found = [name for name in ("NCCL_IB_DISABLE",) if is_on(environment.get(name))]
    if environment.get("NCCL_NET", "").lower() == "socket":
        found.append("NCCL_NET")
    if not found:
        return clean()
    is_several = spans_machines(facts)
    commands, advice = unset(facts, found, is_guard=True)
    return fires(
        Severity.CRITICAL if is_several else Severity.WARNING,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen={"variables": ", ".join(f"{name}={environment[name]}" for name in found)},
        cost=_by_speed(facts),
        commands=commands,
        advice=advice,
    )


def _gpu_ranks_on_gloo(facts: CheckFacts) -> Judgement:
    run = run_on_gpu(facts)
    if isinstance(run, partial):
        return run
    if run.measurement.num_ranks < 2:
        return not_applicable("one_rank")
    found = _GLOO.search(run.script)
    if found is None or "nccl" in run.script.lower():
        return clean({"num_ranks": run.measurement.num_ranks})
    return fires(
        Severity.CRITICAL,
        Certainty.LIKELY,
        seen={"num_ranks": run.measurement.num_ranks, "words": found.group(0)},
        advice=('Write `torch.distributed.init_process_group("nccl")` in the script.',),
    )


def _nccl_path(facts: CheckFacts) -> Judgement:
    """Judge peer copies that the links allow and NCCL did not choose."""
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    if len(asked) < 2:
        return not_applicable("one_gpu")
    log = facts.nccl_log
    if log is None:
        return not_checked(facts.missing.get("nccl_log", "no_nccl_log"))
    if not log.transports:
        return not_checked("log_without_channels")
    has_nvlink = any(
        link.kind.startswith("NV")
        and link.first.startswith("GPU")
        and link.second.startswith("GPU")
        for link in facts.inventory.links
    )
    seen = _choices(log)
    through_host = sum(num for name, num in log.transports.items() if name.startswith("SHM"))
    if not through_host or not has_nvlink:
        return clean(seen)
    forbidding = [name for name in _PEERS_FORBIDDEN if name in facts.environment]
    commands, advice = unset(facts, forbidding, is_guard=True) if forbidding else ((), _NO_PEERS)
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen=seen,
        commands=(*commands, look("nvidia-smi topo -p2p r")),
        advice=advice,
    )


def _choices(log: NcclChoice) -> dict[str, Value]:
    """Return the algorithm (ring or tree) and the transports, as the log has them."""
    seen: dict[str, Value] = {
        "transports": ", ".join(f"{num} × {name}" for name, num in log.transports.items()),
        "shapes": " and ".join(
            word for word, has in (("rings", log.has_rings), ("trees", log.has_trees)) if has
        ),
        "log": log.path,
    }
    told = {
        "network": log.network,
        "version": log.version,
        "algorithms": ", ".join(log.algorithms) or None,
    }
    return seen | {name: value for name, value in told.items() if value is not None}


def _without_gpu_direct(facts: CheckFacts) -> Judgement:
    if not any(one.is_active for one in facts.inventory.rdma) or not driven_gpus(facts):
        return not_applicable("no_rdma")
    log = facts.nccl_log
    if log is None:
        return not_checked(facts.missing.get("nccl_log", "no_nccl_log"))
    over_ib = {name: num for name, num in log.transports.items() if name.startswith("NET/IB")}
    if not over_ib:
        return not_applicable("no_traffic_over_rdma")
    if any("GDR" in name for name in over_ib):
        return clean(_choices(log))
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen=_choices(log),
        commands=(look("lsmod | grep -i peermem"), look("cat /proc/driver/nvidia/version")),
        advice=(_GPU_DIRECT,),
    )


CHECKS = (
    CheckRow(
        code="rdma_unused",
        subject="network",
        title="RDMA is there, and the traffic goes over sockets",
        seen=(
            "{device} is active",
            "NCCL uses: {network}",
            "log {log}",
            "{absent} is not here, without which NCCL takes sockets",
        ),
        why="Sockets go through the kernel and the processor, at the speed of the slower network.",
        source=_TROUBLES,
        judge=_rdma_unused,
    ),
    CheckRow(
        code="infiniband_disabled",
        subject="network",
        title="a variable forbids RDMA to NCCL",
        seen=("{variables}",),
        why="NCCL falls back to sockets, whatever the network could do.",
        source=f"{_ENV}#nccl-ib-disable",
        judge=_ib_disabled,
    ),
    CheckRow(
        code="gpu_ranks_on_gloo",
        subject="network",
        title="ranks on GPUs reduce by gloo",
        seen=("{num_ranks} ranks on GPUs", "the script says {words}"),
        why="gloo takes gradients through the memory of the host; NCCL goes from GPU to GPU.",
        source=_BACKENDS,
        judge=_gpu_ranks_on_gloo,
    ),
    CheckRow(
        code="peers_through_host",
        subject="network",
        title="GPUs with NVLink between them talk through the host",
        seen=("{transports}", "{shapes}", "network {network}", "{algorithms}", "log {log}"),
        why="SHM is what NCCL takes where peer access is forbidden: by a variable, by the PCI "
        "bridges' access control, or in a virtual machine.",
        source=_TROUBLES,
        judge=_nccl_path,
    ),
    CheckRow(
        code="no_gpu_direct",
        subject="network",
        title="RDMA does not reach into the GPU's memory",
        seen=("{transports}", "{shapes}", "{algorithms}", "log {log}"),
        why="Without GPUDirect each message takes a detour through the memory of the host.",
        source="https://docs.nvidia.com/cuda/gpudirect-rdma/",
        judge=_without_gpu_direct,
    ),
)
