"""Checks what the driver wrote to the kernel's log of its GPUs: Xid errors, by what they mean.

In: facts. Out: judgements. Errors of a day ago or more are remarks: whoever runs the node has
mostly seen to them, and a GPU that works is not to be reset for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
    nvidia_gpus,
    plural,
    unasked,
)
from steptime.machine.checks.remedy import by_user, look, look_as_root
from steptime.machine.values.check_facts import CheckFacts
from steptime.machine.values.check_values import Certainty, Command, Disruption
from steptime.machine.values.node_facts import XidCount

_XIDS = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

_FIRST_SXID = 10_000  # numbers of GPUs have three digits, those of NVSwitches five

_RECENT_S = 86_400.0
"""A day: what is older was seen by whoever watches the node, and the GPU has worked since."""

_OFF_THE_BUS = 79
_GRAVE = {
    48: "memory error that could not be corrected",
    61: "the GPU's own controller stopped",
    62: "the GPU's own controller halted",
    64: "a row of memory could not be replaced",
    95: "memory error that reached other programs",
    119: "the GPU's system processor gave no answer",
    120: "error of the GPU's system processor",
    140: "memory error that was not recovered",
}
_MILDER = {
    63: "a row of memory is to be replaced",
    74: "error of an NVLink",
    92: "many corrected memory errors",
    94: "memory error that ended one program",
}
_OFTEN = 3  # of the milder ones within a day: a link or a memory that fails, not an accident
_MEMORY = (48, 63, 64, 92, 94, 95, 140)
_NVLINK = 74
_UNCONTAINED = 95
_OF_PROGRAM = {
    8: "the GPU waited too long for a program",
    13: "a kernel did what is not allowed",
    31: "a kernel read or wrote memory that is not its own",
    43: "a program's channel was stopped",
}
_ADVISED = 154
"""The driver's own word on what the GPU needs: `GPU recovery action changed from ... to ...`."""

_RESET = (
    "Whoever administers the machine may reset the GPU after the trainings on it have ended; where "
    "the error comes back it is a case for the vendor."
)
_COUNTERS = (
    "The GPU's own counters say whether it needs a reset: see memory_errors. The training that met "
    "the error has to be started again."
)
_RESTART = (
    "A GPU that is off the bus comes back with a restart of the machine, some only after the power "
    "was off; where it falls off again, its seat, power, cooling or the card itself is at fault."
)


def failed_gpus(facts: CheckFacts) -> set[str]:
    """Return the bus ids of GPUs that need a reset for faults of the last day.

    Of errors that stayed within rows of memory, the GPU's own counters say whether it does.
    """
    log = facts.node.kernel_log
    found = [] if log is None else _own(log.xids, facts)
    return {
        one.bus_id
        for one in found
        if one.code in (*_GRAVE, _OFF_THE_BUS) and not _is_contained(one) and _is_recent([one])
    }


def _off_the_bus(facts: CheckFacts) -> Judgement:
    """Judge by the driver, which answers for a GPU or not; the log says which one it is."""
    if not nvidia_gpus(facts):
        return not_applicable("no_nvidia_gpu")
    log = facts.node.kernel_log
    fallen = [] if log is None else [o for o in _own(log.xids, facts) if o.code == _OFF_THE_BUS]
    answering = {gpu.bus_id for gpu in driven_gpus(facts)}
    is_silent = facts.inventory.missing.get("gpus") == "some_do_not_answer"
    if not answering:
        if not fallen:
            return not_checked(unasked(facts))
        is_silent = True
    if not fallen and not is_silent:
        return clean({"num_gpus": len(answering)})
    lost = [one.bus_id for one in fallen if one.bus_id not in answering]
    is_lost = is_silent or bool(lost)
    if not is_lost and not _is_recent(fallen):
        return clean({"num_gpus": len(answering)})
    seen: dict[str, Value] = _what(fallen)
    if is_lost:
        seen["silent"] = " ".join(lost) or "at least one"
    return fires(
        Severity.CRITICAL if is_lost else Severity.WARNING,
        Certainty.CERTAIN if is_lost else Certainty.LIKELY,
        seen=seen,
        cost=FAILURE,
        commands=(look("nvidia-smi -L"), look_as_root("sudo dmesg -T | grep -i xid | tail -20")),
        advice=(_RESTART,),
    )


def _hardware_errors(facts: CheckFacts) -> Judgement:
    log = facts.node.kernel_log
    if not nvidia_gpus(facts):
        return not_applicable("no_nvidia_gpu")
    if log is None:
        return not_checked(facts.missing.get("kernel_log", "not_told"))
    xids = _own(log.xids, facts)
    bad = [*(one for one in xids if one.code in _GRAVE or one.code in _MILDER), *log.sxids]
    if not bad:
        return clean(_covers(facts))
    now = [one for one in bad if _is_recent([one])]
    # A fatal error of a switch stops the programs on all GPUs that it connects.
    is_grave = any(one.code in _GRAVE or one.num >= _OFTEN or one in log.sxids for one in now)
    severity = Severity.INFO
    if now:
        severity = Severity.CRITICAL if is_grave else Severity.WARNING
    shown = now or bad
    seen = _what(shown)
    seen["meaning"] = "; ".join(sorted({_meaning(one.code) for one in shown}))
    advised = [one.words for one in xids if one.code == _ADVISED and _is_recent([one])]
    if now and advised:
        seen["driver_says"] = advised[-1]
    return fires(
        severity,
        Certainty.LIKELY if now else Certainty.POSSIBLE,
        seen=seen,
        cost=FAILURE if now else None,
        commands=_looks(facts, shown),
        advice=_after(now),
    )


def _after(now: Sequence[XidCount]) -> tuple[str, ...]:
    """Return what to do: of errors that stayed within rows of memory, the counters decide."""
    if not now:
        return ()
    return (_COUNTERS,) if all(map(_is_contained, now)) else (_RESET,)


def _is_contained(one: XidCount) -> bool:
    return one.code in _MEMORY and one.code != _UNCONTAINED


def _looks(facts: CheckFacts, shown: Sequence[XidCount]) -> tuple[Command, ...]:
    """Return the commands that show the GPU's own counters of such errors."""
    commands = []
    memory = _indices(facts, [one for one in shown if one.code in _MEMORY])
    if memory:
        commands.append(look(f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {memory}"))
    links = _indices(facts, [one for one in shown if one.code == _NVLINK])
    if links:
        commands.append(look(f"nvidia-smi nvlink -e -i {links}"))
    return (*commands, look_as_root("sudo dmesg -T | grep -i xid | tail -20"))


def _program_errors(facts: CheckFacts) -> Judgement:
    log = facts.node.kernel_log
    if not nvidia_gpus(facts):
        return not_applicable("no_nvidia_gpu")
    if log is None:
        return not_checked(facts.missing.get("kernel_log", "not_told"))
    # Where a GPU failed, the programs on it are stopped: those errors are not theirs.
    failed = {one.bus_id for one in log.xids if one.code in _GRAVE or one.code == _OFF_THE_BUS}
    found = [
        one
        for one in _own(log.xids, facts)
        if one.code in _OF_PROGRAM and one.bus_id not in failed and _is_recent([one])
    ]
    if not found:
        return clean(_covers(facts))
    return fires(
        Severity.INFO,
        Certainty.POSSIBLE,
        seen={**_what(found), "meaning": "; ".join(sorted({_meaning(one.code) for one in found}))},
        cost=FAILURE,
        commands=(by_user("compute-sanitizer --tool memcheck python train.py", Disruption.LOAD),),
        advice=(
            "The program may be another user's. If programs without a fault end so on one GPU and "
            "not on others, that GPU is suspect.",
        ),
    )


def _own(xids: Sequence[XidCount], facts: CheckFacts) -> list[XidCount]:
    """Return the errors of GPUs that this shell may use.

    The log of a node names all its GPUs, those of other jobs and containers too. Where one of ours
    does not answer, it is among those that are not known here.
    """
    is_part = facts.site.in_job or facts.inventory.limits.container is not None
    if not is_part or facts.inventory.missing.get("gpus") == "some_do_not_answer":
        return list(xids)
    known = {gpu.bus_id for gpu in nvidia_gpus(facts)}
    return [one for one in xids if one.bus_id in known]


def _is_recent(found: Sequence[XidCount]) -> bool:
    """Return whether one is younger than a day; without a time it counts as recent."""
    return any(one.last_age_s is None or one.last_age_s <= _RECENT_S for one in found)


def _meaning(code: int) -> str:
    words = _GRAVE.get(code) or _MILDER.get(code) or _OF_PROGRAM.get(code)
    return f"{code}: {words or 'fatal error of an NVSwitch'}"


def _kind(code: int) -> str:
    return "Xid" if code < _FIRST_SXID else "SXid"


def _what(found: Sequence[XidCount]) -> dict[str, Value]:
    """Return which GPUs, which errors, how often and how long ago."""
    if not found:
        return {}
    numbers = [
        f"{_kind(one.code)} {one.code} on {one.bus_id}, {plural(one.num, 'time')}" for one in found
    ]
    seen: dict[str, Value] = {"errors": "; ".join(numbers)}
    ages = [one.last_age_s for one in found if one.last_age_s is not None]
    if ages:
        seen["age_s"] = round(min(ages))
    return seen


def _covers(facts: CheckFacts) -> dict[str, Value]:
    log = facts.node.kernel_log
    if log is None or log.covers_s is None:
        return {}
    return {"covers_s": round(log.covers_s)}


def _indices(facts: CheckFacts, found: Sequence[XidCount]) -> str:
    wanted = {one.bus_id for one in found}
    return ",".join(str(gpu.index) for gpu in driven_gpus(facts) if gpu.bus_id in wanted)


CHECKS = (
    CheckRow(
        code="gpu_off_the_bus",
        subject="devices",
        title="a GPU has fallen off the bus",
        seen=(
            "{silent} does not answer",
            "{errors}",
            "the last one {age_s} ago",
            "{num_gpus} answer",
        ),
        why="The driver no longer reaches it. Programs that use it end or hang, and a job that "
        "counts on all GPUs does not begin.",
        source=_XIDS,
        judge=_off_the_bus,
    ),
    CheckRow(
        code="gpu_errors_logged",
        subject="devices",
        title="the driver reported faults of a GPU",
        seen=(
            "{errors}",
            "the last one {age_s} ago",
            "{meaning}",
            "{driver_says}",
            "the log goes back {covers_s}",
        ),
        why="Memory, NVLink or the GPU's own processors failed. The program that met it has ended, "
        "and until a reset the next one may.",
        source=_XIDS,
        judge=_hardware_errors,
    ),
    CheckRow(
        code="program_errors_logged",
        subject="devices",
        title="programs on a GPU were ended for their own errors",
        seen=("{errors}", "the last one {age_s} ago", "{meaning}", "the log goes back {covers_s}"),
        why="Most often a kernel reads past the end of an array; the hardware is seldom at fault.",
        source=_XIDS,
        judge=_program_errors,
    ),
)
