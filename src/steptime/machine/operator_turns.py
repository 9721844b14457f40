"""Times operators of one size and another in a process of the user's Python.

In: an interpreter, and pairs of operators. Out: a `MeasuredGain` for each pair. The measuring code
is `child/operator_bench.py`; it needs no script and changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptime.core.interval import Interval
from steptime.core.stats import median_interval
from steptime.machine.child_process import Line, run_child
from steptime.plan.values.shape_values import MeasuredGain

START_S = 60.0  # to import torch on a cold disk
LIMIT_BYTES = 1 << 30
"""Larger operands are not made: a measurement must not take the machine's memory."""

KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""glibc keeps what an operator frees for the next call; else the pages of each large result are
given back and fetched again, which says nothing of its width. 32 MiB is the most that it takes."""

Operator = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPair:
    """The operators that a proposal changes, before and after, and how their work changes.

    Attributes:
        before: each with `kind`, `which`, `dtype`, `sizes` and `num`.
        after: the same ones with their new sizes.
        work_ratio: work after over work before.
    """

    before: Sequence[Operator]
    after: Sequence[Operator]
    work_ratio: float


def time_operators(
    python: str,
    pairs: Sequence[OperatorPair],
    *,
    device: str,
    num_threads: int,
    budget_s: float,
    environment: Mapping[str, str],
) -> tuple[MeasuredGain, ...]:
    """Return the measured gain of each pair; one that cannot be measured says why.

    Args:
        python: the interpreter whose torch computes them.
        pairs: what is compared.
        device: `cpu` or `cuda`.
        num_threads: of a processor.
        budget_s: time for all pairs, without the start of the process.
        environment: of the process.
    """
    found: dict[int, MeasuredGain] = {}
    missing = ["child_ended"]

    def hear(line: Line) -> None:
        if line.get("k") == "operators":
            found[int(line["id"])] = _gain(line, pairs[int(line["id"])])
        elif line.get("k") == "missing":
            missing[0] = str(line["missing"])

    request = {
        "role": "operators",
        "device": device,
        "num_threads": num_threads,
        "left_s": budget_s,
        "limit_bytes": LIMIT_BYTES,
        "pairs": [
            {"id": number, "before": list(one.before), "after": list(one.after)}
            for number, one in enumerate(pairs)
        ],
    }
    with tempfile.TemporaryDirectory(prefix="steptime-shapes-") as folder:
        try:
            run_child(
                python,
                request,
                folder=Path(folder),
                environment={**KEPT_MEMORY, **environment},
                limit_s=START_S + 2 * budget_s,
                on_line=hear,
            )
        except OSError:
            missing[0] = "not_started"
    other = MeasuredGain(missing=missing[0])
    return tuple(found.get(number, other) for number in range(len(pairs)))


def _gain(line: Line, pair: OperatorPair) -> MeasuredGain:
    """Return what a line of the child says of one pair."""
    clock = str(line["clock"])
    if "missing" in line:
        return MeasuredGain(clock=clock, missing=str(line["missing"]))
    ratios = [after / before for before, after in line["rounds"] if before > 0]
    if len(ratios) < 2:
        return MeasuredGain(clock=clock, missing="out_of_time")
    ratio: Interval = median_interval(ratios)
    return MeasuredGain(
        time_ratio=ratio,
        gain=pair.work_ratio / ratio.estimate,
        num_rounds=len(ratios),
        clock=clock,
    )
