"""Words on the steps of a run: how many, on which ranks, in which loops, and which count."""

from __future__ import annotations

from steptime.core.interval import Interval
from steptime.core.process_end import RunState
from steptime.core.units import format_count, format_percent, format_seconds
from steptime.diagnose.ailments.scale import INFO_FRACTION
from steptime.measure.values.measurement import Measurement, SteadyWindow
from steptime.measure.values.training_loop import TrainingLoop
from steptime.report.document.run_document import Throughput
from steptime.report.words.run.run_words import describe_end, describe_phase

_MAX_PHASES = 3
_COUNTS = {
    "batches": "batches",
    "copies": "copies to the device",
    "syncs": "waits for the device",
    "forwards": "calls of models",
    "backwards": "backward calls",
    "gc_pauses": "collections of garbage",
    "gc_full": "full collections of garbage",
}
"""What the guest counts in a step, by its names in the run folder."""

_OF_A_DEVICE = ("copies", "syncs")
"""On a CPU nothing is copied to a device, and nothing waits for one."""
_WORTH_A_WORD = 0.05


def describe_ranks(m: Measurement) -> tuple[str, str]:
    """Return the number of steps, and on which ranks; ranks that differ have all steps summed.

    Processes that know of no other rank, as those of Hogwild, are called processes.
    """
    if m.num_ranks < 2:
        return format_count(m.num_steps), ""
    many = "ranks" if any(one.world_size > 1 for one in m.ranks) else "processes"
    numbers = [one.num_steps for one in m.ranks]
    if min(numbers) == max(numbers):
        return format_count(m.num_steps), f" on each of {m.num_ranks} {many}"
    number = f"{format_count(min(numbers))} to {format_count(max(numbers))}"
    longest = f"of the {format_count(m.num_steps)}"
    return number, f" on {m.num_ranks} {many}, {format_count(sum(numbers))} in all; {longest}"


def describe_counts(m: Measurement) -> str:
    """Say how often a mean step does what the guest counts; empty where nothing is known."""
    found = m.counts_per_step or {}
    on_cpu = all(rank.device == "cpu" for rank in m.ranks)
    known = [name for name in _COUNTS if name in found and not (on_cpu and name in _OF_A_DEVICE)]
    return " · ".join(f"{_COUNTS[name]} {found[name]:.3g}" for name in known)


def describe_counted(steady: SteadyWindow, num_steps: int, *, is_brief: bool = False) -> str:
    """Say how many of all steps count, and how many are excluded for which reason."""
    left_out = [f"{steady.num_warmup_steps:,} warm-up"]
    if steady.num_beside_neighbor:
        left_out.append(f"{steady.num_beside_neighbor:,} beside a busy neighbor")
    if steady.num_other_loops:
        left_out.append(f"{steady.num_other_loops:,} of other loops")
    told = steady.num_steps + steady.num_warmup_steps + steady.num_beside_neighbor
    told += steady.num_other_loops
    if num_steps > told:
        left_out.append(f"{num_steps - told:,} probed, compiling or stalled")
    counted = "" if is_brief else f"{steady.num_steps:,} counted; "
    return f"{counted}excluded: {', '.join(left_out)}"


def describe_run_end(m: Measurement) -> str:
    """Say how the run ended, and after which time."""
    link = "in" if m.end.state is RunState.FINISHED else "after"
    lasted = "" if m.duration_s is None else f" {link} {format_seconds(m.duration_s)}"
    return f"{describe_end(m.end)}{lasted}"


def describe_median(time: Interval) -> str:
    """Return `median of 470, 95 % interval 117 ms to 119 ms`, of times in seconds."""
    if time.n < 2:
        return "of one step"
    low, high = format_seconds(time.low), format_seconds(time.high)
    return f"median of {time.n:,}, 95 % interval {low} to {high}"


def describe_throughput(found: Throughput) -> tuple[str, str]:
    """Return the rate with its unit, such as `542 images/s`, and its interval if it has one."""
    if found.rate.n < 2:
        return f"{rounded(found.rate.estimate)} {found.unit}", "of one step"
    rate, low, high = map(rounded, (found.rate.estimate, found.rate.low, found.rate.high))
    mean = format_seconds(found.mean_step_s)
    return f"{rate} {found.unit}", f"95 % interval {low} to {high} (mean step {mean})"


def rounded(rate: float) -> str:
    """Return a rate with three digits."""
    return format_count(float(f"{rate:.3g}"))


def describe_loop(loop: TrainingLoop) -> str:
    """Say what one of several loops does: its steps, its optimizer and line, its longest phases."""
    text = f"{format_count(loop.num_steps)} steps"
    if loop.step_time_s is not None:
        text += f" of {format_seconds(loop.step_time_s.estimate)}"
    text += f", {format_seconds(loop.total_s)} in all"
    if loop.optimizers:
        text += f", {' and '.join(loop.optimizers)}"
    if loop.where is not None:
        text += f" at {loop.where}"
    if loop.called_at is not None:
        text += f", called at {loop.called_at}"
    ordered = sorted(loop.phases.items(), key=lambda item: -item[1])
    large = [
        f"{describe_phase(name)} {format_percent(share)}"
        for name, share in ordered[:_MAX_PHASES]
        if share >= _WORTH_A_WORD
    ]
    return f"{text}: {', '.join(large)}" if large else text


def step_to_shorten(m: Measurement) -> tuple[float | None, str]:
    """Return the time of the step that a finding's share is of [s], and its words.

    Shares are of all steps' time, so of the mean step, and the words say it where that differs.
    """
    time = None if m.steady is None else m.steady.step_time_s
    mean_s = None if m.steady is None else m.steady.mean_s
    if time is None or mean_s is None:
        return None if time is None else time.estimate, "a step"
    is_usual = abs(mean_s - time.estimate) < INFO_FRACTION.value * time.estimate
    return (time.estimate, "a step") if is_usual else (mean_s, "a mean step")
