"""Reads from a Measurement what the rules need, and makes findings of it.

In: a `Measurement`. Out: fractions, evidence, places in the code, and the names of what was not
observed. docs/explanation/diagnosis.md has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from steptime.core.evidence import Evidence
from steptime.diagnose.ailments.ailment import Ailment
from steptime.diagnose.ailments.scale import headroom
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement, Phase, RankSummary
from steptime.measure.values.observations import Site
from steptime.measure.values.wall_time import USEFUL

COMPUTE_PHASES = (
    "forward",
    "loss",
    "forward_and_loss",
    "backward",
    "gradient_processing",
    "optimizer",
)
"""The phases in which the arithmetic of the training runs."""


def phase_of(holder: Measurement | RankSummary, name: str) -> Phase | None:
    """Return the phase of a run or a rank if it was observed."""
    found = (phase for phase in holder.phases if phase.name == name)
    return next((phase for phase in found if phase.fraction is not None), None)


def fraction_of(holder: Measurement | RankSummary, name: str) -> float | None:
    """Return the phase's share of the steady window, or None if it was not observed."""
    phase = phase_of(holder, name)
    return phase.fraction if phase else None


def sum_fractions(measurement: Measurement, names: Iterable[str]) -> float:
    """Return the share of several phases together; `other` has what was not observed."""
    return math.fsum(fraction_of(measurement, name) or 0.0 for name in names)


def cpu_fraction_of(measurement: Measurement, name: str) -> float | None:
    """Return the phase's median CPU time over the step's, or None if either was not observed."""
    phase, steady = phase_of(measurement, name), measurement.steady
    step_cpu_s = steady.step_cpu_s if steady else None
    if phase is None or phase.cpu_median_s is None or not step_cpu_s or step_cpu_s.estimate <= 0:
        return None
    return phase.cpu_median_s / step_cpu_s.estimate


def phase_evidence(measurement: Measurement, name: str) -> tuple[Evidence, ...]:
    """Return a phase's share, its mean, and its share of CPU time, as far as observed."""
    phase = phase_of(measurement, name)
    if phase is None:
        return ()
    values = (
        (name, phase.fraction, "fraction"),
        (f"{name}_mean", phase.mean_s, "s"),
        (f"{name}_cpu", cpu_fraction_of(measurement, name), "fraction"),
    )
    return tuple(
        Evidence(name=label, value=value, unit=unit)
        for label, value, unit in values
        if value is not None
    )


def make_finding(
    ailment: Ailment,
    *,
    severity: Severity,
    evidence: Iterable[Evidence],
    fraction: float | None = None,
    site: Site | None = None,
    missing: tuple[str, ...] = (),
) -> Finding:
    """Return a finding of an ailment, with the headroom of its share.

    `site` is the place in the user's code, if it is known.
    """
    return Finding(
        kind=ailment.kind,
        cause=ailment.cause,
        severity=severity,
        evidence=(*evidence, *site_evidence(site)),
        where=None if site is None else site.place,
        where_text=None if site is None or site.end_line > site.line else site.text,
        headroom_speedup=None if fraction is None else headroom(fraction),
        missing=missing,
        site=site,
    )


def count(name: str, value: float) -> Evidence:
    """Return a number of things as evidence."""
    return Evidence(name=name, value=float(value), unit="count")


def share(name: str, value: float) -> Evidence:
    """Return a fraction as evidence."""
    return Evidence(name=name, value=value, unit="fraction")


def seconds(name: str, value: float) -> Evidence:
    """Return a time as evidence."""
    return Evidence(name=name, value=value, unit="s")


def size(name: str, value: float | None) -> tuple[Evidence, ...]:
    """Return the bytes as evidence, if they are known."""
    return () if value is None else (Evidence(name=name, value=float(value), unit="bytes"),)


def site_of(measurement: Measurement, what: str | None) -> Site | None:
    """Return where most of a phase or span happens: its first site, since the sites are ordered."""
    return next((site for site in measurement.sites if site.what == what), None)


MIN_AT_LINE = 0.1
"""Of a step: a function that takes less does not say where a phase goes."""


def at_longest_line(finding: Finding, measurement: Measurement, whats: Iterable[str]) -> Finding:
    """Return a finding at the longest line of the function that takes most of these phases."""
    lines = () if measurement.spent is None else measurement.spent.lines
    known = [line for line in lines if line.what in whats]
    shares: dict[tuple[str, str], float] = {}
    for line in known:
        function = (line.file, line.function)
        shares[function] = shares.get(function, 0.0) + line.fraction
    first = max(known, key=lambda line: shares[line.file, line.function], default=None)
    if first is None or shares[first.file, first.function] < MIN_AT_LINE:
        return finding
    names = {**(finding.names or {}), "function": first.function}
    evidence = tuple(one for one in finding.evidence if one.name not in ("calls", "site_time"))
    return replace(
        finding,
        where=first.place,
        where_text=first.text,
        names=names,
        site=None,
        evidence=(*evidence, share("in_function", shares[first.file, first.function])),
    )


def site_evidence(site: Site | None) -> tuple[Evidence, ...]:
    """Return the calls and the time per step at a place; for a span, those in the run."""
    if site is None:
        return ()
    timed = () if site.s_per_step is None else (seconds("site_time", site.s_per_step),)
    return (count("calls", site.calls_per_step), *timed)


def apart_fraction(
    measurement: Measurement, apart_s: float, *, others_s: float = 0.0
) -> float | None:
    """Return the share of a time apart from the steps, in this time and all steps together.

    `others_s` is the time of what else lies apart from the steps, and belongs to the whole.
    """
    steady, step_time_s = measurement.steady, median_step_s(measurement)
    if steady is not None and steady.mean_of_all_s is not None:
        step_time_s = steady.mean_of_all_s  # a neighbor made all of these longer
    if step_time_s is None or apart_s <= 0:
        return None
    steps_s = step_time_s * measurement.num_steps
    if measurement.wall_time is not None:  # rare long steps are none of the usual ones
        steps_s = max(steps_s, measurement.wall_time.of(USEFUL))
    return apart_s / (apart_s + others_s + steps_s)


def median_step_s(measurement: Measurement) -> float | None:
    """Return the median step time [s] of the steady window."""
    steady = measurement.steady
    return steady.step_time_s.estimate if steady and steady.step_time_s else None


def worker_s_per_step(measurement: Measurement) -> float | None:
    """Return how long workers take for the batches of a step, each its own [s]; None without any.

    Workers of a validation make batches, too, so the batches are those that a step takes.
    """
    workers = measurement.workers
    if workers is None:
        return None
    num_batches = (measurement.counts_per_step or {}).get("batches", 1.0)
    return num_batches * (workers.fetch_s_per_batch + workers.collate_s_per_batch)


def worker_fraction(measurement: Measurement) -> float | None:
    """Return the share of a step that all workers together take for its batches, at least.

    They work beside the step, side by side: it waits no longer for what they do, whatever else
    it waits for.
    """
    work_s, step_s = worker_s_per_step(measurement), mean_step_s(measurement)
    if work_s is None or measurement.workers is None or not step_s:
        return None
    return min(1.0, work_s / max(1, measurement.workers.num_workers) / step_s)


def mean_step_s(measurement: Measurement) -> float | None:
    """Return the mean step time [s] of the steady window, or its median."""
    steady = measurement.steady
    return (steady.mean_s if steady else None) or median_step_s(measurement)


def idle_fraction(measurement: Measurement) -> float | None:
    """Return the share of the step in which the device computed nothing of this run, if known."""
    device_s, step_s = compute_device_s(measurement), median_step_s(measurement)
    return None if device_s is None or not step_s else max(0.0, 1 - device_s / step_s)


def find_missing_signals(measurement: Measurement) -> tuple[str, ...]:
    """Return the names of signals that a rule needs and that were not observed."""
    is_distributed = any(rank.world_size > 1 for rank in measurement.ranks)
    missing = {
        "input_wait": fraction_of(measurement, "input_wait") is None,
        "communication": is_distributed and fraction_of(measurement, "communication") is None,
        "device_time": is_on_device(measurement) and compute_device_s(measurement) is None,
        "host_load": measurement.host is None,
    }
    return tuple(name for name, is_missing in missing.items() if is_missing)


def is_on_device(measurement: Measurement) -> bool:
    """Return whether any rank trains on anything other than the CPU."""
    return any(rank.device != "cpu" for rank in measurement.ranks)


def compute_device_s(measurement: Measurement) -> float | None:
    """Return the sum of the compute phases' median device times [s]; None without these times."""
    phases = [phase_of(measurement, name) for name in COMPUTE_PHASES]
    times_s = [p.device_median_s for p in phases if p and p.device_median_s is not None]
    return math.fsum(times_s) if times_s else None
