"""Checks the ports of the network: rates of RDMA, sizes of packets, and who serves interrupts.

In: facts. Out: judgements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    Value,
    clean,
    fires,
    not_applicable,
    not_checked,
    spans_machines,
)
from steptime.machine.checks.remedy import look, look_as_root
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Cost
from steptime.machine.values.node_facts import NicQueues, RdmaPort

_IBSTAT = "https://docs.kernel.org/admin-guide/abi-stable.html (/sys/class/infiniband)"
_MTU = "https://fasterdata.es.net/network-tuning/mtu-issues/"
_SCALING = "https://docs.kernel.org/networking/scaling.html"

_LANES = 4
"""Of a cable between a node and its switch; a link with fewer lost the others."""

_BEST_BITS_PER_S = {
    "MT4115": 1e11,
    "MT4119": 1e11,
    "MT4121": 1e11,
    "MT4123": 2e11,
    "MT4129": 4e11,
    "MT4131": 8e11,
}
"""Fastest port that is sold with ConnectX-4, 5, 5 Ex, 6, 7 and 8 (NVIDIA's user manuals); cards
with slower ports have the same chip, so below it is a remark."""

_FAST_BITS_PER_S = 25e9
"""From here on one core cannot handle packets of 1,500 bytes at the speed of the link."""
_USUAL_MTU = 1500
_OWN_MTU = ("ib",)  # IP over InfiniBand has sizes of its own


# -- ports


def _ports(facts: CheckFacts) -> tuple[RdmaPort, ...] | Judgement:
    ports = facts.node.rdma_ports
    if ports is None:
        return not_checked(facts.missing.get("rdma_ports", "not_told"))
    return ports or not_applicable("no_rdma")


def _port_slow(facts: CheckFacts) -> Judgement:
    ports = _ports(facts)
    if isinstance(ports, partial):
        return ports
    up = [port for port in ports if port.state == "ACTIVE" and port.rate_bits_per_s]
    if not up:
        return not_applicable("no_rdma")
    narrow = [port for port in up if (port.width or _LANES) < _LANES]
    behind = [port for port in up if _rate(port) < _best_here(port, up)]
    below = [port for port in up if _rate(port) < _BEST_BITS_PER_S.get(port.kind or "", 0.0)]
    if not narrow and not behind and not below:
        return clean({"slowest_bits_per_s": min(map(_rate, up))})
    found = narrow or behind or below
    worst = min(found, key=_rate)
    best = max(
        _best_here(worst, up),
        _rate(worst) * _LANES / (worst.width or _LANES),
        0.0 if narrow or behind else _BEST_BITS_PER_S.get(worst.kind or "", 0.0),
    )
    is_fault = bool(narrow or behind)
    return fires(
        Severity.WARNING if is_fault else Severity.INFO,
        Certainty.CERTAIN if narrow else Certainty.LIKELY if behind else Certainty.POSSIBLE,
        seen={
            "ports": _names(found),
            "rate_bits_per_s": _rate(worst),
            "best_bits_per_s": best,
            "lanes": f"{worst.width or '?'}X {worst.speed or ''}".strip(),
        },
        cost=Cost(
            of="communication",
            low=1.0,
            high=round(best / _rate(worst), 1),
            source="rates of the ports here",
        )
        if is_fault
        else None,
        commands=(
            look("grep . /sys/class/infiniband/*/ports/*/rate"),
            look_as_root(f"sudo mlxlink -d {worst.device} -p {worst.port} -m"),
        )
        if is_fault
        else (look("grep . /sys/class/infiniband/*/ports/*/rate"),),
        advice=(
            "A cable, a transceiver or the switch's port limits the link: a case for whoever runs "
            "the network.",
        )
        if is_fault
        else ("A slower card of this kind, or a slower switch, may be on purpose.",),
    )


def _rate(port: RdmaPort) -> float:
    return port.rate_bits_per_s or 0.0


def _best_here(port: RdmaPort, ports: Sequence[RdmaPort]) -> float:
    """Return the best rate of ports of the same type and network on this machine."""
    alike = [p for p in ports if (p.kind, p.link_layer) == (port.kind, port.link_layer)]
    return max(map(_rate, alike), default=_rate(port))


def _names(ports: Sequence[RdmaPort]) -> str:
    return ", ".join(f"{port.device} port {port.port}" for port in ports)


def _port_not_active(facts: CheckFacts) -> Judgement:
    ports = _ports(facts)
    if isinstance(ports, partial):
        return ports
    kinds = {port.kind for port in ports if port.state == "ACTIVE"}
    # A port that is disabled, or whose kind is used nowhere on this machine, is so on purpose.
    waiting = [p for p in ports if p.state in ("INIT", "ARMED") and p.link_layer == "InfiniBand"]
    down = [
        port
        for port in ports
        if port.state == "DOWN" and port.physical != "Disabled" and port.kind in kinds
    ]
    if not waiting and not down:
        return clean({"num_ports": len(ports)})
    found = waiting or down
    seen: dict[str, Value] = {
        "ports": _names(found),
        "state": found[0].state or "",
        "physical": found[0].physical or "",
    }
    return fires(
        Severity.WARNING if waiting else Severity.INFO,
        Certainty.LIKELY if waiting else Certainty.POSSIBLE,
        seen=seen,
        commands=(look("grep . /sys/class/infiniband/*/ports/*/*state"),),
        advice=(
            "The link is up and no subnet manager made it active: a case for whoever runs the "
            "network."
            if waiting
            else "Other ports of this kind are in use: this one may lack its cable, or be spare.",
        ),
    )


# -- packets and interrupts


def _fast(facts: CheckFacts) -> list[NicQueues] | Judgement:
    """Return fast Ethernet interfaces, or why there are none to judge."""
    if facts.node.nics is None:
        return not_checked(facts.missing.get("nics", "not_told"))
    return [
        nic
        for nic in facts.node.nics
        if (nic.speed_bits_per_s or 0.0) >= _FAST_BITS_PER_S and not nic.name.startswith(_OWN_MTU)
    ]


def _mtu_small(facts: CheckFacts) -> Judgement:
    nics = _fast(facts)
    if isinstance(nics, partial):
        return nics
    told = [nic for nic in nics if nic.mtu_bytes is not None]
    if not told:
        return not_applicable("no_fast_ethernet")
    sizes = {nic.mtu_bytes for nic in told}
    small = [nic for nic in told if (nic.mtu_bytes or 0) <= _USUAL_MTU]
    if not small and len(sizes) == 1:
        return clean({"sizes": _sizes(told)})
    differs = any(
        one.mtu_bytes != other.mtu_bytes and one.speed_bits_per_s == other.speed_bits_per_s
        for one in told
        for other in told
    )
    if not small and not differs:
        return clean({"sizes": _sizes(told)})
    uses_sockets = facts.nccl_log is not None and facts.nccl_log.network == "Socket"
    # Networks for other things may have sizes of their own.
    is_felt = uses_sockets and spans_machines(facts)
    return fires(
        Severity.WARNING if is_felt else Severity.INFO,
        Certainty.LIKELY if is_felt else Certainty.POSSIBLE,
        seen={"sizes": _sizes(told)},
        commands=(look("ping -c 3 -M do -s 8972 OTHER_NODE"),),
        advice=(
            "Every node and every switch between them has to allow the same size: a larger one is "
            "for whoever runs the network, and interfaces of one kind get the same.",
        ),
    )


def _sizes(nics: Sequence[NicQueues]) -> str:
    return ", ".join(f"{nic.name} {nic.mtu_bytes}" for nic in nics)


def _interrupts_crowded(facts: CheckFacts) -> Judgement:
    nics = _fast(facts)
    if isinstance(nics, partial):
        return nics
    if not nics:
        return not_applicable("no_fast_ethernet")
    told = [nic for nic in nics if nic.interrupts]
    if not told:
        return not_checked("interrupts_not_told")
    crowded = [nic for nic in told if _on_one_core(nic)]
    far = [nic for nic in told if _is_far(nic)]
    found = crowded or far
    if not found:
        return clean({"interfaces": " ".join(nic.name for nic in told)})
    cores = sorted({core for one in found[0].interrupts or () for core in one})
    seen: dict[str, Value] = {
        "interfaces": " ".join(nic.name for nic in found),
        "num_interrupts": len(found[0].interrupts or ()),
        "cores": ",".join(map(str, cores[:8])) + (",…" if len(cores) > 8 else ""),
        "how": "all on one core" if crowded else "all far from the card",
    }
    if facts.node.has_irqbalance is False:
        seen["absent"] = "irqbalance does not run"
    uses_sockets = facts.nccl_log is not None and facts.nccl_log.network == "Socket"
    is_felt = uses_sockets and spans_machines(facts)
    return fires(
        Severity.WARNING if is_felt else Severity.INFO,
        Certainty.LIKELY if is_felt else Certainty.POSSIBLE,
        seen=seen,
        commands=(look(f"grep {found[0].name} /proc/interrupts"),),
        advice=(
            "The administrator lets irqbalance spread them, or pins them to cores near the card "
            "with the maker's script (set_irq_affinity); not both.",
        ),
    )


def _on_one_core(nic: NicQueues) -> bool:
    interrupts = nic.interrupts or ()
    return len(interrupts) > 1 and len({core for one in interrupts for core in one}) == 1


def _is_far(nic: NicQueues) -> bool:
    """Return whether no interrupt may be served near the card."""
    near = set(nic.near)
    return bool(near) and not any(near & set(one) for one in nic.interrupts or ())


CHECKS = (
    CheckRow(
        code="rdma_port_slow",
        subject="network",
        title="an RDMA port is slower than it could be",
        seen=(
            "{ports}",
            "{rate_bits_per_s} of {best_bits_per_s}",
            "{lanes}",
            "{slowest_bits_per_s}",
        ),
        why="A collective goes at the pace of its slowest port. A link that loses lanes or comes "
        "up at a lower speed stays active, so nothing fails.",
        source=_IBSTAT,
        judge=_port_slow,
    ),
    CheckRow(
        code="rdma_port_not_active",
        subject="network",
        title="an RDMA port is not active",
        seen=("{ports}", "state {state}", "link {physical}"),
        why="NCCL leaves such a port out: its GPU shares the port of another one.",
        source=_IBSTAT,
        judge=_port_not_active,
    ),
    CheckRow(
        code="mtu_small",
        subject="network",
        title="packets on a fast network are small, or differ in size",
        seen=("{sizes} bytes",),
        why="With packets of 1,500 bytes the processor, and not the link, limits what goes over "
        "sockets; where sizes differ on the way, large packets are lost.",
        source=_MTU,
        judge=_mtu_small,
    ),
    CheckRow(
        code="interrupts_crowded",
        subject="network",
        title="a fast card's interrupts crowd on few cores",
        seen=(
            "{interfaces}",
            "{num_interrupts} interrupts {how}",
            "core(s) {cores}",
            "{absent}",
        ),
        why="One core then handles all packets of a card that could spread them, or each packet "
        "crosses from one socket to the other. RDMA goes past the cores and is not affected.",
        source=_SCALING,
        judge=_interrupts_crowded,
    ),
)
