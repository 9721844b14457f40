"""The one document that programs read: an Envelope, and its rendering to JSON.

In: the values of the chain, or an error. Out: text of exactly one JSON document, as
`report/schema/run.schema.json` describes it and `docs/reference/json.md` explains it.
What to measure, and where the text is written, is left to others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.schema import SCHEMA
from steptime.diagnose.utilization import hardware_utilization, model_utilization
from steptime.diagnose.values.finding import Diagnosis, Finding
from steptime.diagnose.values.reach_values import Picture
from steptime.errors import SteptimeError
from steptime.measure.values.anatomy import Anatomy
from steptime.measure.values.measurement import (
    INNER_PHASES,
    PHASES,
    SPANS,
    Measurement,
    Phase,
    RankSummary,
    Span,
)
from steptime.measure.values.observations import RecipeUse
from steptime.measure.values.profiled import Profile
from steptime.measure.values.run_summary import RunSummary
from steptime.measure.values.work import Count
from steptime.plan.memory_fit import remedies, table_of, wanted_bytes
from steptime.report.text.waterfall_text import roofline_data, waterfall_data


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorItem:
    """One thing that went wrong; programs branch on `code`, people read the rest."""

    code: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The result of one command, whatever happened.

    Attributes:
        command: the verb: `run`, `show` or `runs`.
        exit_code: what the process ends with.
        data: the result, or None where there is none.
        errors: what went wrong.
        schema: version of the document.
    """

    command: str
    exit_code: int
    data: Mapping[str, Any] | None = None
    errors: tuple[ErrorItem, ...] = ()
    schema: int = SCHEMA

    @property
    def status(self) -> str:
        """`ok`, `partial` (errors, yet there is data) or `error` (there is none)."""
        if not self.errors:
            return "ok"
        return "error" if self.data is None else "partial"


def render_json(envelope: Envelope) -> str:
    """The envelope as one JSON document with sorted keys, ASCII only, ended by a newline."""
    document = {
        "schema": envelope.schema,
        "command": envelope.command,
        "status": envelope.status,
        "exit_code": envelope.exit_code,
        "data": envelope.data,
        "errors": [asdict(item) for item in envelope.errors],
    }
    return json.dumps(_plain(document), sort_keys=True, indent=2, allow_nan=False) + "\n"


def error_envelope(command: str, error: SteptimeError) -> Envelope:
    """The envelope of a command that ended in `error` and has no data."""
    item = ErrorItem(code=error.code, message=str(error), hint=error.hint)
    return Envelope(command=command, exit_code=error.exit_code, errors=(item,))


def run_envelope(
    measurement: Measurement,
    diagnosis: Diagnosis | None,
    *,
    command: str,
    exit_code: int,
    picture: Picture | None = None,
) -> Envelope:
    """The envelope of a run; a script that failed makes it partial, and says so."""
    return Envelope(
        command=command,
        exit_code=exit_code,
        data=run_data(measurement, diagnosis, picture),
        errors=_end_errors(measurement.end),
    )


def run_data(
    measurement: Measurement, diagnosis: Diagnosis | None, picture: Picture | None = None
) -> dict[str, Any]:
    """The `data` of `run` and `show`: every key is always there; null means not observed."""
    m = measurement
    return {
        "run_id": m.run_id,
        "command": list(m.command),
        "started_unix_s": m.started_unix_s,
        "duration_s": m.duration_s,
        "end": _fields(m.end),
        "num_steps": m.num_steps,
        "num_optimizer_updates": m.num_optimizer_updates,
        "num_backwards": m.num_backwards,
        "num_skipped_updates": m.num_skipped_updates,
        "num_ranks": m.num_ranks,
        "period": m.period,
        "steady": _fields(m.steady),
        "phases": _phases(m.phases),
        "phases_missing": _phases_missing(m.phases),
        "spans": _spans(m.spans),
        "copies_per_step": m.copies_per_step,
        "syncs_per_step": m.syncs_per_step,
        "ranks": [_rank(rank) for rank in m.ranks],
        "workers": _fields(m.workers),
        "host": _fields(m.host),
        "overhead": _fields(m.overhead),
        "prepare_fraction": m.prepare_fraction,
        "sites": [asdict(site) for site in m.sites],
        "operators": _fields(m.operators),
        "count": count_data(m.count),
        "count_missing": m.count_missing,
        "memory": memory_data(m),
        "profile": _profile(m.profile),
        "mfu": asdict(model_utilization(m)),
        "hfu": asdict(hardware_utilization(m)),
        "roofline": None if picture is None else roofline_data(picture.roofline),
        "waterfall": None if picture is None else waterfall_data(picture.waterfall),
        "compilation": _fields(m.compilation),
        "switches": [asdict(switch) for switch in m.switches],
        "suspicions": [asdict(suspicion) for suspicion in m.suspicions],
        "errors": [asdict(error) for error in m.errors],
        "recipe": _recipe(m.recipe),
        "stalls": [asdict(stall) for stall in m.stalls],
        "notes": [{"code": n.code, "facts": dict(n.facts or {})} for n in m.notes],
        "diagnosis": None if diagnosis is None else _diagnosis(diagnosis),
    }


def memory_data(m: Measurement) -> dict[str, Any] | None:
    """Who holds the memory, the parts by name, and what would make it fit."""
    found: Anatomy | None = m.memory
    if found is None:
        return None
    modes = [
        {"name": mode.name, "bytes_per_parameter": mode.total, "bytes": size}
        for mode, size in table_of(found)
    ]
    parts = {part.name: _without_name(asdict(part)) for part in found.parts}
    return asdict(found) | {
        "parts": parts,
        "states_bytes": found.states_bytes,
        "bytes_per_parameter": found.bytes_per_parameter,
        "would_take": modes,
        "remedies": [asdict(one) for one in remedies(found, wanted_bytes=wanted_bytes(m))],
    }


def _without_name(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != "name"}


def count_data(count: Count | None) -> dict[str, Any] | None:
    """A count with the sums that programs want of it."""
    if count is None:
        return None
    sums = {"total": count.total, "model_flops": count.model_flops, "by_class": count.by_class}
    return asdict(count) | sums


def runs_data(store: str, rows: Iterable[RunSummary]) -> dict[str, Any]:
    """The `data` of `runs`: the store and its runs, newest first as given."""
    return {"store": store, "runs": [asdict(row) for row in rows]}


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


def _fields(value: Any) -> Any:
    return None if value is None else asdict(value)


def _phases(phases: Iterable[Phase]) -> dict[str, Any]:
    """Every phase by name, null where it was not observed."""
    observed = {phase.name: phase for phase in phases if phase.median_s is not None}
    return {name: _phase(observed.get(name)) for name in (*PHASES, *INNER_PHASES)}


def _phase(phase: Phase | None) -> dict[str, Any] | None:
    if phase is None:
        return None
    facts = asdict(phase)
    return {key: facts[key] for key in facts if key not in ("name", "missing")}


def _phases_missing(phases: Iterable[Phase]) -> dict[str, str]:
    """Why a phase is null, for those whose reason is known."""
    return {p.name: p.missing for p in phases if p.median_s is None and p.missing is not None}


def _spans(spans: Iterable[Span]) -> dict[str, Any]:
    """Every span by name, null where none was seen."""
    found = {
        span.name: {"total_s": span.total_s, "num_steps_touched": span.num_steps_touched}
        for span in spans
    }
    return {name: found.get(name) for name in SPANS}


def _rank(rank: RankSummary) -> dict[str, Any]:
    missing = _phases_missing(rank.phases)
    return {**asdict(rank), "phases": _phases(rank.phases), "phases_missing": missing}


def _diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "kind": diagnosis.kind,
        "findings": [_finding(f) for f in diagnosis.findings],
        "shifts": [asdict(shift) for shift in diagnosis.shifts],
    }


def _recipe(use: RecipeUse | None) -> dict[str, Any] | None:
    if use is None:
        return None
    return {
        "path": use.path,
        "study_id": use.study_id,
        "speedup": asdict(use.speedup),
        "levers": {one.name: dict(one.settings) for one in use.levers},
        "failed": {one.name: one.error for one in use.levers if one.error is not None},
        "differences": [asdict(one) for one in use.differences],
    }


def _profile(profile: Profile | None) -> dict[str, Any] | None:
    """The profile with what programs would sum up of it."""
    if profile is None:
        return None
    ranks = []
    for rank in profile.ranks:
        devices = [{**asdict(device), "idle_s": device.idle_s} for device in rank.devices]
        ranks.append({**asdict(rank), "devices": devices})
    return {**asdict(profile), "ranks": ranks}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "cause": finding.cause,
        "severity": finding.severity,
        "evidence": [asdict(item) for item in finding.evidence],
        "where": finding.where,
        "headroom_speedup": finding.headroom_speedup,
        "missing": list(finding.missing),
    }


def _plain(value: Any) -> Any:
    """The value as JSON knows it; a number that is not finite was not observed: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
