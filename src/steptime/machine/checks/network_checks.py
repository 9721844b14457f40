"""Checks the path between ranks: unused RDMA, a slow interface, gloo for GPUs, NCCL's choices.

In: facts. Out: judgements.
"""

from __future__ import annotations

import re
from functools import partial

from steptime.core.units import format_rate
from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_facts import CheckFacts, Interface
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    Value,
    clean,
    driven_gpus,
    fires,
    is_on,
    not_applicable,
    not_checked,
    run_on_gpu,
    spans_machines,
)
from steptime.machine.checks.limits_raised import started_with
from steptime.machine.checks.remedy import by_administrator, in_shell, look
from steptime.machine.values.check_values import Certainty, Command, Cost, Disruption, NcclChoice

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLES = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_BACKENDS = "https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use"
_SPEEDUP = 2.0  # the other interface must be so much faster: else other things decide
_GLOO = re.compile(r"""init_process_group\(\s*(?:backend\s*=\s*)?["']gloo["']|["']gloo["']""")

_SOCKETS = ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA")
"""Variables that can keep NCCL off RDMA."""

_WHY_SOCKETS = (
    "NCCL says why it took no RDMA device in a log of NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET. "
    "It chooses among the devices by itself."
)
_CHOOSE = (
    "If the other machines have an address in the network of {name}, set NCCL_SOCKET_IFNAME and "
    "GLOO_SOCKET_IFNAME to it; that cannot be seen from here."
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


def _off_sockets(facts: CheckFacts) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Return what lets NCCL take RDMA: it chooses the device itself, among all that there are."""
    if not facts.system.has_infiniband_files:
        return _with_infiniband(facts)
    found = [name for name in _SOCKETS if name in facts.environment]
    if found:
        return (in_shell("unset " + " ".join(found)),), ()
    return (look("ibv_devinfo"),), (_WHY_SOCKETS,)


def _with_infiniband(facts: CheckFacts) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Return what brings the devices' files: a module of the kernel, or the container's options."""
    if facts.inventory.limits.container is None:
        load = by_administrator("sudo modprobe ib_uverbs", Disruption.MACHINE)
        return (load,), (_NO_MODULE,)
    again = started_with(
        facts,
        "`--device /dev/infiniband --ulimit memlock=-1`",
        manifest="the RDMA resource that the cluster's device plugin offers",
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
    return fires(
        Severity.CRITICAL if is_several else Severity.WARNING,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen={"variables": ", ".join(f"{name}={environment[name]}" for name in found)},
        cost=_by_speed(facts),
        commands=(in_shell("unset " + " ".join(found)),),
    )


def _slow_interface(facts: CheckFacts) -> Judgement:
    """Judge the sockets' interface, by NCCL's rules (NCCL_SOCKET_IFNAME in its guide)."""
    candidates = [one for one in facts.interfaces if one.is_up and one.name != "lo"]
    if len(candidates) < 2:
        return not_applicable("one_interface")
    rule = facts.environment.get("NCCL_SOCKET_IFNAME")
    taken = _taken(candidates, rule)
    if not taken:
        return fires(
            Severity.CRITICAL,
            Certainty.CERTAIN,
            seen={"rule": rule or "", "interfaces": " ".join(one.name for one in candidates)},
            commands=(in_shell("unset NCCL_SOCKET_IFNAME"),),
        )
    # A bridge, or one end of a pair, has a speed that its driver made up.
    real = [one for one in candidates if one.is_hardware]
    if not real:
        return not_applicable("no_hardware_interface")
    fastest = max(real, key=lambda one: one.speed_bits_per_s or 0.0)
    first = taken[0]
    seen: dict[str, Value] = {
        "taken": _told(first),
        "fastest": _told(fastest),
        "rule": rule or "not set",
    }
    if fastest.speed_bits_per_s is None:
        return not_checked("speeds_not_told")
    advice = (_CHOOSE.format(name=fastest.name),)
    best = max(one.speed_bits_per_s or 0.0 for one in taken)
    if first.speed_bits_per_s is None:
        if first.is_hardware:
            return not_checked("speeds_not_told")
        return fires(Severity.INFO, Certainty.POSSIBLE, seen=seen, advice=advice)
    # Without a rule all interfaces taken are devices, and NCCL prefers the faster one.
    if fastest.speed_bits_per_s < _SPEEDUP * (best if rule is None else first.speed_bits_per_s):
        return clean(seen)
    ratio = fastest.speed_bits_per_s / first.speed_bits_per_s
    is_several = spans_machines(facts)
    return fires(
        Severity.WARNING if is_several else Severity.INFO,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen=seen,
        cost=Cost(of="communication", low=1.0, high=ratio, source="speeds of the links here"),
        advice=advice,
    )


def _taken(candidates: list[Interface], rule: str | None) -> list[Interface]:
    if rule:
        is_not = rule.startswith("^")
        words = [word for word in rule.lstrip("^").split(",") if word]
        return [one for one in candidates if _matches(one.name, words) != is_not]
    for wanted in (lambda name: name.startswith("ib"), lambda name: not name.startswith("docker")):
        found = [one for one in candidates if wanted(one.name)]
        if found:
            return found
    return candidates


def _matches(name: str, words: list[str]) -> bool:
    return any(
        name == word[1:] if word.startswith("=") else name.startswith(word) for word in words
    )


def _told(one: Interface) -> str:
    if one.speed_bits_per_s is None:
        return one.name
    return f"{one.name} ({format_rate(one.speed_bits_per_s, 'bits_per_s')})"


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
    if len(driven_gpus(facts)) < 2:
        return not_applicable("one_gpu" if driven_gpus(facts) else "no_nvidia_gpu")
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
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen=seen,
        commands=(
            *((in_shell("unset " + " ".join(forbidding)),) if forbidding else ()),
            look("nvidia-smi topo -p2p r"),
        ),
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
        commands=(by_administrator("sudo modprobe nvidia-peermem", Disruption.MACHINE),),
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
        code="slow_interface",
        subject="network",
        title="NCCL takes a slow interface, and there is a faster one",
        seen=(
            "takes {taken}",
            "the fastest is {fastest}",
            "NCCL_SOCKET_IFNAME is {rule}",
            "interfaces: {interfaces}",
        ),
        why="Without a rule NCCL takes those named ib*, else all but docker* and lo, in the "
        "system's order; a rule that fits none ends the run.",
        source=f"{_ENV}#nccl-socket-ifname",
        judge=_slow_interface,
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
