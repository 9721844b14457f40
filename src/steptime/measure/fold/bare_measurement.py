"""Measures what is known of a run beside its steps; for a run without steps, that is all.

In: `RunRecords`. Out: a `Measurement` without steps. This module does not import those that fold
steps: a command that is not a training should not pay for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.core.stats import median
from steptime.measure.fold.code_places import find_errors, find_switches, places_of
from steptime.measure.fold.recipe_use import find_recipe
from steptime.measure.fold.record_notes import NoteFacts, make_notes
from steptime.measure.fold.run_records import RunRecords
from steptime.measure.fold.worker_summary import summarize_workers
from steptime.measure.values.measurement import INNER_PHASES, PHASES, Measurement, Phase
from steptime.measure.wall.host_load import load_of_run

if TYPE_CHECKING:
    from steptime.measure.steps.steady_window import StepWindow
    from steptime.measure.steps.step_fold import RankSteps
    from steptime.measure.values.model.anatomy import Anatomy

_INSIDE = (*PHASES, *INNER_PHASES)


def measure_bare(
    records: RunRecords,
    *,
    end: ProcessEnd | None = None,
    ranks: Sequence[RankSteps] = (),
    windows: Sequence[StepWindow] = (),
) -> Measurement:
    """Return the measurement without its steps.

    Args:
        records: what the run's folder holds.
        end: how the command ended; None where `command.json` says it.
        ranks: the ranks that stepped, for the notes.
        windows: the windows of these ranks.
    """
    end = _end_of(records) if end is None else end
    seen = NoteFacts(records=records, has_ended=end.is_over, ranks=ranks, windows=windows)
    command, places = records.command, places_of(records)
    return Measurement(
        schema=SCHEMA,
        run_id=command.run_id,
        command=command.argv,
        started_unix_s=command.started_unix_s,
        duration_s=_duration_s(records),
        end=end,
        num_steps=0,
        num_optimizer_updates=0,
        num_backwards=0,
        num_skipped_updates=0,
        num_ranks=0,
        period=None,
        steady=None,
        phases=tuple(Phase(name=name, missing="no_steady_steps") for name in _INSIDE),
        spans=(),
        copies_per_step=None,
        syncs_per_step=None,
        ranks=(),
        workers=summarize_workers(records),
        host=load_of_run(records),
        overhead=None,
        notes=make_notes(seen),
        switches=find_switches(records, places),
        errors=find_errors(records, places),
        recipe=find_recipe(records),
        stalls=records.stalls,
        memory=_anatomy_of(records),
        training=records.training,
        given_peaks=command.peaks or {},
        desync=None if records.ended_desync is None else records.ended_desync.desync,
        price_per_h=command.price_per_h,
        stopped=command.stopped,
    )


def _anatomy_of(records: RunRecords) -> Anatomy | None:
    if not records.memory:
        return None
    from steptime.measure.memory.memory_anatomy import find_anatomy

    return find_anatomy(records.memory, (), worker_bytes=worker_bytes_of(records))


def _end_of(records: RunRecords) -> ProcessEnd:
    command = records.command
    if command.signal is not None:
        return ProcessEnd(state=RunState.KILLED, signal=command.signal)
    if command.exit_code is None:
        return ProcessEnd(state=RunState.UNKNOWN)
    state = RunState.FAILED if command.exit_code else RunState.FINISHED
    return ProcessEnd(state=state, exit_code=command.exit_code)


def _duration_s(records: RunRecords) -> float | None:
    """Return the run's duration; None while it runs, or if the clock was set back meanwhile.

    A run ends with its last training, which may outlive the command.
    """
    command, survivors = records.command, records.command.survivors
    ended_unix_s = command.ended_unix_s
    if survivors is not None and survivors.processes:
        ended_unix_s = survivors.ended_unix_s
    if ended_unix_s is None or ended_unix_s < command.started_unix_s:
        return None
    return ended_unix_s - command.started_unix_s


def worker_bytes_of(records: RunRecords) -> int | None:
    """Return the median memory of all DataLoader workers, with shared pages counted once.

    The first sample of a worker counts all that it shares with its parent. It is None where another
    training beside this one has workers too, since the samples hold the sum.
    """
    if records.has_other_workers:
        return None
    sizes = [sample.worker_resident_bytes for sample in records.host.samples]
    known = [size for size in sizes if size]
    return round(median(known)) if known else None
