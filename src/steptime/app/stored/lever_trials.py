"""Says for each finding of a run which trial would relieve it, and what that can give at most.

In: a Measurement and its Diagnosis. Out: a `LeverTrial` for each finding. The rows of
`diagnose/ailments` name the levers; a bound is the finding's own headroom or, where it has none,
the time that the levers can shorten.
"""

from __future__ import annotations

from collections.abc import Sequence

from steptime.diagnose.values.finding import Diagnosis, Finding
from steptime.levers import NAMES, load
from steptime.measure.values.measurement import Measurement
from steptime.report.document.run_document import LeverTrial
from steptime.report.words.run.advice import bench_command, trial_command, trial_levers
from steptime.tune.search.order import headroom


def find_trials(measurement: Measurement, diagnosis: Diagnosis | None) -> tuple[LeverTrial, ...]:
    """Return a trial for each finding, in the order of the findings."""
    findings = () if diagnosis is None else diagnosis.findings
    return tuple(_trial(finding, measurement) for finding in findings)


def _trial(finding: Finding, measurement: Measurement) -> LeverTrial:
    found = trial_levers(finding, measurement)
    bench = bench_command(finding, measurement)
    if not found.levers:
        return LeverTrial(
            cause=finding.cause,
            levers=(),
            command=None,
            missing=found.missing,
            bench_command=bench,
        )
    own = finding.headroom_speedup
    return LeverTrial(
        cause=finding.cause,
        levers=found.levers,
        command=trial_command(found.levers, measurement),
        at_most_speedup=own if own is not None else _most_of(found.levers, measurement),
        bound_by="phases" if own is None else "finding",
        bench_command=bench,
    )


def _most_of(levers: Sequence[str], measurement: Measurement) -> float | None:
    """Return the speedup if all time were gone that any of the levers can shorten."""
    phases = {phase for name in levers if name in NAMES for phase in load(name).phases}
    share = headroom(phases, measurement)
    return None if share is None else 1 / (1 - share)
