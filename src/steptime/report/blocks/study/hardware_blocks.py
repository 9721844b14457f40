"""Says what faster hardware would change: by Amdahl's law, from the parts of a step as written.

In: the waterfall of a run of the command. Out: blocks; none where the parts are not known for sure.
Each row is a bound: one resource is twice as fast, and all else takes the time that it took.

Source: Amdahl, Validity of the single processor approach (1967).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from steptime.core.units import format_percent, format_seconds, format_speedup
from steptime.diagnose.values.reach_values import Waterfall
from steptime.report.blocks.values import Block, CommandLine, Labeled, TableBlock
from steptime.tune.values.study_values import Study

RESOURCES: Mapping[str, tuple[str, ...]] = {
    "arithmetic (FLOP/s)": ("arithmetic", "ceiling", "precision", "shape", "recomputation"),
    "bandwidth of memory": ("bandwidth",),
    "a single core": ("launch", "script", "loss", "gradient_processing"),
    "reading and preparing data": ("input", "preprocessing"),
    "the link to the device": ("copies",),
    "the network": ("communication",),
}
"""What one can buy, and the parts of a step that wait for it. Operators that are slower than any
ceiling explains, and what nothing explains, are of none."""

_FACTOR = 2.0
_LEAST = 0.01
"""A resource that holds less than a hundredth of a step is left out."""


def unknown_hardware(waterfall: Waterfall | None, study: Study) -> list[Block]:
    """Say how to learn what hardware would change, where no run of the command says it yet."""
    if waterfall is not None and waterfall.missing is None:
        return []
    said = "Not known yet. It follows from the parts of a step, on a machine whose ceilings are "
    said += "measured. These commands find them, and write this page again:"
    run = f"steptime run -- {shlex.join(study.command)}"
    return [CommandLine(f"steptime machine\n{run}\nsteptime report {study.study_id}", lead=said)]


def hardware_table(waterfall: Waterfall | None, *, run_id: str | None) -> list[Block]:
    """Show what twice as much of each resource would give at most."""
    if waterfall is None or not is_sure(waterfall) or not waterfall.step_time_s:
        return []
    step_s = waterfall.step_time_s
    times = {p.name: p.time_s for p in waterfall.parts}
    held = {
        resource: sum(times.get(name, 0.0) for name in names)
        for resource, names in RESOURCES.items()
    }
    rows = [
        [resource, format_seconds(time_s), format_percent(time_s / step_s), _most(time_s / step_s)]
        for resource, time_s in sorted(held.items(), key=lambda item: -item[1])
        if time_s >= _LEAST * step_s
    ]
    run = f", run {run_id}" if run_id else ""
    said = (
        f"In the step as written ({format_seconds(step_s)}{run}), if one resource were twice as "
        "fast and all else the same:"
    )
    heading = ["resource", "holds", "share of a step", "speedup at most"]
    table = TableBlock(heading, rows, name="What hardware would change")
    return [Labeled("", said), table] if rows else []


def is_sure(waterfall: Waterfall) -> bool:
    """Return whether the parts are known, no ceiling is in doubt, and most is explained."""
    return bool(waterfall.parts) and waterfall.is_conclusive and not waterfall.provisional


def _most(fraction: float) -> str:
    return format_speedup(1 / (1 - fraction + fraction / _FACTOR))
