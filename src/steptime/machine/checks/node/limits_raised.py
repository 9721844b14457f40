"""Says who can raise the limit of a group: whoever made the group, each in their own way.

In: facts. Out: sentences; what started a container or a job cannot be seen from inside.
"""

from __future__ import annotations

import math

from steptime.machine.checks.remedy import SCHEDULERS
from steptime.machine.values.check_facts import CheckFacts

_DOCKERS = ("docker", "podman")
"""Containers that are started with Docker's options."""

_BY_MEMORY = ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU")


def more_memory(facts: CheckFacts, size_bytes: int) -> str:
    """Return how to ask for so much memory.

    Args:
        facts: what the checks judge.
        size_bytes: the limit that the group should have [bytes].
    """
    gib = math.ceil(size_bytes / (1 << 30))
    if facts.site.scheduler == "slurm" and facts.site.in_job:
        per = next((name for name in _BY_MEMORY if name in facts.environment), None)
        option = f"--{per[6:].lower().replace('_', '-')}" if per else f"--mem={gib}G"
        return f"Ask for {gib} GiB a node when you hand the job in: `{option}`."
    return _ask(facts, what=f"{gib} GiB of memory", options=_options(facts, f"--memory {gib}g"))


def more_cores(facts: CheckFacts, num: int) -> str:
    """Return how to ask for so many cores."""
    if facts.site.scheduler == "slurm" and facts.site.in_job:
        return f"Ask for {num} cores a process when you hand the job in: `--cpus-per-task={num}`."
    return _ask(facts, what=f"{num} cores", options=_options(facts, f"--cpus {num}"))


def started_with(facts: CheckFacts, options: str, *, pod: str, hosts: str) -> str:
    """Return how the container has to be started; its other options cannot be seen from inside.

    Args:
        facts: what the checks judge.
        options: of `docker run`, which podman has too.
        pod: sentence for a pod, in their place.
        hosts: sentence for Apptainer, which takes it from the host.
    """
    container = facts.inventory.limits.container
    if container == "kubernetes":
        return pod
    if container == "apptainer":
        return hosts
    if container not in _DOCKERS:
        return f"Whoever starts this container decides on it; with Docker it would be {options}."
    return f"Start the container again with {options}, beside the options that it has."


def _options(facts: CheckFacts, options: str) -> str | None:
    return options if facts.inventory.limits.container in _DOCKERS else None


def _ask(facts: CheckFacts, *, what: str, options: str | None) -> str:
    site, container = facts.site, facts.inventory.limits.container
    if container == "kubernetes":
        return f"Ask for {what} in the pod's manifest (`resources`)."
    if site.scheduler is not None and site.in_job:
        name = SCHEDULERS.get(site.scheduler, site.scheduler)
        return f"Ask {name} for {what} when you hand the job in."
    if options is not None:
        return f"Start the container again with `{options}`, beside the options that it has."
    return f"Whoever set the limit of this group can raise it to {what}."
