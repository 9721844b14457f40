"""Makes the baseline from the folder of its trial: measured, diagnosed, with facts for the levers.

In: a trial's folder and how the trial ended. Out: a `Baseline`. Nothing here starts a process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from steptime.core.codec import from_json
from steptime.core.process_end import ProcessEnd, RunState
from steptime.diagnose.diagnosis import diagnose
from steptime.errors import DamagedRunError
from steptime.levers.base import Facts
from steptime.measure.run_fold import measure
from steptime.measure.run_records import read_records
from steptime.measure.source.scan import write_source
from steptime.measure.values.measurement import Measurement
from steptime.tune.search.bench import Baseline
from steptime.tune.trials.process_pairs import samples_per_step
from steptime.tune.trials.resources import count_cores, count_physical_cores, read_available_bytes
from steptime.tune.trials.trial_process import TrialEnded
from steptime.tune.trials.trial_watch import Process, TrialWatch
from steptime.tune.values.study_values import Ending, TrialEnd

# Words of /proc/cpuinfo that levers know, all of them Intel's and AMD's own names.
_CAPABILITIES = ("amx_bf16", "amx_fp16", "avx512_bf16", "avx512_fp16")


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


def make_baseline(
    folder: Path,
    watch: TrialWatch,
    ended: TrialEnded,
    surroundings: ParentFacts,
    *,
    reason: str | None = None,
) -> Baseline:
    """What the trial of the command as written has shown; `reason` of one that finished."""
    write_source(folder, cwd=str(surroundings.cwd))
    measurement = _measure(folder, ended)
    process = watch.first
    ending = ended.ending
    if ending.is_well and (process is None or measurement.num_steps == 0):
        ending = Ending(end=TrialEnd.FAILED, reason="no_steps")
    elif ending.is_well:
        ending = replace(ending, reason=reason)
    return Baseline(
        ending=ending,
        measurement=measurement,
        diagnosis=diagnose(measurement),
        facts=_make_facts(watch, measurement, surroundings),
        startup_s=0.0 if process is None else _startup_s(process, measurement),
        sample_unit=watch.facts.get("sample_unit"),
        samples_per_step=_samples_per_step(folder, measurement),
    )


def _samples_per_step(folder: Path, measurement: Measurement) -> float | None:
    """Of a step, which may be made of several updates."""
    an_update = samples_per_step(folder)
    if an_update is None or measurement.num_steps == 0:
        return None
    return an_update * max(1.0, measurement.num_optimizer_updates / measurement.num_steps)


def _measure(folder: Path, ended: TrialEnded) -> Measurement:
    # Where we ended it, it did not fail, and nothing is to be said about its end.
    end = ended.process or ProcessEnd(state=RunState.FINISHED)
    return measure(read_records(folder), end=end)


def _startup_s(process: Process, measurement: Measurement) -> float:
    """From the start of the command to the end of the first update."""
    began_unix_s = 0.0 if process.head is None else process.head.t_unix_s
    first_unix_s = began_unix_s + process.ticks[0].end_s
    return max(0.0, first_unix_s - measurement.started_unix_s)


def _make_facts(watch: TrialWatch, measurement: Measurement, surroundings: ParentFacts) -> Facts:
    """What the guest told, and what is known here."""
    seen = _take_known(watch.facts)
    head = watch.first.head if watch.first is not None else None
    known = {
        "torch_version": "" if head is None else head.torch,
        "device": "cpu" if head is None else head.device,
        "num_threads": None if head is None else head.num_threads,
        "world_size": 1 if head is None else head.world_size,
        "capabilities": list(_cpu_capabilities()),
    }
    try:
        facts = from_json(Facts, {**known, **seen})
    except DamagedRunError:
        facts = from_json(Facts, known)
    return replace(
        facts,
        num_cores=count_cores(),
        num_physical_cores=count_physical_cores(),
        available_bytes=read_available_bytes(),
        libraries=dict(surroundings.libraries),
        environment_names=surroundings.environment_names,
        minor_faults_per_step=_minor_faults(measurement),
        system_cpu_fraction=_system_fraction(measurement),
    )


def _take_known(told: Mapping[str, Any]) -> dict[str, Any]:
    """The guest's fields that have a value: what it could not see, the parent may."""
    names = {field.name for field in fields(Facts)}
    return {
        name: value for name, value in told.items() if name in names and value not in (None, [])
    }


def _cpu_capabilities() -> tuple[str, ...]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return tuple(word for word in _CAPABILITIES if word in flags)


def _minor_faults(measurement: Measurement) -> float | None:
    """Page faults a step of the first rank."""
    memory = measurement.ranks[0].host_memory if measurement.ranks else None
    return None if memory is None else memory.minor_faults_per_step


def _system_fraction(measurement: Measurement) -> float | None:
    """The share of the first rank's CPU time that the kernel took."""
    if not measurement.ranks:
        return None
    memory, cpu = measurement.ranks[0].host_memory, measurement.ranks[0].step_cpu_s
    if memory is None or memory.system_cpu_s_per_step is None or cpu is None or cpu.estimate <= 0:
        return None
    return min(1.0, memory.system_cpu_s_per_step / cpu.estimate)
