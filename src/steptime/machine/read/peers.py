"""Finds the addresses of the machines that a training spans, as far as they are written down.

In: facts. Out: addresses. No name server is asked: a name counts where /etc/hosts has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address

from steptime.machine.values.check_facts import CheckFacts
from steptime.record.numbers_told import whole_number_in

_VARIABLES = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_OPTIONS = re.compile(r"--(?:master[-_]addr|rdzv[-_]endpoint)[= ](\S+)")
_NODES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_LIST = re.compile(r"([^,\[]+)(?:\[([^\]]*)\])?")
_MAX_NODES = 1024


def peers_of(facts: CheckFacts) -> tuple[IPv4Address, ...]:
    """Return the addresses at which ranks meet, and those of a job's nodes; none if not told."""
    found = []
    for name in dict.fromkeys(_names(facts)):
        address = _address(name) or _address(facts.hosts.get(name, ""))
        if address is not None and not address.is_loopback:
            found.append(address)
    return tuple(dict.fromkeys(found))


def _names(facts: CheckFacts) -> Iterator[str]:
    run = facts.run
    for environment in (facts.environment, {} if run is None else run.environment):
        for variable in _VARIABLES:
            yield _host(environment.get(variable, ""))
    if run is not None:
        for words in _OPTIONS.findall(" ".join(run.measurement.command)):
            yield _host(words)
    told = next((facts.environment[name] for name in _NODES if name in facts.environment), "")
    yield from nodes_of(told)


def nodes_of(text: str) -> list[str]:
    """Return the names of a list of Slurm's, such as `gpu[01-03,07],login`."""
    found: list[str] = []
    for prefix, ranges in _LIST.findall(text):
        if not ranges:
            found.append(prefix)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            start, end = whole_number_in(first), whole_number_in(last or first)
            if start is None or end is None or end - start > _MAX_NODES:
                continue
            found += [f"{prefix}{number:0{len(first)}d}" for number in range(start, end + 1)]
    return found[:_MAX_NODES]


def _host(text: str) -> str:
    """Return the host of `host:port`."""
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def _address(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except ValueError:
        return None
