"""Makes the commands of remedies, and withholds those that are not right on this machine.

In: a check with its commands, and whose machine this is. Out: the check with the commands that may
stand here; a sentence stands in place of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import (
    Command,
    CommandPlace,
    Disruption,
    MachineCheck,
    MachineSite,
    Runner,
)

Remedy = tuple[tuple[Command, ...], tuple[str, ...]]
"""Commands, and advice."""

SCHEDULERS = {
    "slurm": "Slurm",
    "pbs": "PBS",
    "lsf": "LSF",
    "sge": "Grid Engine",
    "flux": "Flux",
    "kubernetes": "Kubernetes",
}
"""Names of schedulers, by their machine word."""

_STOPS_OTHERS = (Disruption.LOGINS, Disruption.TRAININGS, Disruption.NODE)

NODE_OF_CLUSTER = (
    "This is a node of a {scheduler} cluster: report it to the cluster's administrators, who drain "
    "a node before they change it."
)
NODE_OF_POD = "The machine under this pod is the cluster's: report it to its administrators."
OTHERS_WORK_HERE = (
    "{people} at work here too: this would stop what they do, so whoever administers the machine "
    "has to agree on a time with them."
)
DRAIN_FIRST = "Drain the node first, so that no job starts on it."
SET_BY_SITE = (
    "{file} sets {name} for everybody here: ask whoever administers the machine why before you "
    "unset it."
)
MAY_GUARD = "It may be there to get around a fault: compare one run without it first."
NOT_IN_A_JOB = (
    "{scheduler} hands out this machine, and this shell is in none of its jobs: try it in a job."
)


def by_user(line: str, disrupts: Disruption) -> Command:
    """Return a command for whoever trains."""
    return Command(line=line, who=Runner.USER, disrupts=disrupts)


def look(line: str) -> Command:
    """Return a command for everybody that only shows something."""
    return by_user(line, Disruption.NOTHING)


def in_shell(line: str) -> Command:
    """Return a command that changes this shell, and so what is started from it."""
    return by_user(line, Disruption.SHELL)


def try_levers(*levers: str) -> Command:
    """Return the command that tries levers with the user's training."""
    return by_user(f"steptime tune --levers {','.join(levers)} -- python train.py", Disruption.LOAD)


def look_as_root(line: str) -> Command:
    """Return a command that shows what only root may see; the line has its `sudo`."""
    return Command(line=line, who=Runner.ROOT, disrupts=Disruption.NOTHING)


def by_administrator(line: str, disrupts: Disruption) -> Command:
    """Return a command for whoever answers for the machine; the line has its `sudo`."""
    return Command(line=line, who=Runner.ADMINISTRATOR, disrupts=disrupts)


def unset(facts: CheckFacts, names: Sequence[str], *, is_guard: bool = False) -> Remedy:
    """Return what takes variables out of this shell, unless the site sets them for everybody.

    Args:
        facts: what the checks judge.
        names: of the variables.
        is_guard: such a variable may be there to get around a fault.
    """
    of_site = [name for name in names if name in facts.system.site_variables]
    if of_site:
        file = facts.system.site_variables[of_site[0]]
        return (), (SET_BY_SITE.format(file=file, name=of_site[0]),)
    return (in_shell("unset " + " ".join(names)),), (MAY_GUARD,) if is_guard else ()


def settle(check: MachineCheck, facts: CheckFacts) -> MachineCheck:
    """Return the check with the commands that are right on this machine.

    A command for the administrator is withheld where a scheduler hands out the machine, unless
    root asks outside of a job; in a container it is one for the host. A command that stops other
    people's work is withheld while they are there, and outside of jobs one that trains.
    """
    if not check.commands:
        return check
    kept: list[Command] = []
    advice = list(check.advice)
    for command in check.commands:
        reason = _reason_against(command, facts)
        if reason is None:
            kept.append(_placed(command, facts))
            is_stop = command.disrupts in _STOPS_OTHERS and facts.site.scheduler is not None
            reason = DRAIN_FIRST if is_stop else None
        if reason is not None and reason not in advice:
            advice.append(reason)
    return replace(check, commands=tuple(kept), advice=tuple(advice))


def _reason_against(command: Command, facts: CheckFacts) -> str | None:
    site = facts.site
    name = SCHEDULERS.get(site.scheduler or "", site.scheduler)
    if command.who is Runner.USER:
        is_load = command.disrupts is Disruption.LOAD
        return NOT_IN_A_JOB.format(scheduler=name) if is_load and site.needs_job else None
    if facts.inventory.limits.container == "kubernetes":
        return NODE_OF_POD
    if site.scheduler is not None and not _is_administrator(facts):
        return NODE_OF_CLUSTER.format(scheduler=name)
    if command.disrupts in _STOPS_OTHERS and site.hides_others:
        return OTHERS_WORK_HERE.format(people="Other users may be")
    if command.disrupts in _STOPS_OTHERS and site.num_others:
        people = "another user is" if site.num_others == 1 else f"{site.num_others} other users are"
        return OTHERS_WORK_HERE.format(people=people.capitalize())
    return None


def _is_administrator(facts: CheckFacts) -> bool:
    site: MachineSite = facts.site
    return site.is_root and not site.in_job and facts.inventory.limits.container is None


def _placed(command: Command, facts: CheckFacts) -> Command:
    is_hosts = command.who is not Runner.USER and facts.inventory.limits.container is not None
    return replace(command, place=CommandPlace.HOST) if is_hosts else command
