"""Defines what a check is made of: one row holds its rule, its words and its source.

The rows are beside their rules, in one file per subject; `run_checks` gathers them. `report` shows
their words and has none of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.values.check_facts import CheckFacts, LastRun, Software
from steptime.machine.values.check_values import (
    Certainty,
    CheckStatus,
    Command,
    Cost,
    MachineCheck,
)
from steptime.machine.values.inventory_values import Gpu
from steptime.record.numbers_told import whole_number_in

Value = str | int | float
Seen = Mapping[str, Value]

OWN = "own measurement: 2 cores with AVX-512 and AMX, torch 2.13 without GPU, small models"
"""Source of our own figures; docs/how-to/check-the-machine.md says more."""

FAILURE = Cost(of="failure")


Judgement = partial[MachineCheck]
"""What a rule says of the facts: a check without the words that its row holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check; no part has a default, so that none can be forgotten.

    Attributes:
        code: its stable machine word.
        subject: the subject that it belongs to, as in `MachineCheck.subject`.
        title: what is wrong where it fires, in a few words.
        seen: parts of a sentence on what was seen, with names of what the judgement saw in braces.
            A part is shown where everything that it names was seen.
        why: why it matters.
        source: where the rule comes from.
        judge: the rule, which judges the facts. The remedy and the cost depend on them, so the
            judgement has both.
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
    commands: tuple[Command, ...] = (),
    advice: tuple[str, ...] = (),
) -> Judgement:
    """Return the judgement that it slows the training down, or may do so.

    A command is for what is certain to be right here; everything else is advice, in sentences.
    """
    return partial(
        MachineCheck,
        status=CheckStatus.FIRES,
        seen=seen,
        severity=severity,
        certainty=certainty,
        cost=cost,
        commands=commands,
        advice=advice,
    )


def clean(seen: Seen | None = None) -> Judgement:
    """Return the judgement that it was checked, and is as it should be."""
    return partial(MachineCheck, status=CheckStatus.CLEAN, seen=seen or {})


def not_checked(reason: str) -> Judgement:
    """Return the judgement that it could not be checked, with a machine word for the reason."""
    return partial(MachineCheck, status=CheckStatus.NOT_CHECKED, reason=reason)


def not_applicable(reason: str) -> Judgement:
    """Return the judgement that there is nothing of the kind here, with a machine word."""
    return partial(MachineCheck, status=CheckStatus.NOT_APPLICABLE, reason=reason)


# -- facts that several rules need


def nvidia_gpus(facts: CheckFacts) -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs, with a driver or without."""
    return tuple(gpu for gpu in facts.inventory.gpus if gpu.vendor == "nvidia")


def driven_gpus(facts: CheckFacts) -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver reports."""
    return tuple(gpu for gpu in nvidia_gpus(facts) if gpu.has_driver)


def asked_gpus(facts: CheckFacts) -> tuple[Gpu, ...] | Judgement:
    """Return the GPUs that NVIDIA's driver reports, or the judgement that there are none to ask."""
    if not nvidia_gpus(facts):
        return not_applicable("no_nvidia_gpu")
    if driven_gpus(facts):
        return driven_gpus(facts)
    return not_checked(unasked(facts))


def unasked(facts: CheckFacts) -> str:
    """Return why no GPU of NVIDIA's could be asked, a machine word."""
    has_binding = facts.inventory.missing.get("gpus") != "no_binding"
    return "driver_gave_no_answer" if has_binding else "no_binding"


def own_gpus(facts: CheckFacts) -> tuple[Gpu, ...]:
    """Return the GPUs that this shell may use: those of CUDA_VISIBLE_DEVICES, else all.

    Of an instance of a divided GPU it is not known here which GPU it is a part of.
    """
    gpus = driven_gpus(facts)
    value = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if value is None or value.startswith("MIG-"):
        return gpus
    found = []
    for word in map(str.strip, value.split(",")):
        one = next((gpu for gpu in gpus if _is_named(gpu, word)), None)
        if one is None:  # CUDA ends the list at the first that is none
            break
        found.append(one)
    return tuple(found)


def _is_named(gpu: Gpu, word: str) -> bool:
    if word.startswith("GPU-"):
        return (gpu.uuid or "").startswith(word)
    return word == str(gpu.index)


def software_of(facts: CheckFacts) -> Software | Judgement:
    """Return what torch reports, or the judgement that it could not be asked."""
    if facts.software is not None:
        return facts.software
    return not_checked(facts.missing.get("software", "no_torch"))


def run_on_gpu(facts: CheckFacts) -> LastRun | Judgement:
    """Return the last run if it trained on an NVIDIA GPU, or the judgement that none is known."""
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    if facts.run is None:
        return not_checked("no_run")
    if facts.run.device != "cuda":
        return not_applicable("run_without_gpu")
    return facts.run


def version_of(text: str | None) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version: (2, 13, 0) of `2.13.0+cpu`."""
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
    """Return whether a variable's value turns something on."""
    return (value or "").strip().lower() not in ("", "0", "false", "off", "no", "n")


def plural(num: int, thing: str) -> str:
    """Return a number with its noun: `1 GPU`, `2 GPUs`."""
    return f"{num} {thing}" + ("" if num == 1 else "s")


def spans_machines(facts: CheckFacts) -> bool:
    """Return whether something says that trainings here span several machines."""
    environment = facts.environment
    if facts.nccl_log is not None and (facts.nccl_log.num_nodes or 1) > 1:
        return True
    if _number(environment, "SLURM_NNODES") > 1 or _number(environment, "GROUP_WORLD_SIZE") > 1:
        return True
    if _number(environment, "WORLD_SIZE") > _number(environment, "LOCAL_WORLD_SIZE") > 0:
        return True
    words = " ".join(facts.run.measurement.command) if facts.run is not None else ""
    found = re.search(r"--n?nodes[= ](\d+)", words)
    return found is not None and (whole_number_in(found.group(1)) or 0) > 1


def _number(environment: Mapping[str, str], name: str) -> int:
    return whole_number_in(environment.get(name)) or 0
