"""The document of one run, as `steptime run`, `show` and Python callers have it.

In: the values of the chain. Out: a `RunDocument`, which adds the figures that programs would have
to compute from them. The rules behind those figures are `diagnose`'s and `plan`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.utilization import Utilization, hardware_utilization, model_utilization
from steptime.diagnose.values.finding import Diagnosis
from steptime.diagnose.values.reach_values import Picture, Roofline, Waterfall
from steptime.measure.values.measurement import Measurement
from steptime.plan.memory_fit import MemoryFit, fit_memory
from steptime.report.document.envelope import Envelope, ErrorItem, enclose


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSums:
    """Sums over the counted work of a step [FLOP].

    Attributes:
        total: forward, backward and recomputed.
        model_flops: forward and backward: what MFU counts.
    """

    total: int
    model_flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """What is known about one run.

    Attributes:
        measurement: what was seen.
        diagnosis: what holds the run back; null where it has no steps to judge.
        work: sums over `measurement.count`; null where the work was not counted.
        mfu: model FLOP utilization: forward and backward over the peak of the device.
        hfu: hardware FLOP utilization, with what activation checkpointing computes again.
        memory_fit: what the memory of `measurement.memory` comes to, and what would free some;
            null where nobody told of the memory.
        roofline: the operators of a step under what the machine reaches.
        waterfall: where the time of a step went, from what the machine reaches.
    """

    measurement: Measurement
    diagnosis: Diagnosis | None
    work: WorkSums | None
    mfu: Utilization
    hfu: Utilization
    memory_fit: MemoryFit | None
    roofline: Roofline | None
    waterfall: Waterfall | None


def run_document(
    measurement: Measurement, diagnosis: Diagnosis | None, picture: Picture | None = None
) -> RunDocument:
    """The document of a run; `picture` is what it reaches of the machine's ceilings."""
    m, count = measurement, measurement.count
    return RunDocument(
        measurement=m,
        diagnosis=diagnosis,
        work=None if count is None else WorkSums(total=count.total, model_flops=count.model_flops),
        mfu=model_utilization(m),
        hfu=hardware_utilization(m),
        memory_fit=fit_memory(m),
        roofline=None if picture is None else picture.roofline,
        waterfall=None if picture is None else picture.waterfall,
    )


def run_envelope(
    measurement: Measurement,
    diagnosis: Diagnosis | None,
    *,
    command: str,
    exit_code: int,
    picture: Picture | None = None,
) -> Envelope[RunDocument]:
    """The envelope of a run; a script that failed makes it partial, and says so."""
    document = run_document(measurement, diagnosis, picture)
    return enclose(command, document, exit_code=exit_code, errors=_end_errors(measurement.end))


def _end_errors(end: ProcessEnd) -> tuple[ErrorItem, ...]:
    """What keeps a run from being whole: it failed, was killed, or has no known end."""
    if end.state is RunState.FAILED:
        code, message = "script_failed", f"the script ended with exit code {end.exit_code}"
    elif end.state is RunState.KILLED:
        code, message = "script_killed", f"the script was killed by signal {end.signal}"
    elif end.state is not RunState.FINISHED:
        code, message = "run_unfinished", "the run has not ended, or nobody was there to see it"
    else:
        return ()
    return (ErrorItem(code=code, message=message),)
