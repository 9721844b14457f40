"""Checks which network interface the ranks meet over, by NCCL's own rules.

In: facts. Out: a judgement. An interface is named in a command only if the addresses of the other
machines are known and the kernel sends to them through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, ip_interface

from steptime.core.units import format_rate
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
from steptime.machine.checks.remedy import Remedy, in_shell, unset
from steptime.machine.read.peers import peers_of
from steptime.machine.values.check_facts import CheckFacts, Interface
from steptime.machine.values.check_values import Certainty, Cost

_SOURCE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"
_SPEEDUP = 2.0  # the other interface must be so much faster: else other things decide
_RULE = "NCCL_SOCKET_IFNAME"
_UNKNOWN_PEERS = (
    "If the other machines have an address in the network of {name}, set NCCL_SOCKET_IFNAME and "
    "GLOO_SOCKET_IFNAME to it; their addresses are not known here."
)
_NO_ROUTE = (
    "{name} does not lead to the other machines, as far as the kernel's routes say: whoever "
    "administers the network knows which interface does."
)


def _slow_interface(facts: CheckFacts) -> Judgement:
    candidates = [one for one in facts.interfaces if one.is_up and one.name != "lo"]
    if len(candidates) < 2:
        return not_applicable("one_interface")
    rule = facts.environment.get(_RULE)
    taken = _taken(candidates, rule)
    if not taken:
        commands, advice = unset(facts, [_RULE])
        return fires(
            Severity.CRITICAL,
            Certainty.CERTAIN,
            seen={"rule": rule or "", "interfaces": " ".join(one.name for one in candidates)},
            commands=commands,
            advice=advice,
        )
    # The speed of a bridge, or of one end of a pair, is made up by its driver.
    real = [one for one in candidates if one.is_hardware and _addresses(one)]
    if not real:
        return not_applicable("no_hardware_interface")
    return _compare(facts, taken, real, rule=rule)


def _compare(
    facts: CheckFacts, taken: Sequence[Interface], real: Sequence[Interface], *, rule: str | None
) -> Judgement:
    first = taken[0]
    fastest = max(real, key=lambda one: one.speed_bits_per_s or 0.0)
    if fastest.speed_bits_per_s is None:
        return not_checked("speeds_not_told")
    seen: dict[str, Value] = {
        "taken": _told(first),
        "fastest": _told(fastest),
        "rule": rule or "not set",
    }
    commands, advice = _choose(facts, real, fastest)
    if not first.is_hardware:
        return fires(Severity.INFO, Certainty.POSSIBLE, seen=seen, commands=commands, advice=advice)
    if first.speed_bits_per_s is None:
        return not_checked("speeds_not_told")
    # Without a rule all interfaces taken are devices, and NCCL prefers the faster one.
    best = max(one.speed_bits_per_s or 0.0 for one in taken if one.is_hardware)
    if fastest.speed_bits_per_s < _SPEEDUP * (best if rule is None else first.speed_bits_per_s):
        return clean(seen)
    ratio = fastest.speed_bits_per_s / first.speed_bits_per_s
    is_several = spans_machines(facts)
    return fires(
        Severity.WARNING if is_several else Severity.INFO,
        Certainty.LIKELY if is_several else Certainty.POSSIBLE,
        seen=seen,
        cost=Cost(of="communication", low=1.0, high=ratio, source="speeds of the links here"),
        commands=commands,
        advice=advice,
    )


def _choose(facts: CheckFacts, real: Sequence[Interface], fastest: Interface) -> Remedy:
    """Return the command that names the fastest interface, if it is known to reach the others."""
    if _RULE in facts.system.site_variables:
        return unset(facts, [_RULE])
    peers = peers_of(facts)
    if not peers:
        return (), (_UNKNOWN_PEERS.format(name=fastest.name),)
    equals = [one for one in real if one.speed_bits_per_s == fastest.speed_bits_per_s]
    reaching = [one for one in equals if all(_reaches(facts, one, peer) for peer in peers)]
    if len(reaching) != 1:
        return (), (_NO_ROUTE.format(name=" or ".join(one.name for one in equals)),)
    name = reaching[0].name
    return (in_shell(f"export {_RULE}={name} GLOO_SOCKET_IFNAME={name}"),), ()


def _reaches(facts: CheckFacts, interface: Interface, peer: IPv4Address) -> bool:
    """Return whether the peer is in the interface's network, or the kernel routes to it there."""
    if any(peer in ip_interface(text).network for text in interface.networks):
        return True
    if any(peer in ip_interface(text).network for one in facts.interfaces for text in one.networks):
        return False
    found = [route for route in facts.routes if peer in ip_interface(route.network).network]
    best = max(found, key=lambda one: ip_interface(one.network).network.prefixlen, default=None)
    return best is not None and best.interface == interface.name


def _addresses(interface: Interface) -> list[str]:
    """Return the addresses that others can reach, and none that a host gives itself."""
    return [text for text in interface.networks if not ip_interface(text).is_link_local]


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
    if one.speed_bits_per_s is None or not one.is_hardware:
        return one.name
    return f"{one.name} ({format_rate(one.speed_bits_per_s, 'bits_per_s')})"


CHECKS = (
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
        source=_SOURCE,
        judge=_slow_interface,
    ),
)
