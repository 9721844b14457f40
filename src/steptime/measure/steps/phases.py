"""Divides the steady window's time into phases, and says which phases were not observed.

In: steps, and the windows chosen from them. Out: a `Phase` for each name. A phase that was not
observed is null with a machine word; its time, if there is any, counts as `other`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steptime.core.stats import weighted_median
from steptime.measure.steps.steady_window import StepWindow
from steptime.measure.steps.step_fold import RankSteps, StepBlock
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS, Phase, Span, Step

Sums = Mapping[str, float]
Rows = Sequence[tuple[int, Sums]]
"""Times a step by phase [s], each with the number of steps it stands for."""


def find_missing(ranks: Sequence[RankSteps], *, has_workers: bool) -> dict[str, str]:
    """Phases that were not observed on these ranks, each with its reason.

    It depends on the whole run, warmup included: what was ever seen is observed.
    """
    items = [item for rank in ranks for item in rank.items]
    seen = {name for item in items for name, value_s in item.wall_s.items() if value_s > 0}
    missing = _missing_model_phases(seen)
    if all(rank.head.device == "cpu" for rank in ranks):
        missing |= dict.fromkeys(("h2d", "sync"), "not_applicable_on_cpu")
    if not any(item.num_batches for item in items):
        missing |= dict.fromkeys(("input_wait", *INNER_PHASES), "no_loader_seen")
    elif not seen.intersection(INNER_PHASES):
        reason = "loads_in_workers" if has_workers else "not_split"
        missing |= dict.fromkeys(INNER_PHASES, reason)
    if not any(item.num_updates for item in items):
        unseen = {"gradient_processing", "optimizer"} - seen
        missing |= dict.fromkeys(sorted(unseen), "no_optimizer_seen")
    if "communication" not in seen and all(rank.head.world_size == 1 for rank in ranks):
        missing["communication"] = "single_rank"
    return missing


def _missing_model_phases(seen: set[str]) -> dict[str, str]:
    missing = {}
    if "forward_and_loss" in seen:
        reasons = dict.fromkeys(("forward", "loss"), "inside_forward_and_loss")
    else:
        missing["forward_and_loss"] = "not_compiled_together"
        inside = "inside_forward" if "forward" in seen else "no_module_seen"
        reasons = {"forward": "no_module_seen", "loss": inside}
    reasons["backward"] = "no_backward_seen"
    return missing | {name: reason for name, reason in reasons.items() if name not in seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PhaseTable:
    """The steps' times; `cpu` and `inner` of the detailed ones only, `device` where known."""

    wall: Rows
    cpu: Rows
    inner: Rows
    device: Rows


def summarize_phases(
    windows: Sequence[StepWindow], missing: Mapping[str, str]
) -> tuple[Phase, ...]:
    """Every phase over these windows together.

    A block stands in the medians with the mean of its steps, weighted by their number.
    """
    items = [item for window in windows for item in window.items]
    table = _table(items, missing)
    if not items:
        missing = dict.fromkeys((*PHASES, *INNER_PHASES), "no_steady_steps")
    elif not table.inner:
        missing = {**dict.fromkeys(INNER_PHASES, "not_sampled"), **missing}
    return tuple(
        Phase(name=name, missing=missing[name]) if name in missing else _phase(name, table)
        for name in (*PHASES, *INNER_PHASES)
    )


def _table(items: Sequence[Step | StepBlock], missing: Mapping[str, str]) -> _PhaseTable:
    wall = [(num, _regroup(i.wall_s, missing, num)) for i in items if (num := _num_steps(i))]
    cpu = [(num, _regroup(i.cpu_s, missing, num)) for i in items if (num := _num_detailed(i))]
    inner = [(num, _inner_times(i, num)) for i in items if (num := _num_detailed(i))]
    device = [i.device_s for i in items if isinstance(i, Step) and i.device_s is not None]
    return _PhaseTable(
        wall=wall, cpu=cpu, inner=inner, device=[(1, _regroup(d, missing, 1)) for d in device]
    )


def _num_steps(item: Step | StepBlock) -> int:
    return 1 if isinstance(item, Step) else item.num_steps


def _num_detailed(item: Step | StepBlock) -> int:
    return int(item.is_detailed) if isinstance(item, Step) else item.num_detailed


def _regroup(sums: Sums, missing: Mapping[str, str], num: int) -> dict[str, float]:
    """Times a step by phase, `input_wait` whole, and what was not observed in `other`."""
    found = {name: value / num for name, value in sums.items()}
    found["input_wait"] += sum(found[name] for name in INNER_PHASES)
    for name in missing:
        if name in PHASES:
            found["other"] += found[name]
            found[name] = 0.0
    return found


def _inner_times(item: Step | StepBlock, num: int) -> dict[str, float]:
    """Fetch and collate a detailed step, and the whole wait a step beside them."""
    found = {name: item.wall_s[name] / num for name in INNER_PHASES}
    whole_s = sum(item.wall_s[name] for name in ("input_wait", *INNER_PHASES))
    return {**found, "input_wait": whole_s / _num_steps(item)}


def _phase(name: str, table: _PhaseTable) -> Phase:
    is_inner = name in INNER_PHASES
    return Phase(
        name=name,
        median_s=_median(name, table.inner if is_inner else table.wall),
        fraction=_inner_fraction(name, table) if is_inner else _fraction(name, table),
        cpu_median_s=_median(name, table.cpu),
        device_median_s=_median(name, table.device),
    )


def _median(name: str, rows: Rows) -> float | None:
    values = [times_s[name] for _, times_s in rows]
    return weighted_median(values, [float(num) for num, _ in rows]) if rows else None


def _total(name: str, rows: Rows) -> float:
    return math.fsum(num * times_s[name] for num, times_s in rows)


def _fraction(name: str, table: _PhaseTable) -> float | None:
    total_s = math.fsum(_total(phase, table.wall) for phase in PHASES)
    return _total(name, table.wall) / total_s if total_s > 0 else None


def _inner_fraction(name: str, table: _PhaseTable) -> float | None:
    """The share of the whole wait, seen on detailed steps, of the wait's share of all steps."""
    outer = _fraction("input_wait", table)
    whole_s = _total("input_wait", table.inner)
    if outer is None:
        return None
    return outer * min(1.0, _total(name, table.inner) / whole_s) if whole_s > 0 else 0.0


def summarize_spans(rank: RankSteps) -> tuple[Span, ...]:
    """What was kept apart from the steps of one rank; a block counts as one step touched.

    What came after the last update counts too, and touches no step.
    """
    spans = []
    for name in SPANS:
        values_s = [item.spans_s[name] for item in rank.items if item.spans_s[name] > 0]
        total_s = math.fsum((*values_s, rank.tail_s[name]))
        if total_s > 0:
            spans.append(Span(name=name, total_s=total_s, num_steps_touched=len(values_s)))
    return tuple(spans)


def mean_per_step(
    windows: Sequence[StepWindow], count: Callable[[Step | StepBlock], int]
) -> float | None:
    """A count a step over the windows; None without steps."""
    items = [item for window in windows for item in window.items]
    num_steps = sum(window.num_steps for window in windows)
    return sum(map(count, items)) / num_steps if num_steps else None
