"""Takes provisional ceilings again, once nothing of ours trains and the machine is quiet.

In: the ceilings that are kept, and which of them matter. Out: the ceilings as they are now, in the
store. `steptime run` does it after the command has ended, for seconds; `steptime machine` does it
in place of showing provisional figures. On a busy machine nothing is measured and nothing waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptime.app.stored.kept_ceilings import find_ceilings, kept_path, note_exceeded, with_gpus
from steptime.machine import ceilings as ceilings_of
from steptime.machine.ceiling_state import MEMORY_CORES
from steptime.machine.retake import (
    find_provisional,
    is_due,
    merge,
    retaken,
    stages_of,
    time_for,
)
from steptime.machine.values.ceiling_values import QUIET_CORES, Ceiling, Ceilings
from steptime.report.words.machine.machine_words import describe_kind
from steptime.watch.host.condition_reader import read_condition
from steptime.watch.host.machine_counters import read_cpu_times

if TYPE_CHECKING:
    from steptime.app.run.observed_run import ObservedRun
    from steptime.core.store import Run
    from steptime.diagnose.values.reach_values import Waterfall

Tell = Callable[[str], None]
Progress = Callable[[ceilings_of.Told], None]

LOOK_S = 0.5
"""Fifty ticks of the kernel's clock on each core."""

START_S = 5.0
"""For torch to be loaded."""

MAX_AFTER_RUN_S = 20.0
"""A user waits for the report."""


def others_now(look_s: float = LOOK_S) -> float:
    """Return how many cores other processes keep busy at this moment."""
    before, own, began_s = read_cpu_times().busy_s, os.times(), time.monotonic()
    time.sleep(look_s)
    used, passed_s = os.times(), time.monotonic() - began_s
    ours_s = used.user + used.system - own.user - own.system
    return max(0.0, (read_cpu_times().busy_s - before - ours_s) / passed_s)


def is_quiet(others_cores: float) -> bool:
    """Return whether others leave cores and memory alone."""
    return others_cores <= max(QUIET_CORES, MEMORY_CORES * (os.cpu_count() or 1))


def retake_after(run: Run, observed: ObservedRun, *, tell: Tell) -> bool:
    """Take again what an ended run could not be judged by; return whether anything is firm now."""
    if observed.ceilings is None:
        return False
    found = _with_proof(observed.ceilings, observed.picture.waterfall)
    if found != observed.ceilings:
        note_exceeded(run, found)
    kept = find_ceilings(run, observed.measurement)
    if kept is None or not kept_path(run, kept).is_file():
        return False
    doubted = find_provisional(kept, wanted=set(observed.picture.waterfall.provisional))
    if not doubted or not is_due(kept, now_s=time.time()) or not is_quiet(others_now()):
        return False
    budget_s = min(MAX_AFTER_RUN_S, START_S + time_for(doubted))
    after = retake(kept, doubted, folder=run.store / "machine", budget_s=budget_s, tell=tell)
    return any(True for _ in retaken(kept, after))


def _with_proof(found: Ceilings, waterfall: Waterfall) -> Ceilings:
    """Return the ceilings with the rates that the run reached above them."""
    rates = {
        one.ceiling: one.ratio
        for one in reversed(waterfall.exceeded)
        if one.is_proof and one.ceiling is not None
    }
    return replace(
        found,
        ceilings=tuple(
            _proven(one, rates.get(one.dtype or one.variant or "")) for one in found.ceilings
        ),
    )


def _proven(one: Ceiling, ratio: float | None) -> Ceiling:
    best = one.fastest_rate
    if ratio is None or not best or one.kind not in ("matmul", "copy", "triad"):
        return one
    rate = max(one.state.exceeded_rate or 0.0, ratio * best)
    return replace(one, state=replace(one.state, exceeded_rate=rate))


def retake(
    kept: Ceilings,
    doubted: Collection[Ceiling],
    *,
    folder: Path,
    budget_s: float,
    tell: Tell,
    progress: Progress = lambda _: None,
) -> Ceilings:
    """Measure the doubted ceilings again within `budget_s` [s], and keep the result."""
    from steptime.machine.inventory import read_inventory
    from steptime.watch.host.device_sampler import load_nvml

    if kept.bench is None:
        return kept
    names = ", ".join(dict.fromkeys(describe_kind(one) for one in doubted))
    tell(
        f"provisional ceilings ({names}) are taken again on the quiet machine, for at most "
        f"{budget_s:.0f} s; Ctrl-C leaves them as they are"
    )
    environment = dict(os.environ)
    inventory = read_inventory(Path.cwd(), load_nvml=load_nvml, environment=environment)
    asked = ceilings_of.CeilingRequest(
        python=ceilings_of.ask_python(kept.bench.python, environment=environment),
        inventory=inventory,
        fingerprint=kept.fingerprint,
        budget_s=budget_s,
        folder=folder,
        condition=with_gpus(read_condition(), inventory),
        stages=stages_of(doubted),
    )
    if asked.python.missing is not None:
        return kept
    after = merge(kept, ceilings_of.measure(asked, environment=environment, tell=progress))
    ceilings_of.keep(after, asked)
    tell(_outcome(kept, after))
    return after


def _outcome(kept: Ceilings, after: Ceilings) -> str:
    firm = ", ".join(dict.fromkeys(describe_kind(one) for one in retaken(kept, after)))
    left = ", ".join(dict.fromkeys(describe_kind(one) for one in find_provisional(after)))
    said = f"taken again, and firm now: {firm}" if firm else "none of them became firm"
    return f"{said}; still provisional: {left}" if left else said
