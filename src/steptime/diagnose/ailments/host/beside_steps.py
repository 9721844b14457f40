"""Ailments beside the steps: a start that takes much of the run, by what takes most of it.

They are no bottleneck of a step: each start pays them again, and so does each restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steptime.core.process_end import RunState
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_same_load, run_without
from steptime.diagnose.ailments.scale import Threshold
from steptime.diagnose.ailments.signals import make_finding, seconds, share
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.wall_time import FIRST_MINUTE, WallPart

MIN_RUN_S = Threshold(
    name="MIN_RUN_S",
    value=300.0,
    why="seconds: a shorter run is a trial, and every trial is mostly its start",
)
MIN_START = Threshold(
    name="MIN_START",
    value=0.2,
    why="of the run: without it, five runs would take the time of four",
)
HALF_A_RUN = Threshold(
    name="HALF_A_RUN",
    value=0.5,
    why="of the run: more time starts than trains",
)


def find_start_up(measurement: Measurement) -> Finding | None:
    """No bottleneck of the step: the start takes much of a long run that has ended."""
    wall = measurement.wall_time
    has_ended = measurement.end.state is RunState.FINISHED
    if wall is None or wall.is_open or not has_ended or wall.total_s < MIN_RUN_S.value:
        return None
    parts = [part for part in wall.parts if part.name in FIRST_MINUTE]
    start_s = sum(part.total_s for part in parts)
    fraction = start_s / wall.total_s
    if fraction < MIN_START.value:
        return None
    return _make(max(parts, key=lambda part: part.total_s), start_s, fraction)


def _make(largest: WallPart, start_s: float, fraction: float) -> Finding:
    finding = make_finding(
        _BY_PART.get(largest.name, START_UP),
        severity=Severity.WARNING if fraction >= HALF_A_RUN.value else Severity.INFO,
        evidence=(
            share("start_up", fraction),
            seconds("start_up_total", start_s),
            seconds("largest_time", largest.total_s),
        ),
        fraction=fraction,
    )
    return replace(finding, names={"largest": largest.name}, where=largest.where)


def _row(cause: str, *, what: str, needs: str, remedy: str) -> Ailment:
    """Return the row of a long start, by the part that takes most of it."""
    return Ailment(
        cause=cause,
        what=what,
        needs=needs,
        rule=find_start_up,
        asked=Asked.ALWAYS,
        thresholds=(MIN_RUN_S, MIN_START, HALF_A_RUN),
        title="long start",
        sentence="{start_up_total} passed until the steps went at their pace, {start_up} of the "
        "run. Most of it was {largest}, {largest_time}.",
        removal=run_without("the start"),
        remedy=remedy,
        when_contended=by_same_load(
            "A start computes and reads, as steps do; beside a neighbor both take longer."
        ),
    )


SLOW_IMPORTS = _row(
    "slow_imports",
    what="the start takes much of the run, mostly imports",
    needs="`wall_time` of a run of five minutes",
    remedy="Keep the environment on a local disk, and import what only some runs need where they "
    "need it: python -X importtime lists what each import takes.",
)
SLOW_DATA_SET = _row(
    "slow_data_set",
    what="the start takes much of the run, mostly the data set",
    needs="`wall_time` of a run of five minutes",
    remedy="Prepare the data once and keep the result in files that are mapped into memory (NumPy, "
    "Arrow): each start makes it again.",
)
SLOW_COMPILE = _row(
    "slow_compile",
    what="the start takes much of the run, mostly compiling",
    needs="`wall_time` of a run of five minutes",
    remedy="Keep what was compiled for the next run: TORCHINDUCTOR_CACHE_DIR on a disk that stays, "
    "or torch.compiler.save_cache_artifacts.",
)
START_UP = _row(
    "start_up",
    what="the start takes much of the run",
    needs="`wall_time` of a run of five minutes",
    remedy="Look at the parts of the time of the run, and make the largest one once for many runs, "
    "or start less often.",
)
_BY_PART: Mapping[str, Ailment] = {
    "imports": SLOW_IMPORTS,
    "data_set": SLOW_DATA_SET,
    "compile": SLOW_COMPILE,
}
AILMENTS = (SLOW_IMPORTS, SLOW_DATA_SET, SLOW_COMPILE, START_UP)
