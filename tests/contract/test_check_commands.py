"""Every command of every check, on every kind of machine: who may run it, and what it disrupts."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from steptime.machine.checks.run_checks import CHECKS, judge
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import (
    CheckStatus,
    Command,
    CommandPlace,
    Disruption,
    MachineCheck,
    MachineSite,
    Runner,
)
from steptime.report.words.machine.check_reasons import DISRUPTIONS, PLACES, RUNNERS
from unit.check_objections import OBJECTIONS, ONCE_WRONG, OnceWrong
from unit.node_cases import CASES, FURTHER

OWN = MachineSite(num_others=0, num_accounts=1)
SITES = {
    "own": (OWN, None),
    "own, as root": (replace(OWN, is_root=True), None),
    "shared": (MachineSite(num_others=3, num_accounts=9), None),
    "slurm job": (MachineSite(scheduler="slurm", in_job=True, serves_jobs=True), None),
    "slurm job, as root": (MachineSite(scheduler="slurm", in_job=True, is_root=True), None),
    "login node": (MachineSite(scheduler="slurm", num_others=30), None),
    "compute node, as root": (MachineSite(scheduler="slurm", serves_jobs=True, is_root=True), None),
    "pod": (MachineSite(scheduler="kubernetes", in_job=True, is_root=True), "kubernetes"),
    "docker": (MachineSite(is_root=True), "docker"),
    "apptainer in a job": (MachineSite(scheduler="slurm", in_job=True), "apptainer"),
}
"""Whose machine it is, and what runs the container."""

CHANGES_MACHINE = re.compile(
    r"\b(reboot|shutdown|poweroff|modprobe|rmmod|sysctl|tee|swapoff|swapon|mount|setpci|mlxconfig"
    r"|mstconfig|cpupower|tuned-adm|ufw|iptables|nft|firewall-cmd"
    r"|(apt|apt-get|dnf|yum|zypper|snap|ubuntu-drivers) (install|update|upgrade|remove)"
    r"|rpm|dpkg|nvidia-ctk|docker|podman|kubectl|scontrol|chmod|chown"
    r"|ethtool -[A-Z]|ip link set|systemctl (enable|disable|start|stop|restart|reload)|sed -i"
    r"|nvidia-smi (?!-q|topo|-L|nvlink|$).*)"
)
"""What only a machine's administrator may run."""

RESTARTS = re.compile(r"\b(reboot|shutdown|poweroff)\b")
RESETS = re.compile(r"--gpu-reset|nvidia-smi -r\b|rmmod|swapoff")
NEVER = re.compile(
    r"\bufw\b|iptables|firewall-cmd|\bnft\b|swapoff|NCCL_IB_HCA=|IFNAME=(docker|veth|virbr|br-|cni|lo)"
    r"|--force(?!-reinstall)\b|\brm\b|kill"
)
"""What no check offers: nobody can know from here that it is right."""


def planted() -> Iterator[tuple[str, CheckFacts]]:
    for code, case in CASES.items():
        for facts in (case.fires, case.clean, *FURTHER.get(code, ())):
            yield code, facts


def at(facts: CheckFacts, site: MachineSite, container: str | None) -> CheckFacts:
    """The same machine in the hands of somebody else."""
    if container is not None:
        limits = replace(facts.inventory.limits, container=container)
        facts = replace(facts, inventory=replace(facts.inventory, limits=limits))
    return replace(facts, site=site)


def fired(name: str) -> list[MachineCheck]:
    site, container = SITES[name]
    return [
        check
        for _, facts in planted()
        for check in judge(at(facts, site, container))
        if check.status is CheckStatus.FIRES
    ]


@pytest.fixture(scope="module", params=SITES)
def found(request: pytest.FixtureRequest) -> tuple[str, list[MachineCheck]]:
    return request.param, fired(request.param)


def commands_of(checks: list[MachineCheck]) -> set[Command]:
    return {command for check in checks for command in check.commands}


def test_what_an_administrator_could_object_is_answered_for_every_check() -> None:
    """`unit/check_objections.py` has them."""
    assert set(OBJECTIONS) == {row.code for row in CHECKS}


@pytest.mark.parametrize("once", ONCE_WRONG, ids=lambda once: once.then)
def test_a_command_that_was_wrong_once_is_not_shown_there_again(once: OnceWrong) -> None:
    (found,) = (check for check in judge(once.facts) if check.code == once.code)

    lines = [command.line for command in found.commands]
    assert (once.then in lines) == ("this one is right" in once.planted)


def test_what_fires_has_a_command_or_advice(found: tuple[str, list[MachineCheck]]) -> None:
    assert [check.code for check in found[1] if not check.commands and not check.advice] == []


def test_every_command_says_who_and_what_in_known_words(
    found: tuple[str, list[MachineCheck]],
) -> None:
    for command in commands_of(found[1]):
        assert command.who.value in RUNNERS
        assert command.disrupts.value in DISRUPTIONS
        assert command.place.value in PLACES
        assert shlex.split(command.line)
        assert "\n" not in command.line


def test_only_an_administrator_changes_the_machine(
    found: tuple[str, list[MachineCheck]],
) -> None:
    for command in commands_of(found[1]):
        if CHANGES_MACHINE.search(command.line):
            assert command.who is Runner.ADMINISTRATOR, command
            assert command.disrupts not in (Disruption.NOTHING, Disruption.SHELL), command
        if RESTARTS.search(command.line):
            assert command.disrupts is Disruption.NODE, command
        if RESETS.search(command.line):
            assert command.disrupts is Disruption.TRAININGS, command


def test_no_command_is_a_guess(found: tuple[str, list[MachineCheck]]) -> None:
    assert [one.line for one in commands_of(found[1]) if NEVER.search(one.line)] == []


def test_rights_fit_who_runs_it(found: tuple[str, list[MachineCheck]]) -> None:
    own = (
        Disruption.NOTHING,
        Disruption.SHELL,
        Disruption.LOAD,
        Disruption.PACKAGES,
    )
    for command in commands_of(found[1]):
        assert ("sudo " in command.line) == (command.who is not Runner.USER), command
        if command.who is Runner.USER:
            assert command.disrupts in own, command
        if command.who is Runner.ROOT:
            assert command.disrupts is Disruption.NOTHING, command


def test_a_command_is_one_that_may_stand_on_this_machine(
    found: tuple[str, list[MachineCheck]],
) -> None:
    name, checks = found
    site, container = SITES[name]
    for command in commands_of(checks):
        is_users = command.who is Runner.USER
        if container == "kubernetes" or (site.scheduler and name != "compute node, as root"):
            assert is_users, command
        if container is not None and not is_users:
            assert command.place is CommandPlace.HOST, command
        if site.needs_job:
            assert command.disrupts is not Disruption.LOAD, command
        if site.num_others:
            stops = (Disruption.LOGINS, Disruption.TRAININGS, Disruption.NODE)
            assert command.disrupts not in stops, command


def test_every_command_is_one_that_a_shell_reads() -> None:
    lines = {one.line for name in SITES for one in commands_of(fired(name))}

    done = subprocess.run(["bash", "-n"], input="\n".join(sorted(lines)), text=True, check=False)

    assert done.returncode == 0
    assert len(lines) > 40
