"""All checks, judged.

In: facts. Out: a `MachineCheck` each, in the order of the subjects.
"""

from __future__ import annotations

from steptime.machine.checks import (
    device_checks,
    disk_checks,
    environment_checks,
    limit_checks,
    memory_checks,
    network_checks,
    precision_checks,
    security_checks,
    software_checks,
    thread_checks,
)
from steptime.machine.checks._rule import Judgement, Rule, not_checked
from steptime.machine.checks.check_facts import CheckFacts
from steptime.machine.values.check_values import MachineCheck

_IN_CONTAINERS = ("container_without_gpus",)

RULES: tuple[tuple[str, Rule], ...] = tuple(
    ("container" if rule.code in _IN_CONTAINERS else subject, rule)
    for subject, rules in (
        ("software", software_checks.RULES),
        ("precision", precision_checks.RULES),
        ("threads", thread_checks.RULES),
        ("memory", memory_checks.RULES),
        ("limits", limit_checks.RULES),
        ("network", network_checks.RULES),
        ("devices", device_checks.RULES),
        ("environment", environment_checks.RULES),
        ("disk", disk_checks.RULES),
        ("security", security_checks.RULES),
    )
    for rule in rules
)
"""Subject and rule of every check."""


def judge(facts: CheckFacts) -> tuple[MachineCheck, ...]:
    """What every check says of the facts; one of ours that fails is not checked, no more."""
    return tuple(_judge(subject, rule, facts) for subject, rule in RULES)


def _judge(subject: str, rule: Rule, facts: CheckFacts) -> MachineCheck:
    found: Judgement
    try:
        found = rule.judge(facts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        found = not_checked("failed")
    return MachineCheck(
        code=rule.code,
        subject=subject,
        status=found.status,
        source=rule.source,
        seen=found.seen,
        reason=found.reason,
        severity=found.severity,
        certainty=found.certainty,
        cost=found.cost,
        commands=found.commands,
    )
