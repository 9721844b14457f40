"""The wording of what happened in the course of a run: it stood still, or its steps changed.

In braces stands the evidence of that name. `words` has the wording of all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_SHIFT = (
    "from step {shift_step} on a step takes {shift_after}, before it took {shift_before}: "
    "{shift_ratio} as long (95 % interval {shift_low} to {shift_high})."
)

# What changed with the step time, in the order of docs/explanation/diagnosis.md.
SHIFT_CAUSES: Mapping[str, str] = {
    "shift_throttle": "Since then the device holds its clock down: power, heat or a setting.",
    "shift_device_clock": "The device's clock is at {device_clock_after} of what it was.",
    "shift_neighbor": (
        "Since then other programs keep {neighbor_after} cores busy, before {neighbor_before}."
    ),
    "shift_cpu_clock": "The clock of the cores is at {cpu_clock_after} of what it was.",
    "shift_swap": "Since then {swap_after} a second come from swap, before {swap_before}.",
    "shift_page_cache": (
        "Since then the run reads its data from storage: the page cache has {page_cache_after}, "
        "before {page_cache_before}."
    ),
    "shift_memory": "Since then {memory_after} of memory are left, before {memory_before}.",
    "shift_disk": "The run reads {disk_after} a second from storage, before {disk_before}.",
    "shift_input_size": (
        "Since then a step has {input_size_after} the work: larger inputs, or another stage."
    ),
    "shift_phase": "It shows in {phase_name}: {phase_after}, before {phase_before}.",
}

CHANGES: Mapping[str, str] = {
    "throttle": "what holds the device's clock down",
    "device_clock": "the device's clock",
    "neighbor": "the cores that other programs keep busy",
    "cpu_clock": "the clock of the cores",
    "swap": "reads from swap",
    "page_cache": "the page cache, and reads from storage",
    "memory": "the memory that is left",
    "disk": "reads from storage",
    "input_size": "the work of a step",
}
"""What changed with a shift, by the words of `Shift.causes`; steps may be longer or shorter."""

CHANGE_FACTS: Mapping[str, str] = {
    "stall": (
        "no step came for {stall_time}, where one usually takes {usual_step}; the run stood still "
        "after step {stalled_after}."
    ),
    "stalled_rank": (
        "no step came for {stall_time}, where one usually takes {usual_step}: after step "
        "{stalled_after} the others waited for rank {culprit_rank}."
    ),
    "shift": _SHIFT,
    **dict.fromkeys(SHIFT_CAUSES, _SHIFT),
}

CHANGE_TITLES: Mapping[str, str] = {
    "stall": "stalled",
    "stalled_rank": "stalled",
    **dict.fromkeys(("shift", *SHIFT_CAUSES), "changed"),
}


def phase_names(values: Mapping[str, str], describe: Callable[[str], str]) -> dict[str, str]:
    """The evidence of the phase that a change shows in, under general names; none without one."""
    for name in values:
        if name.startswith("phase_") and name.endswith("_after"):
            phase = name.removeprefix("phase_").removesuffix("_after")
            return {
                "phase_name": describe(phase),
                "phase_before": values[f"phase_{phase}_before"],
                "phase_after": values[name],
            }
    return {}
