"""Judges the facts with all checks.

In: facts. Out: a `MachineCheck` for each check, in the order of the subjects.
"""

from __future__ import annotations

from steptime.machine.checks.check_row import CheckRow, not_checked
from steptime.machine.checks.gpu import (
    device_checks,
    driver_checks,
    gpu_log_checks,
    gpu_use_checks,
    precision_checks,
)
from steptime.machine.checks.network import (
    interface_checks,
    network_checks,
    path_checks,
    port_checks,
    security_checks,
)
from steptime.machine.checks.node import (
    disk_checks,
    environment_checks,
    limit_checks,
    memory_checks,
)
from steptime.machine.checks.remedy import settle
from steptime.machine.checks.software import cache_checks, software_checks
from steptime.machine.checks.threads import core_checks, thread_checks
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import MachineCheck

CHECKS: tuple[CheckRow, ...] = (
    *driver_checks.CHECKS,
    *software_checks.CHECKS,
    *precision_checks.CHECKS,
    *thread_checks.CHECKS,
    *core_checks.CLOCK_CHECKS,
    *memory_checks.CHECKS,
    *core_checks.PROCESS_CHECKS,
    *limit_checks.CHECKS,
    *network_checks.CHECKS,
    *interface_checks.CHECKS,
    *port_checks.CHECKS,
    *path_checks.CHECKS,
    *device_checks.CHECKS,
    *gpu_use_checks.CHECKS,
    *gpu_log_checks.CHECKS,
    *environment_checks.CHECKS,
    *disk_checks.CHECKS,
    *cache_checks.CHECKS,
    *security_checks.CHECKS,
)
"""Every check, in the order of the subjects."""

ROWS = {row.code: row for row in CHECKS}
"""The checks by code, for their words."""


def judge(facts: CheckFacts) -> tuple[MachineCheck, ...]:
    """Return what every check says of the facts; a check with an error counts as not checked."""
    return tuple(_judge(row, facts) for row in CHECKS)


def _judge(row: CheckRow, facts: CheckFacts) -> MachineCheck:
    try:
        found = row.judge(facts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        found = not_checked("failed")
    return settle(found(code=row.code, subject=row.subject, source=row.source), facts)
