"""Checks how open the machine is: passwords over SSH, and ports that others can reach.

In: facts. Out: judgements. They rest on the server's configuration and the kernel's list of
listeners; nothing ever connects to a port.
"""

from __future__ import annotations

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_facts import CheckFacts
from steptime.machine.checks.check_row import (
    CheckRow,
    Judgement,
    clean,
    fires,
    not_applicable,
    not_checked,
)
from steptime.machine.values.check_values import Certainty

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
    mend = (
        f"echo 'PasswordAuthentication no' | sudo tee {_DROP_IN}"
        if sshd.has_drop_ins
        else f"sudo sed -i '1i PasswordAuthentication no' {sshd.file}"
    )
    told = "not told, which means yes" if sshd.passwords is None else "yes"
    return fires(
        Severity.WARNING,
        Certainty.CERTAIN if sshd.passwords else Certainty.LIKELY,
        seen={"file": sshd.file, "passwords": told},
        commands=(mend, "sudo sshd -t && sudo systemctl reload ssh"),
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
            "sudo ss -ltnp " + " or ".join(f"'sport = :{number}'" for number in known)
            if len(known) == 1
            else "sudo ss -ltnp",
            *(f"sudo ufw deny {number}/tcp" for number in known),
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
