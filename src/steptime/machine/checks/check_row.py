"""What a check is made of: one row holds its rule, its words and its source.

The rows lie beside their rules, one file a subject; `run_checks` gathers them. `report` renders
their words and owns no others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_facts import CheckFacts, LastRun, Software
from steptime.machine.values.check_values import Certainty, CheckStatus, Cost, MachineCheck
from steptime.machine.values.inventory_values import Gpu

Value = str | int | float
Seen = Mapping[str, Value]

OWN = "own measurement: 2 cores with AVX-512 and AMX, torch 2.13 without GPU, small models"
"""Source of figures of ours; docs/how-to/check-the-machine.md says more."""

FAILURE = Cost(of="failure")


Judgement = partial[MachineCheck]
"""What a rule says of the facts: a check that lacks only what its row says of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check; no part has a default, so none can be forgotten.

    Attributes:
        code: its machine word, which is stable.
        subject: what it belongs to, as `MachineCheck.subject` has it.
        title: what is wrong where it fires, in a few words.
        seen: parts of a sentence on what was seen; in braces stands what the judgement saw. A part
            is said where all that it names was seen.
        why: why it matters.
        source: where the rule comes from.
        judge: looks at the facts. What mends it and what it costs depend on them, so the judgement
            has both.
    """

    code: str
    subject: str
    title: str
    seen: tuple[str, ...]
    why: str
    source: str
    judge: Callable[[CheckFacts], Judgement]


def fires(
    severity: Severity,
    certainty: Certainty,
    *,
    seen: Seen,
    cost: Cost | None = None,
    commands: tuple[str, ...] = (),
) -> Judgement:
    """It holds the training back, or may."""
    return partial(
        MachineCheck,
        status=CheckStatus.FIRES,
        seen=seen,
        severity=severity,
        certainty=certainty,
        cost=cost,
        commands=commands,
    )


def clean(seen: Seen | None = None) -> Judgement:
    """It was checked, and it is as it should be."""
    return partial(MachineCheck, status=CheckStatus.CLEAN, seen=seen or {})


def not_checked(reason: str) -> Judgement:
    """It could not be checked, and why, a machine word."""
    return partial(MachineCheck, status=CheckStatus.NOT_CHECKED, reason=reason)


def not_applicable(reason: str) -> Judgement:
    """There is nothing of the kind here, a machine word."""
    return partial(MachineCheck, status=CheckStatus.NOT_APPLICABLE, reason=reason)


# -- what several rules ask


def nvidia_gpus(facts: CheckFacts) -> tuple[Gpu, ...]:
    """GPUs of NVIDIA's, with a driver or without."""
    return tuple(gpu for gpu in facts.inventory.gpus if gpu.vendor == "nvidia")


def driven_gpus(facts: CheckFacts) -> tuple[Gpu, ...]:
    """Those that NVIDIA's driver speaks for."""
    return tuple(gpu for gpu in nvidia_gpus(facts) if gpu.has_driver)


def software_of(facts: CheckFacts) -> Software | Judgement:
    """What torch says, or the judgement that nobody could ask it."""
    if facts.software is not None:
        return facts.software
    return not_checked(facts.missing.get("software", "no_torch"))


def run_on_gpu(facts: CheckFacts) -> LastRun | Judgement:
    """The last run, if it trained on a GPU of NVIDIA's, or the judgement that none is known."""
    if not driven_gpus(facts):
        return not_applicable("no_nvidia_gpu")
    if facts.run is None:
        return not_checked("no_run")
    if facts.run.device != "cuda":
        return not_applicable("run_without_gpu")
    return facts.run


def version_of(text: str | None) -> tuple[int, ...]:
    """The numbers at the beginning of a version: (2, 13, 0) of `2.13.0+cpu`."""
    numbers: list[int] = []
    for part in (text or "").split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def is_on(value: str | None) -> bool:
    """Whether a variable's value switches on."""
    return (value or "").strip().lower() not in ("", "0", "false", "off", "no", "n")


def plural(num: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{num} {thing}" + ("" if num == 1 else "s")


def give_memory(facts: CheckFacts, size_bytes: int) -> str:
    """The command that gives this group so much memory, by who made the group."""
    gib = math.ceil(size_bytes / (1 << 30))
    container = facts.inventory.limits.container
    if "SLURM_JOB_ID" in facts.environment:
        return f"sbatch --mem={gib}G job.sh"
    if container == "kubernetes":
        return f"kubectl set resources deployment/NAME --limits=memory={gib}Gi"
    if container is None:
        return f"systemd-run --user --scope -p MemoryMax={gib}G python train.py"
    return f"docker update --memory {gib}g --memory-swap {gib}g CONTAINER"


def give_cores(facts: CheckFacts, num: int) -> str:
    """The command that gives this group so many cores, by who made the group."""
    container = facts.inventory.limits.container
    if "SLURM_JOB_ID" in facts.environment:
        return f"sbatch --cpus-per-task={num} job.sh"
    if container == "kubernetes":
        return f"kubectl set resources deployment/NAME --limits=cpu={num}"
    if container is None:
        return f"systemd-run --user --scope -p CPUQuota={num}00% python train.py"
    return f"docker update --cpus {num} CONTAINER"


def spans_machines(facts: CheckFacts) -> bool:
    """Whether something says that trainings here span several machines."""
    environment = facts.environment
    if facts.nccl_log is not None and (facts.nccl_log.num_nodes or 1) > 1:
        return True
    if _number(environment, "SLURM_NNODES") > 1 or _number(environment, "GROUP_WORLD_SIZE") > 1:
        return True
    if _number(environment, "WORLD_SIZE") > _number(environment, "LOCAL_WORLD_SIZE") > 0:
        return True
    words = " ".join(facts.run.measurement.command) if facts.run is not None else ""
    found = re.search(r"--n?nodes[= ](\d+)", words)
    return found is not None and int(found.group(1)) > 1


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdigit() else 0
