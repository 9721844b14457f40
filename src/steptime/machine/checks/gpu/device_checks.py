"""Checks NVIDIA GPUs as they are now: what holds their clocks down, errors, and the PCIe link.

In: facts. Out: judgements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from steptime.diagnose.values.finding import Severity
from steptime.machine.checks.check_row import (
    FAILURE,
    CheckRow,
    Judgement,
    Value,
    asked_gpus,
    clean,
    driven_gpus,
    fires,
    not_applicable,
    not_checked,
)
from steptime.machine.checks.gpu.gpu_log_checks import failed_gpus
from steptime.machine.checks.remedy import by_administrator, look, look_as_root
from steptime.machine.values.check_facts import CheckFacts, GpuState
from steptime.machine.values.check_values import Certainty, Command, Cost, Disruption

_SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
_PERSISTENCE = "https://docs.nvidia.com/deploy/driver-persistence/overview.html"
_MEMORY_ERRORS = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
_CAP_OF_SITE = (
    "Somebody with the right to do so set this limit, perhaps because the rack has no more power "
    "or cooling: ask whoever administers the machine."
)
_CLOCKS_OF_SITE = "Whoever administers the machine may have fixed the clocks: ask before."
_LINK = (
    "Look again while the GPU copies. A link that stays narrow is mended at the hardware: the "
    "slot, a riser, or the board's settings."
)
_HOT = ("thermal", "hardware", "power_brake")
_START = Cost(of="start", unit="s", low=1.0, high=3.0, source=_PERSISTENCE)
_MIN_BUSY = 0.1  # a link may narrow itself while it sleeps
_MIN_POWER = 0.98  # below it, somebody set the limit: it is not rounding


def _states(facts: CheckFacts) -> tuple[GpuState, ...] | Judgement:
    asked = asked_gpus(facts)
    if isinstance(asked, partial):
        return asked
    return facts.gpu_states or not_checked("driver_gave_no_answer")


def _list(states: Sequence[GpuState]) -> str:
    return ",".join(str(state.index) for state in states)


def _throttled(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    slowed = _slowed_in_run(facts)
    if slowed is not None:
        return slowed
    told = [state for state in states if state.held_down is not None]
    if not told:
        return not_checked("not_told")
    hot = [state for state in told if set(state.held_down or ()) & set(_HOT)]
    if not hot:
        return clean({"num_gpus": len(told)})
    seen: dict[str, Value] = {
        "gpus": _list(hot),
        "reasons": ", ".join(sorted({w for s in hot for w in s.held_down or () if w in _HOT})),
    }
    heat = [state.temperature_c for state in hot if state.temperature_c is not None]
    if heat:
        seen["temperature_c"] = max(heat)
    return fires(
        Severity.WARNING,
        Certainty.CERTAIN,
        seen=seen,
        commands=(look(f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {_list(hot)}"),),
    )


def _slowed_in_run(facts: CheckFacts) -> Judgement | None:
    """Judge by the last run: what holds the clock down now may differ from what did then."""
    shifts = facts.run.diagnosis.shifts if facts.run is not None else ()
    found = [shift for shift in shifts if shift.causes[:1] == ("throttle",)]
    if not found:
        return None
    worst = max(found, key=lambda shift: shift.ratio.estimate)
    return fires(
        Severity.WARNING,
        Certainty.CERTAIN,
        seen={"step": worst.index, "rank": worst.rank},
        cost=Cost(
            of="step", low=worst.ratio.low, high=worst.ratio.high, source="the last run here"
        ),
        commands=(look("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),),
    )


def _power_limit(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    told = [s for s in states if s.power_limit_w and s.default_power_limit_w]
    if not told:
        return not_checked("not_told")
    low = [s for s in told if _power_fraction(s) < _MIN_POWER]
    if not low:
        return clean({"num_gpus": len(told)})
    first = low[0]
    return fires(
        Severity.WARNING,
        Certainty.LIKELY,
        seen={
            "gpus": _list(low),
            "limit_w": round(first.power_limit_w or 0),
            "default_w": round(first.default_power_limit_w or 0),
        },
        commands=_raise_limits(facts, low),
        advice=() if _raise_limits(facts, low) else (_CAP_OF_SITE,),
    )


def _raise_limits(facts: CheckFacts, low: Sequence[GpuState]) -> tuple[Command, ...]:
    """Return the commands that raise the limits, where the machine is nobody else's.

    What was asked for must be what is enforced: a cap that another controller holds stays, whatever
    the driver is told. What sets a limit at each start is a decision of the site's.
    """
    is_cap_of_driver = all(
        s.requested_power_limit_w is not None and s.requested_power_limit_w == s.power_limit_w
        for s in low
    )
    is_allowed = all((s.max_power_limit_w or 0) >= (s.default_power_limit_w or 0) for s in low)
    if not is_cap_of_driver or not is_allowed or not _is_own(facts):
        return ()
    return tuple(
        by_administrator(
            f"sudo nvidia-smi -i {s.index} -pl {round(s.default_power_limit_w or 0)}",
            Disruption.MACHINE,
        )
        for s in low
    )


def _is_own(facts: CheckFacts) -> bool:
    """Return whether no site is known that sets the GPUs up for its own reasons."""
    if facts.inventory.limits.container is not None:  # which does not see the host's files
        return False
    return not facts.site.is_shared and not facts.system.gpu_settings_at_start


def _power_fraction(state: GpuState) -> float:
    return (state.power_limit_w or 0.0) / (state.default_power_limit_w or 1.0)


def _clocks_set(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    low = [s for s in states if s.clock_mhz and (s.default_clock_mhz or 0) > s.clock_mhz]
    locked = [s for s in states if "clock_setting" in (s.held_down or ())]
    if not low and not locked:
        if not any(s.clock_mhz or s.held_down is not None for s in states):
            return not_checked("not_told")
        return clean()
    found = low or locked
    seen: dict[str, Value] = {"gpus": _list(found)}
    cost = None
    if low:
        now, usual = low[0].clock_mhz or 1, low[0].default_clock_mhz or 1
        seen |= {"clock_mhz": now, "default_clock_mhz": usual}
        cost = Cost(of="matmul", low=1.0, high=usual / now, source="ratio of the clocks here")
    # Clocks at their default can have this reason too.
    return fires(
        Severity.WARNING if low else Severity.INFO,
        Certainty.LIKELY if low else Certainty.POSSIBLE,
        seen=seen,
        cost=cost,
        commands=_reset_clocks(facts, found, is_low=bool(low)),
        advice=() if _is_own(facts) else (_CLOCKS_OF_SITE,),
    )


def _reset_clocks(
    facts: CheckFacts, found: Sequence[GpuState], *, is_low: bool
) -> tuple[Command, ...]:
    if not _is_own(facts):
        return (look(f"nvidia-smi -q -d CLOCK -i {_list(found)}"),)
    what = "--reset-applications-clocks" if is_low else "--reset-gpu-clocks"
    return (by_administrator(f"sudo nvidia-smi -i {_list(found)} {what}", Disruption.MACHINE),)


def _persistence_off(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    told = [state for state in states if state.persistence is not None]
    if not told:
        return not_checked("not_told")
    off = [state for state in told if not state.persistence]
    if not off:
        return clean({"num_gpus": len(told)})
    return fires(
        Severity.INFO,
        Certainty.LIKELY,
        seen={"gpus": _list(off)},
        cost=_START,
        commands=(
            by_administrator("sudo systemctl enable --now nvidia-persistenced", Disruption.MACHINE),
        ),
    )


def _memory_errors(facts: CheckFacts) -> Judgement:
    states = _states(facts)
    if isinstance(states, partial):
        return states
    told = [s for s in states if s.num_uncorrected is not None or s.rows_pending is not None]
    if not told:
        return not_applicable("no_ecc")
    bad = [s for s in told if s.num_uncorrected or s.num_ever or s.rows_pending or s.rows_failed]
    if not bad:
        return clean({"num_gpus": len(told)})
    is_dead = any(state.rows_failed for state in bad)
    is_pending = any(state.rows_pending for state in bad)
    num_now = sum(state.num_uncorrected or 0 for state in bad)
    severity = Severity.INFO  # past errors, whose rows were replaced
    if is_pending:
        severity = Severity.WARNING
    if is_dead or num_now:
        severity = Severity.CRITICAL
    return fires(
        severity,
        Certainty.POSSIBLE if severity is Severity.INFO else Certainty.CERTAIN,
        seen={
            "gpus": _list(bad),
            "num_uncorrected": num_now,
            "num_ever": sum(state.num_ever or 0 for state in bad),
            "rows": "failed" if is_dead else "pending" if is_pending else "none",
        },
        cost=None if severity is Severity.INFO else FAILURE,
        commands=(
            look(f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {_list(bad)}"),
            *_reset(facts, bad),
        ),
        advice=(_after_errors(facts, bad),),
    )


def _reset(facts: CheckFacts, bad: Sequence[GpuState]) -> tuple[Command, ...]:
    """Return the commands that reset GPUs: only idle ones, on their own, whose rows wait for it."""
    linked = {
        end
        for link in facts.inventory.links
        if link.kind.startswith("NV")
        for end in (link.first, link.second)
    }
    waiting = [s for s in bad if s.rows_pending and not s.rows_failed]
    if not waiting or not all(s.is_idle and f"GPU{s.index}" not in linked for s in waiting):
        return ()
    line = f"sudo nvidia-smi --gpu-reset -i {_list(waiting)}"
    return (by_administrator(line, Disruption.TRAININGS),)


def _after_errors(facts: CheckFacts, bad: Sequence[GpuState]) -> str:
    if any(state.rows_failed for state in bad):
        return "Take the GPU out of use: its vendor replaces it."
    if all(state.rows_pending is None for state in bad):
        return "Such a GPU retires pages: `nvidia-smi -q -d PAGE_RETIREMENT` lists those that wait."
    places = {gpu.bus_id for gpu in driven_gpus(facts) if gpu.index in {s.index for s in bad}}
    if places & failed_gpus(facts):
        return "The driver reported a fault of this GPU in the kernel's log: see gpu_errors_logged."
    if not any(state.rows_pending for state in bad):
        return "No row waits for a reset. If the numbers grow, the GPU is a case for its vendor."
    if _reset(facts, bad):
        return "The rows are replaced by the reset."
    return (
        "The rows are replaced at the next reset, or restart of the machine: not before its "
        "trainings have ended, and together with the GPUs that it has NVLinks to."
    )


def _narrow_link(facts: CheckFacts) -> Judgement:
    gpus = [gpu for gpu in facts.inventory.gpus if gpu.pcie_width and gpu.max_pcie_width]
    if not gpus:
        return not_checked("not_told") if facts.inventory.gpus else not_applicable("no_gpu")
    narrow = [gpu for gpu in gpus if (gpu.pcie_width or 0) < (gpu.max_pcie_width or 0)]
    if not narrow:
        return clean({"width": f"x{gpus[0].pcie_width}"})
    first = narrow[0]
    width, best = first.pcie_width or 1, first.max_pcie_width or 1
    awake = {s.index for s in facts.gpu_states if (s.busy_fraction or 0.0) >= _MIN_BUSY}
    is_awake = any(gpu.index in awake for gpu in narrow)
    return fires(
        Severity.WARNING if is_awake else Severity.INFO,
        Certainty.CERTAIN if is_awake else Certainty.POSSIBLE,
        seen={
            "gpus": ",".join(str(gpu.index) for gpu in narrow),
            "width": f"x{width}",
            "max_width": f"x{best}",
        },
        cost=Cost(of="copies", low=1.0, high=best / width, source="number of lanes here"),
        commands=()
        if first.bus_id is None
        else (look_as_root(f"sudo lspci -vv -s {first.bus_id} | grep -E 'LnkCap|LnkSta'"),),
        advice=(_LINK,),
    )


CHECKS = (
    CheckRow(
        code="clocks_held_down",
        subject="devices",
        title="GPUs hold their clocks down",
        seen=(
            "GPU {gpus}",
            "{reasons}",
            "{temperature_c} °C",
            "in the last run from step {step} of rank {rank} on",
        ),
        why="Heat, a fault, or a brake on power makes them slower; one slow GPU holds up all "
        "ranks.",
        source=_SMI,
        judge=_throttled,
    ),
    CheckRow(
        code="power_limit_lowered",
        subject="devices",
        title="the power limit is below the default",
        seen=("GPU {gpus}", "{limit_w} W, by default {default_w} W"),
        why="Under full load the clock follows the power it may draw.",
        source=_SMI,
        judge=_power_limit,
    ),
    CheckRow(
        code="clocks_set_low",
        subject="devices",
        title="clocks were set below the default",
        seen=("GPU {gpus}", "{clock_mhz} MHz, by default {default_clock_mhz} MHz"),
        why="Fixed clocks make measurements steady, and work slow.",
        source=_SMI,
        judge=_clocks_set,
    ),
    CheckRow(
        code="persistence_off",
        subject="devices",
        title="persistence mode is off",
        seen=("GPU {gpus}",),
        why="The driver lets go of a GPU that no process uses, and sets it up again at each start; "
        "clocks and limits that were set are lost.",
        source=_PERSISTENCE,
        judge=_persistence_off,
    ),
    CheckRow(
        code="memory_errors",
        subject="devices",
        title="a GPU has memory errors that could not be corrected",
        seen=(
            "GPU {gpus}",
            "{num_uncorrected} uncorrected since the driver was loaded, {num_ever} ever",
            "rows to be replaced: {rows}",
        ),
        why="The process that meets one ends. Pending replacements are made at the next reset; "
        "failed ones are a case for the vendor.",
        source=_MEMORY_ERRORS,
        judge=_memory_errors,
    ),
    CheckRow(
        code="pcie_link_narrow",
        subject="devices",
        title="a GPU's PCIe link has fewer lanes than it could",
        seen=("GPU {gpus}", "{width} of {max_width}"),
        why="Copies from and to the host, and between GPUs without NVLink, take longer in "
        "proportion. A link that sleeps may be narrow for the moment.",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html (PCIe link width)",
        judge=_narrow_link,
    ),
)
