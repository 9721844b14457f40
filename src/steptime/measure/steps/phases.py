"""Divides the steady window's time into phases, and says which phases were not observed.

In: steps, and the windows chosen from them. Out: a `Phase` for each name. A phase that was not
observed is null with a machine word; its time, if there is any, counts as `other`.
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from steptime.core.stats import median, weighted_median
from steptime.measure.steps.steady_window import StepWindow
from steptime.measure.steps.step_blocks import StepBlock
from steptime.measure.steps.step_fold import RankSteps
from steptime.measure.steps.step_table import INSIDE, Columns, Numbers, StepTable, add_up, zeros
from steptime.measure.values.measurement import INNER_PHASES, PHASES, SPANS, Phase, Span
from steptime.record.places import NS


def find_missing(ranks: Sequence[RankSteps], *, has_workers: bool) -> dict[str, str]:
    """Return the phases that were not observed on these ranks, each with its reason.

    It depends on the whole run, warmup included: what was ever seen is observed.
    """
    seen = {name for rank in ranks for name in _seen(rank)}
    missing = _missing_model_phases(seen)
    if all(rank.head.device == "cpu" for rank in ranks):
        missing |= dict.fromkeys(("h2d", "sync"), "not_applicable_on_cpu")
    if not any(rank.has_batches for rank in ranks):
        missing |= dict.fromkeys(("input_wait", *INNER_PHASES), "no_loader_seen")
    elif not seen.intersection(INNER_PHASES):
        reason = "loads_in_workers" if has_workers else "not_split"
        missing |= dict.fromkeys(INNER_PHASES, reason)
    if not any(rank.has_updates for rank in ranks):
        unseen = {"gradient_processing", "optimizer"} - seen
        missing |= dict.fromkeys(sorted(unseen), "no_optimizer_seen")
    for name, reason in (("rollout", "no_rollout_seen"), ("process_wait", "no_process_wait_seen")):
        if name not in seen:
            missing[name] = reason
    if "communication" not in seen and all(rank.head.world_size == 1 for rank in ranks):
        missing["communication"] = "single_rank"
    return missing


def _seen(rank: RankSteps) -> set[str]:
    """Return the phases that took time in any step."""
    singles = {name for name, column in rank.steps.wall_s.items() if max(column) > 0}
    blocks = {name for block in rank.blocks for name, time_s in block.wall_s.items() if time_s > 0}
    return singles | blocks


def _missing_model_phases(seen: set[str]) -> dict[str, str]:
    missing = {}
    if "forward_and_loss" in seen:
        reasons = dict.fromkeys(("forward", "loss"), "inside_forward_and_loss")
    else:
        missing["forward_and_loss"] = "not_compiled_together"
        inside = "inside_forward" if "forward" in seen else "no_module_seen"
        unseen = "inside_rollout" if "rollout" in seen else "no_module_seen"
        reasons = {"forward": unseen, "loss": inside}
    reasons["backward"] = "no_backward_seen"
    return missing | {name: reason for name, reason in reasons.items() if name not in seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Times by phase [s]: a row for each step, then a row for each block with its mean step.

    `columns` leaves out phases that took no time in any row. A step counts once, a block as often
    as `weights` says.
    """

    columns: Columns
    num_steps: int
    weights: Sequence[int]

    def __bool__(self) -> bool:
        return self.num > 0

    @property
    def num(self) -> int:
        """Return the number of steps behind the rows."""
        return self.num_steps + sum(self.weights)

    def median_s(self, name: str) -> float | None:
        """Return the median, weighted by the steps behind each row; None without rows."""
        if not self or name not in self.columns:
            return 0.0 if self else None
        values = self.columns[name]
        if not self.weights:
            return median(values)
        weights = chain(repeat(1.0, self.num_steps), map(float, self.weights))
        return weighted_median(values, list(weights))

    def total_s(self, name: str) -> float:
        """Return the total over all steps behind the rows."""
        values = self.columns.get(name, ())
        blocks = zip(self.weights, values[self.num_steps :], strict=False)
        return math.fsum(chain(values[: self.num_steps], (num * time_s for num, time_s in blocks)))

    def mean_s(self, name: str) -> float | None:
        """Return the mean over all steps behind the rows; None without rows."""
        return self.total_s(name) / self.num if self else None

    def gather(self, missing: Iterable[str]) -> _Times:
        """Return the times with `input_wait` whole, and `other` with what was not observed."""
        columns = dict(self.columns)
        if not columns.keys().isdisjoint(INNER_PHASES):
            size = self.num_steps + len(self.weights)
            _add_to(columns, "input_wait", add_up(columns, INNER_PHASES, size))
        for name in missing:
            if name in PHASES and name in columns:
                _add_to(columns, "other", columns.pop(name))
        return replace(self, columns=columns)


def _add_to(columns: dict[str, Numbers], name: str, more: Numbers) -> None:
    columns[name] = array("d", map(operator.add, columns[name], more)) if name in columns else more


Singles = Sequence[tuple[Columns, int]]
Sums = Sequence[tuple[Mapping[str, float], int]]


def _times(singles: Singles, blocks: Sums) -> _Times:
    """Return the times of steps and of blocks; each block has its weight."""
    found: dict[str, Numbers] = {}
    for name in INSIDE:
        if any(name in columns for columns, _ in singles) or any(sums[name] for sums, _ in blocks):
            column = array("d")
            for columns, num_steps in singles:
                column.extend(columns[name] if name in columns else zeros(num_steps))
            column.extend(sums[name] / weight for sums, weight in blocks)
            found[name] = column
    return _Times(
        columns=found,
        num_steps=sum(num_steps for _, num_steps in singles),
        weights=[weight for _, weight in blocks],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PhaseTable:
    """The steps' times; `cpu` and `inner` are of the detailed steps only, `device` where known."""

    wall: _Times
    cpu: _Times
    inner: _Times
    device: _Times


def summarize_phases(
    windows: Sequence[StepWindow], missing: Mapping[str, str]
) -> tuple[Phase, ...]:
    """Return every phase over these windows together.

    In the medians, a block has the mean of its steps, weighted by their number. Where the watched
    steps are a sample, which may have been made on a busier machine, they divide the usual step.
    """
    table = _table(windows, missing)
    factors = (1.0, 1.0)
    if windows and windows[0].is_sample:
        factors = _usual_step(windows[0], table)
    if not any(window.steps or window.blocks for window in windows):
        missing = dict.fromkeys((*PHASES, *INNER_PHASES), "no_steady_steps")
    elif not table.inner:
        missing = {**dict.fromkeys(INNER_PHASES, "not_sampled"), **missing}
    totals_s = {name: table.wall.total_s(name) for name in PHASES}
    mean_s = _mean_step(windows)
    return tuple(
        Phase(name=name, missing=missing[name])
        if name in missing
        else _scaled(_phase(name, table, totals_s, mean_s), *factors)
        for name in (*PHASES, *INNER_PHASES)
    )


def _table(windows: Sequence[StepWindow], missing: Mapping[str, str]) -> _PhaseTable:
    steps = [window.steps for window in windows]
    blocks = [block for window in windows for block in window.blocks if block.num_steps]
    detailed = [one.take(one.is_detailed) for one in steps]
    sampled = [block for block in blocks if block.num_detailed]
    on_device = [one.take(one.has_device) for one in steps]
    wall = _times([(s.wall_s, len(s)) for s in steps], [(b.wall_s, b.num_steps) for b in blocks])
    cpu = _times(
        [(s.cpu_s, len(s)) for s in detailed], [(b.cpu_s, b.num_detailed) for b in sampled]
    )
    device = _times([(s.device_s, len(s)) for s in on_device], [])
    return _PhaseTable(
        wall=wall.gather(missing),
        cpu=cpu.gather(missing),
        inner=_inner_times(detailed, sampled),
        device=device.gather(missing),
    )


def _inner_times(detailed: Sequence[StepTable], sampled: Sequence[StepBlock]) -> _Times:
    """Return the fetch and collate times per detailed step, and the whole wait beside them."""
    names = ("input_wait", *INNER_PHASES)
    found = _times(
        [(s.wall_s, len(s)) for s in detailed], [(b.wall_s, b.num_detailed) for b in sampled]
    )
    waits_s = array("d")
    for steps in detailed:
        waits_s.extend(add_up(steps.wall_s, names, len(steps)))
    waits_s.extend(sum(b.wall_s[name] for name in names) / b.num_steps for b in sampled)
    return replace(found, columns={**found.columns, "input_wait": waits_s})


def _mean_step(windows: Sequence[StepWindow]) -> float | None:
    """Return the mean step that a report has, in which single long steps are pulled in [s]."""
    if not windows or windows[0].is_sample:
        return None
    known = [window.steady for window in windows if window.steady.mean_s is not None]
    num = sum(steady.num_steps for steady in known)
    return math.fsum((one.mean_s or 0.0) * one.num_steps for one in known) / num if num else None


def _phase(
    name: str, table: _PhaseTable, totals_s: Mapping[str, float], mean_s: float | None
) -> Phase:
    is_inner = name in INNER_PHASES
    share = _inner_fraction(name, table, totals_s) if is_inner else _share(name, totals_s)
    if mean_s is None:
        mean_s = math.fsum(totals_s.values()) / max(1, table.wall.num)
    return Phase(
        name=name,
        median_s=(table.inner if is_inner else table.wall).median_s(name),
        fraction=share,
        mean_s=None if share is None else share * mean_s,
        cpu_mean_s=table.cpu.mean_s(name),
        device_mean_s=table.device.mean_s(name),
        cpu_median_s=table.cpu.median_s(name),
        device_median_s=table.device.median_s(name),
    )


def _usual_step(window: StepWindow, table: _PhaseTable) -> tuple[float, float]:
    """Return how long the usual step took by what the watched ones took, in wall and CPU time."""
    steady, cpu_times_s = window.steady, window.steps.cpu_times_s
    wall_s = math.fsum(table.wall.mean_s(name) or 0.0 for name in PHASES)
    cpu_s = median(cpu_times_s) if cpu_times_s else 0.0
    wall = steady.mean_s / wall_s if steady.mean_s is not None and wall_s > 0 else 1.0
    cpu = steady.step_cpu_s.estimate / cpu_s if steady.step_cpu_s and cpu_s > 0 else 1.0
    return wall, cpu


def _scaled(phase: Phase, wall: float, cpu: float) -> Phase:
    def by(value_s: float | None, factor: float) -> float | None:
        return None if value_s is None else value_s * factor

    return replace(
        phase,
        median_s=by(phase.median_s, wall),
        mean_s=by(phase.mean_s, wall),
        cpu_median_s=by(phase.cpu_median_s, cpu),
        cpu_mean_s=by(phase.cpu_mean_s, cpu),
    )


def _share(name: str, totals_s: Mapping[str, float]) -> float | None:
    total_s = math.fsum(totals_s.values())
    return totals_s[name] / total_s if total_s > 0 else None


def _inner_fraction(name: str, table: _PhaseTable, totals_s: Mapping[str, float]) -> float | None:
    """Return a part's share: its share of the wait on detailed steps, times the wait's share."""
    outer = _share("input_wait", totals_s)
    whole_s = table.inner.total_s("input_wait")
    if outer is None:
        return None
    return outer * min(1.0, table.inner.total_s(name) / whole_s) if whole_s > 0 else 0.0


def summarize_spans(rank: RankSteps) -> tuple[Span, ...]:
    """Return the spans apart from the steps of one rank; a block counts as one touched step.

    Spans after the last update count too, and touch no step.
    """
    spans = []
    for name in SPANS:
        seen_s = [*rank.steps.span(name), *(block.spans_s[name] for block in rank.blocks)]
        values_s = [value_s for value_s in seen_s if value_s > 0]
        first_s, tail_s = sum(seen_s[:1]), rank.tail_s[name]
        longest_s = max(seen_s[1:], default=0.0)
        kept_s = 0.0 if name == "epoch_start" else longest_s
        total_s = math.fsum((*values_s, tail_s))
        if total_s > 0:
            found = Span(
                name=name,
                total_s=total_s,
                num_steps_touched=len(values_s),
                outside_s=max(0.0, first_s - kept_s) + max(0.0, tail_s - longest_s),
            )
            spans.append(found)
    return tuple(spans)


def mean_counts(windows: Sequence[StepWindow]) -> dict[str, float] | None:
    """Return what the guest counts, in a mean step of the windows; None without steps.

    Times are in seconds.
    """
    num_steps = sum(window.num_steps for window in windows)
    names = dict.fromkeys(name for window in windows for name in window.counted())
    found: dict[str, float] = {}
    for name in names if num_steps else ():
        mean = sum(window.total(name) for window in windows) / num_steps
        if name.endswith("_ns"):
            found[f"{name[:-3]}_s"] = mean * NS
        else:
            found[name] = mean
    return found if num_steps else None
