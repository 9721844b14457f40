"""All checks, judged.

In: facts. Out: a `Check` each, in the order of the subjects.
"""

from __future__ import annotations

from steptime.core.check import Check
from steptime.machine.checks import (
    devices,
    disk,
    environment,
    limits,
    memory,
    network,
    precision,
    security,
    software,
    threads,
)
from steptime.machine.checks._rule import Judgement, Rule, not_checked
from steptime.machine.checks.facts import Facts

_IN_CONTAINERS = ("container_without_gpus",)

RULES: tuple[tuple[str, Rule], ...] = tuple(
    ("container" if rule.code in _IN_CONTAINERS else subject, rule)
    for subject, rules in (
        ("software", software.RULES),
        ("precision", precision.RULES),
        ("threads", threads.RULES),
        ("memory", memory.RULES),
        ("limits", limits.RULES),
        ("network", network.RULES),
        ("devices", devices.RULES),
        ("environment", environment.RULES),
        ("disk", disk.RULES),
        ("security", security.RULES),
    )
    for rule in rules
)
"""Subject and rule of every check."""


def judge(facts: Facts) -> tuple[Check, ...]:
    """What every check says of the facts; one of ours that fails is not checked, no more."""
    return tuple(_judge(subject, rule, facts) for subject, rule in RULES)


def _judge(subject: str, rule: Rule, facts: Facts) -> Check:
    found: Judgement
    try:
        found = rule.judge(facts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        found = not_checked("failed")
    return Check(
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
