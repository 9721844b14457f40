"""Makes the baseline from the folder of its trial: measured, diagnosed, with facts for the levers.

In: a trial's folder and how the trial ended. Out: a `Baseline`. Nothing here starts a process.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from steptime.core.codec import from_json
from steptime.core.interval import Interval
from steptime.core.note import Fact
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.ailments.host.host import PAGE_FAULT_S
from steptime.diagnose.diagnosis import diagnose
from steptime.errors import DamagedRunError, UsageError
from steptime.launch.origin import read_capabilities
from steptime.levers.base import Facts
from steptime.measure.fold.host_lines import read_host
from steptime.measure.fold.run_fold import measure
from steptime.measure.fold.run_records import RecordReader, RunRecords
from steptime.measure.source.scan import NAME as SOURCE
from steptime.measure.source.scan import read_source, write_source
from steptime.measure.tried.trial_lines import read_trial
from steptime.measure.values.measurement import Measurement
from steptime.measure.values.model.anatomy import Instant
from steptime.measure.values.training_values import CommandTraining
from steptime.measure.wall.trainings import trainings_in
from steptime.record import files
from steptime.record.lines import Torn
from steptime.record.live.begun import number_alike, read_begun
from steptime.tune.search.bench import Baseline, EpochGap
from steptime.tune.trials.facts.kernel_use import KernelUse, kernel_use
from steptime.tune.trials.facts.loop_diffs import live_diffs
from steptime.tune.trials.facts.loop_time import (
    find_epoch,
    loop_part,
    loop_step_s,
    updates_a_step,
)
from steptime.tune.trials.facts.resources import (
    count_cores,
    count_nodes,
    count_physical_cores,
    read_available_bytes,
)
from steptime.tune.trials.facts.source_sites import read_sites
from steptime.tune.trials.kept_trials import has_memory_for_two
from steptime.tune.trials.process_pairs import number_of, pids_of, samples_per_step, startup_s
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.trials.trial_watch import Process, TrialWatch
from steptime.tune.values.study_values import Ending, TrainingScope, TrialEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentFacts:
    """What only the parent knows of a lever's `Facts`.

    Attributes:
        cwd: of the command.
        libraries: allocators that were found.
        environment_names: of the variables that the user set.
    """

    cwd: Path
    libraries: Mapping[str, str]
    environment_names: tuple[str, ...]


_PRODUCTS = ("matmul", "recurrent", "attention")
_MAX_NAMED, _MAX_WORDS = 8, 60


class SeveralTrainingsError(UsageError):
    """The command has several trainings, and the one that is meant was not named, or not seen."""


def make_baseline(
    folder: Path,
    watch: TrialWatch,
    ended: TrialEnded,
    surroundings: ParentFacts,
) -> Baseline:
    """What the trial of the command as written has shown."""
    write_source(folder, cwd=str(surroundings.cwd))
    number = number_of(folder, watch)
    scope = None if number is None else find_scope(folder, number)
    records = _read(folder, ended, number=number, is_named=watch.training is not None)
    measurement = _measure(records, ended)
    loops = read_source(folder).loops if (folder / SOURCE).is_file() else None
    process = watch.first
    ending = ended.ending
    if ending.is_well and ended.outlived_by is not None:
        facts: Mapping[str, Fact] = {"process": ended.outlived_by}
        ending = Ending(end=TrialEnd.FAILED, reason="outlived", facts=facts)
    elif ending.is_well and (process is None or measurement.num_steps == 0):
        ending = Ending(end=TrialEnd.FAILED, reason="no_steps")
    elif ending.is_well:
        ending = replace(ending, reason=None)
    loop_s, epoch = _loop(folder, measurement, pids_of(watch))
    return Baseline(
        ending=ending,
        measurement=measurement,
        diagnosis=diagnose(measurement),
        facts=replace(
            _make_facts(
                watch, measurement, surroundings, _kernel_use(records, process, measurement)
            ),
            loop_edits=None if loops is None else live_diffs(loops),
        ),
        startup_s=0.0 if process is None else startup_s(process, measurement),
        sample_unit=watch.facts.get("sample_unit"),
        samples_per_step=_samples_per_step(folder, measurement, pids_of(watch)),
        loop_step_s=loop_s,
        epoch=epoch,
        may_keep_two=_may_keep_two(folder, watch),
        training=scope,
        sites=read_sites(
            watch.facts.get("edit_sites"),
            measurement.command,
            folder=surroundings.cwd,
            others=[one.file for one in loops or () if one.live is not None],
        ),
    )


def _loop(
    folder: Path, measurement: Measurement, pids: Container[int] | None
) -> tuple[Interval | None, EpochGap | None]:
    """A step of the first rank's loop, which may be made of several updates, and its epoch."""
    lines = read_trial(folder, pids) if measurement.num_steps else ()
    if not lines:
        return None, None
    updates, num_updates = lines[0].updates(), updates_a_step(measurement)
    epoch = find_epoch(updates, num_updates)
    return loop_step_s(loop_part(updates, measurement, epoch=epoch), num_updates), epoch


def _may_keep_two(folder: Path, watch: TrialWatch) -> bool:
    """Whether two processes fit beside each other; on a device they are not tried."""
    head = None if watch.first is None else watch.first.head
    is_one = head is not None and head.device == "cpu" and head.world_size == 1
    return is_one and has_memory_for_two(read_host(folder / files.HOST, Torn()).samples)


def _samples_per_step(
    folder: Path, measurement: Measurement, pids: Container[int] | None
) -> float | None:
    """Of a step, which may be made of several updates."""
    an_update = samples_per_step(folder, pids)
    if an_update is None or measurement.num_steps == 0:
        return None
    return an_update * updates_a_step(measurement)


def _read(folder: Path, ended: TrialEnded, *, number: int | None, is_named: bool) -> RunRecords:
    """The records of the training that is studied.

    Raises:
        SeveralTrainingsError: the command has several and none was named, or it was not seen.
    """
    reader = RecordReader(folder)
    if not is_named and len(reader.trainings) > 1:
        raise SeveralTrainingsError(
            f"the command starts several trainings: {_name(reader.trainings)}.",
            hint="Say which one to tune: --training N",
        )
    if is_named and number is None and ended.ending.is_well:
        seen = _name(reader.trainings) or "none"
        raise SeveralTrainingsError(
            f"the training that was named was not seen. The command started: {seen}.",
            hint="Name one of these: --training N",
        )
    return reader.read(number)


def _name(trainings: Sequence[CommandTraining]) -> str:
    """The numbers and words of trainings, for a message."""
    named = [f"{one.number} ({shlex.join(one.command)[:_MAX_WORDS]})" for one in trainings]
    return ", ".join(named[:_MAX_NAMED])


def find_scope(folder: Path, number: int) -> TrainingScope:
    """By what the processes of a training are recognized in other trials.

    Raises:
        SeveralTrainingsError: the script forked them, so that nothing recognizes them.
    """
    known = number_alike(read_begun(folder / files.PROCESSES))
    pids = next(one.pids for one in trainings_in(folder) if one.training.number == number)
    found = [known.get(pid) for pid in sorted(pids)]
    words = {one[0] for one in found if one is not None}
    if None in found or len(words) != 1:
        raise SeveralTrainingsError(
            f"training {number} cannot be tuned alone: its processes were forked by the script or "
            "started in different ways, so nothing recognizes them in a trial.",
            hint="Tune it by a command of its own.",
        )
    numbers = sorted(one[1] for one in found if one is not None)
    return TrainingScope(number=number, words=words.pop(), numbers=tuple(numbers))


def _measure(records: RunRecords, ended: TrialEnded) -> Measurement:
    # Where we ended it, it did not fail, and nothing is to be said about its end.
    end = ended.process or ProcessEnd(state=RunState.FINISHED)
    return measure(records, end=end)


def _make_facts(
    watch: TrialWatch,
    measurement: Measurement,
    surroundings: ParentFacts,
    use: KernelUse | None,
) -> Facts:
    """What the guest told, and what is known here; `use` is of a step, evaluations included."""
    seen = _take_known(watch.facts)
    head = watch.first.head if watch.first is not None else None
    known = {
        "torch_version": "" if head is None else head.torch,
        "device": "cpu" if head is None else head.device,
        "num_threads": None if head is None else head.num_threads,
        "world_size": 1 if head is None else head.world_size,
        "capabilities": read_capabilities(),
    }
    try:
        facts = from_json(Facts, {**known, **seen})
    except DamagedRunError:
        facts = from_json(Facts, known)
    peak = _fullest_moment(measurement)
    shares = [rank.gc.fraction for rank in measurement.ranks if rank.gc is not None]
    found = measurement.compilation
    return replace(
        facts,
        num_cores=count_cores(),
        num_physical_cores=count_physical_cores(),
        available_bytes=read_available_bytes(),
        libraries=dict(surroundings.libraries),
        environment_names=surroundings.environment_names,
        num_recompiles=None if found is None else sum(event.count for event in found.recompiles),
        memory_fraction=_memory_fraction(measurement),
        minor_faults_per_step=_minor_faults(measurement, use),
        kernel_fraction=_kernel_fraction(measurement, use),
        product_fraction=product_fraction_of(measurement),
        gc_fraction=max(shares, default=None),
        num_numa_nodes=count_nodes(),
        syncs_per_step=measurement.syncs_per_step,
        held_bytes=_held_bytes(measurement),
        peak_bytes=None if peak is None else peak.by_part,
        peak_phase=None if peak is None else peak.phase,
    )


def _take_known(told: Mapping[str, Any]) -> dict[str, Any]:
    """The guest's fields that have a value: what it could not see, the parent may.

    An empty list is a value: there is none.
    """
    names = {field.name for field in fields(Facts)}
    return {name: value for name, value in told.items() if name in names and value is not None}


def _kernel_use(
    records: RunRecords, process: Process | None, measurement: Measurement
) -> KernelUse | None:
    """What a step of the first process needed at most, with what came between the steps."""
    if process is None or process.head is None or measurement.num_steps == 0:
        return None
    pid = process.head.pid
    samples = [
        sample for one in records.streams if one.head.pid == pid for sample in one.signals.memory
    ]
    num_updates = updates_a_step(measurement)
    start = 0 if measurement.steady is None else measurement.steady.first_step
    ends_s = [tick.end_s for tick in process.ticks]
    use = kernel_use(samples, ends_s, first=max(1, round(start * num_updates)))
    if use is None:
        return None
    return KernelUse(
        minor_faults=None if use.minor_faults is None else use.minor_faults * num_updates,
        system_s=None if use.system_s is None else use.system_s * num_updates,
    )


def _held_bytes(measurement: Measurement) -> dict[str, int] | None:
    """What the fullest rank holds by part, as far as it was measured."""
    found = measurement.memory
    return None if found is None else {p.name: p.bytes for p in found.parts if p.bytes is not None}


def _fullest_moment(measurement: Measurement) -> Instant | None:
    """The moment of a step at which most is held; None where no step was followed."""
    found = None if measurement.memory is None else measurement.memory.timeline
    return None if found is None else found.peak


def _memory_fraction(measurement: Measurement) -> float | None:
    """What the fullest rank held at its peak, of the memory of its device or process."""
    uses = [rank.device_memory or rank.host_memory for rank in measurement.ranks]
    found = [use.peak_bytes / use.limit_bytes for use in uses if use and use.limit_bytes]
    return max(found, default=None)


def _minor_faults(measurement: Measurement, use: KernelUse | None) -> float | None:
    """Page faults a step of the first rank: its own where they are known, else at most."""
    memory = measurement.ranks[0].host_memory if measurement.ranks else None
    own = None if memory is None else memory.minor_faults_per_step
    return own if own is not None or use is None else use.minor_faults


def product_fraction_of(measurement: Measurement) -> float | None:
    """The share of a step in operators that are products and nothing else, by their own time."""
    count, steady = measurement.count, measurement.steady
    if count is None or steady is None or not steady.mean_s:
        return None
    classes = [one for one in count.classes if one.name in _PRODUCTS]
    times_s = [one.time_s for one in classes if one.time_s is not None]
    on_device = any(one.device_time_s is not None for one in count.classes)
    if on_device or len(times_s) < len(classes):
        return None
    return min(1.0, math.fsum(times_s) / steady.mean_s)


def _kernel_fraction(measurement: Measurement, use: KernelUse | None) -> float | None:
    """The share of a step that the kernel takes on the first rank, as if one thread waited for it.

    That is at least what its page faults take: the kernel counts its own time in ticks only, and
    corrects it for what the process did when it started.
    """
    if not measurement.ranks:
        return None
    memory, step = measurement.ranks[0].host_memory, measurement.ranks[0].step_time_s
    own_s = None if memory is None else memory.system_cpu_s_per_step
    system_s = own_s if own_s is not None or use is None else use.system_s
    if system_s is None or step is None or step.estimate <= 0:
        return None
    faults_s = (_minor_faults(measurement, use) or 0.0) * PAGE_FAULT_S.value
    return min(1.0, max(system_s, faults_s) / step.estimate)
