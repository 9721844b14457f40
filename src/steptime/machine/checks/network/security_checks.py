"""Checks how open the machine is: passwords over SSH, and ports that others can reach.

In: facts. Out: judgements. They rest on the server's configuration and the kernel's list of
listeners; nothing ever connects to a port.
"""

from __future__ import annotations

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    clean,
    fires,
    not_applicable,
    not_checked,
)
from steptime.machine.checks.remedy import by_administrator, look_as_root
from steptime.machine.values.check_facts import CheckFacts, Sshd
from steptime.machine.values.check_values import Certainty, Command, Disruption

_SSH_PORT = 22
_KNOWN = {
    2375: "Docker without TLS",
    6006: "TensorBoard",
    6379: "Redis or Ray",
    8265: "Ray's dashboard",
    8786: "Dask",
    8787: "Dask's dashboard",
    8888: "Jupyter",
    10001: "Ray's clients",
    29400: "torchrun",
    29500: "torch.distributed",
}
"""Services that by default ask for no password, or run what they receive."""

_MEETS = frozenset((29400, 29500))
"""Ports at which the ranks of a training meet: to close them ends it."""

_MEETING = (
    "Ranks of a training meet there, perhaps now: let it listen on a network that only your "
    "machines are on, and leave the firewall to whoever administers them."
)
_TUNNEL = "Let the service listen on 127.0.0.1, and reach it through `ssh -L`."
_KEYS_FIRST = (
    "Only once everybody who logs in here has a key may whoever administers the machine set "
    "PasswordAuthentication to no; until then it locks people out."
)
_SSHD_SERVICE = ("rhel", "rocky", "almalinux", "fedora", "centos", "sles", "arch")
"""Distributions whose service is called sshd."""

_DROP_IN = "/etc/ssh/sshd_config.d/00-keys-only.conf"


def _ssh_passwords(facts: CheckFacts) -> Judgement:
    sshd = facts.sshd
    reason = facts.missing.get("sshd", "not_told")
    if sshd is None and reason == "no_file":
        return not_applicable("no_ssh_server")
    if facts.ports is None:
        return not_checked("ports_not_told")
    wanted = _SSH_PORT if sshd is None else sshd.port
    if not any(port.number == wanted and not port.is_local for port in facts.ports):
        return not_applicable("no_ssh_server")
    if sshd is None:
        return not_checked(reason)
    if sshd.passwords is False:
        return clean({"file": sshd.file})
    told = "not told, which means yes" if sshd.passwords is None else "yes"
    return fires(
        Severity.WARNING,
        Certainty.CERTAIN if sshd.passwords else Certainty.LIKELY,
        seen={"file": sshd.file, "passwords": told},
        commands=_forbid_passwords(facts, sshd),
        advice=() if _forbid_passwords(facts, sshd) else (_KEYS_FIRST,),
    )


def _forbid_passwords(facts: CheckFacts, sshd: Sshd) -> tuple[Command, ...]:
    """Return the commands that forbid passwords, where that locks nobody out."""
    is_alone = facts.site.num_accounts == 1 and not facts.site.is_shared
    if not is_alone or not sshd.has_own_key:
        return ()
    mend = (
        f"echo 'PasswordAuthentication no' | sudo tee {_DROP_IN}"
        if sshd.has_drop_ins
        else f"sudo sed -i '1i PasswordAuthentication no' {sshd.file}"
    )
    service = "sshd" if facts.system.os_id in _SSHD_SERVICE else "ssh"
    return (
        by_administrator(mend, Disruption.LOGINS),
        by_administrator(f"sudo sshd -t && sudo systemctl reload {service}", Disruption.LOGINS),
    )


def _open_ports(facts: CheckFacts) -> Judgement:
    if facts.inventory.limits.container is not None:
        return not_applicable("container_has_its_own_network")
    if facts.ports is None:
        return not_checked("ports_not_told")
    numbers = sorted({p.number for p in facts.ports if not p.is_local} - {_SSH_PORT})
    known = [number for number in numbers if number in _KNOWN]
    if not numbers:
        return clean()
    if not known:
        # Only the owner knows whether each port should be open.
        return clean({"ports": " ".join(map(str, numbers))})
    return fires(
        Severity.WARNING,
        Certainty.POSSIBLE,
        seen={"ports": ", ".join(f"{number} ({_KNOWN[number]})" for number in known)},
        commands=(
            look_as_root(
                "sudo ss -ltnp '( " + " or ".join(f"sport = :{port}" for port in known) + " )'"
            ),
        ),
        advice=tuple(
            sentence
            for sentence, of in ((_MEETING, _MEETS), (_TUNNEL, _KNOWN.keys() - _MEETS))
            if of & set(known)
        ),
    )


CHECKS = (
    CheckRow(
        code="ssh_passwords",
        subject="security",
        title="SSH takes passwords",
        seen=("{file}: PasswordAuthentication is {passwords}", "the server listens"),
        why="Passwords of machines with GPUs are guessed all day long. First make sure that "
        "your key logs you in.",
        source="https://man.openbsd.org/sshd_config#PasswordAuthentication",
        judge=_ssh_passwords,
    ),
    CheckRow(
        code="ports_open",
        subject="security",
        title="services of a training box listen to the whole network",
        seen=("ports {ports}",),
        why="Some ask for no password: whoever reaches them reads the work, or runs code. A "
        "firewall may stand before them, which cannot be seen from here.",
        source="https://github.com/pytorch/pytorch/security/policy (distributed features)",
        judge=_open_ports,
    ),
)
