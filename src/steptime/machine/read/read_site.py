"""Reads whose machine this is: a scheduler's, one of several people, or one person's own.

In: the kernel's files and the variables of this shell. Out: a `MachineSite`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from steptime.machine._files import KernelFiles, names_in, read_lines, read_text
from steptime.machine.values.check_values import MachineSite
from steptime.record.numbers_told import whole_number_in

_JOBS = {
    "SLURM_JOB_ID": "slurm",
    "PBS_JOBID": "pbs",
    "LSB_JOBID": "lsf",
    "SGE_TASK_ID": "sge",
    "FLUX_JOB_ID": "flux",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
}
"""Variables that a scheduler sets in its jobs."""

_TRACES = {
    "etc/slurm": "slurm",
    "etc/slurm-llnl": "slurm",
    "var/spool/slurmd": "slurm",
    "etc/pbs.conf": "pbs",
    "etc/flux": "flux",
    "etc/kubernetes/kubelet.conf": "kubernetes",
    "var/lib/kubelet": "kubernetes",
}
"""Files of a machine that belongs to a scheduler, outside of its jobs too."""

_SETTINGS = {"SLURM_CONF": "slurm", "PBS_CONF_FILE": "pbs", "LSF_ENVDIR": "lsf", "SGE_ROOT": "sge"}
"""Variables that a scheduler's installation sets for every shell."""

_DAEMONS = ("slurmd", "pbs_mom", "sbatchd", "sge_execd", "flux-broker", "kubelet")

_FIRST_PERSON = 1000
_NO_PEOPLE = range(61184, 65536)  # systemd's dynamic users, and nobody
_NO_SHELLS = ("nologin", "false", "sync")
_DIRECTORIES = ("sss", "ldap", "winbind", "nis", "systemd-userdbd")
_MAX_PROCESSES = 50_000


def read_site(kernel: KernelFiles, *, environment: Mapping[str, str]) -> MachineSite:
    """Return whose machine this is."""
    job = _job_here(kernel, environment)
    owners, commands = _processes(kernel)
    return MachineSite(
        scheduler=job
        or scheduler_of_job(environment)
        or _scheduler_of_machine(kernel, environment),
        in_job=job is not None,
        serves_jobs=bool(commands & set(_DAEMONS)),
        is_root=os.geteuid() == 0,
        hides_others=owners is None and bool(commands),
        num_others=None if owners is None else len(_people(kernel, owners) - {os.getuid()}),
        num_accounts=_num_accounts(kernel),
    )


def scheduler_of_job(environment: Mapping[str, str]) -> str | None:
    """Return the scheduler whose job this shell is in."""
    return next((word for name, word in _JOBS.items() if environment.get(name)), None)


def _job_here(kernel: KernelFiles, environment: Mapping[str, str]) -> str | None:
    """Return the scheduler of the job that this process is in.

    After `salloc` the shell has the job's variables, and is still on the login node; a shell that
    came by SSH and that Slurm adopted has none, and is in the job's group.
    """
    own = read_text(kernel.proc / "self" / "cgroup") or ""
    if "slurm" in own and "/job_" in own:
        return "slurm"
    word = scheduler_of_job(environment)
    if word == "slurm" and "SLURMD_NODENAME" not in environment:
        return None
    return word


def _scheduler_of_machine(kernel: KernelFiles, environment: Mapping[str, str]) -> str | None:
    for name, word in _SETTINGS.items():
        if environment.get(name):
            return word
    for trace, word in _TRACES.items():
        with suppress(OSError):
            if (kernel.root / trace).exists():
                return word
    return None


def _processes(kernel: KernelFiles) -> tuple[set[int] | None, set[str]]:
    """Return the owners of all processes, and their commands; None where others' are hidden."""
    owners: set[int] = set()
    commands: set[str] = set()
    is_hidden = True
    for name in names_in(kernel.proc)[:_MAX_PROCESSES]:
        if not name.isdecimal():
            continue
        folder = kernel.proc / name
        is_hidden = is_hidden and name != "1"
        with suppress(OSError):
            owners.add(folder.stat().st_uid)
            commands.add(read_text(folder / "comm") or "")
    return (None if is_hidden else owners), commands


def _people(kernel: KernelFiles, owners: set[int]) -> set[int]:
    """Return those of the users that are people: no service, and no user of a container."""
    mapped = _mapped(kernel.root / "etc" / "subuid")
    return {
        owner
        for owner in owners
        if owner >= _FIRST_PERSON
        and owner not in _NO_PEOPLE
        and not any(owner in one for one in mapped)
    }


def _mapped(path: Path) -> list[range]:
    """Return the ranges of users that containers without root are given: `name:first:num`."""
    found = []
    for line in read_lines(path):
        numbers = [whole_number_in(word) for word in line.split(":")[1:3]]
        if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
            found.append(range(numbers[0], numbers[0] + numbers[1]))
    return found


def _num_accounts(kernel: KernelFiles) -> int | None:
    """Return how many people may log in; None where a directory knows, and not this machine."""
    for line in read_lines(kernel.root / "etc" / "nsswitch.conf"):
        name, _, sources = line.partition(":")
        if name.strip() == "passwd" and set(sources.split()) & set(_DIRECTORIES):
            return None
    accounts = [line.split(":") for line in read_lines(kernel.root / "etc" / "passwd")]
    if not accounts:
        return None
    return sum(_is_person(fields) for fields in accounts)


def _is_person(fields: list[str]) -> bool:
    number = whole_number_in(fields[2]) if len(fields) >= 7 else None
    if number is None or number < _FIRST_PERSON or number in _NO_PEOPLE:
        return False
    return not fields[6].endswith(_NO_SHELLS)
