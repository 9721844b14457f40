"""Whether numbers of loader workers are tried beforehand, in one trial, and what came of it.

In: the baseline, and the file that the trial's guest wrote. Out: rates for `Facts`. The guest's
part is `guest.trial.worker_search`; the lever `dataloader` then offers the best setting alone.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from steptime.core.codec import from_json
from steptime.core.store import read_document
from steptime.errors import DamagedRunError
from steptime.levers.base import WorkerRate
from steptime.tune.search.bench import Baseline

WORKER_RATES = "workers.json"
LEVER = "dataloader"

MAX_S = 28.0
"""For all settings together; a last window may take it to 30 s."""

SHARE = 0.1
"""Of the study's budget; a search that gets less than `MIN_S` is not worth a start."""

MIN_S = 4.0

MIN_WAIT = 0.05
"""Of a step that waits for data: below, workers can give nothing."""

MOST_STARTS = 2.0
"""Times the limit, until a search that says nothing is ended: its last window may be long."""


def search_limit_s(baseline: Baseline, levers: Collection[str], budget_s: float) -> float | None:
    """How long settings may be tried [s]; None where it is not worth it, or not possible."""
    facts = baseline.facts
    loaders = facts.loaders or ()
    limit_s = min(MAX_S, SHARE * budget_s)
    if LEVER not in levers or not baseline.ending.is_well or limit_s < MIN_S:
        return None
    if facts.world_size > 1 or not loaders or any(one.is_iterable for one in loaders):
        return None
    waits = [p.fraction for p in baseline.measurement.phases if p.name == "input_wait"]
    is_waiting = any(share is not None and share >= MIN_WAIT for share in waits)
    return limit_s if is_waiting or any(one.num_workers for one in loaders) else None


def read_rates(path: Path) -> tuple[WorkerRate, ...] | None:
    """The rates in a trial's file; None where it wrote none, or another kind of file."""
    rows = read_document(path).get("rates")
    try:
        found = tuple(from_json(WorkerRate, row) for row in rows or ())
    except (TypeError, DamagedRunError):
        return None
    return tuple(one for one in found if one.batches_per_s > 0) or None
