"""Writes the paragraph for a run in which no step was seen: how it ended, and why it shows nothing.

In: a Measurement without steps and its Diagnosis. Out: a text without layout.
"""

from __future__ import annotations

from steptime.core.process_end import RunState
from steptime.diagnose.values.finding import Diagnosis
from steptime.measure.values.measurement import Measurement
from steptime.report.words.run.outliving_words import describe_outliving, describe_return
from steptime.report.words.run.run_words import describe_end, describe_finding, describe_note


def is_empty(m: Measurement) -> bool:
    """Return whether a paragraph says it all: no step was seen, and memory did not run out."""
    return m.num_steps == 0 and not ran_out(m)


def ran_out(m: Measurement) -> bool:
    """Return whether the run died because memory ran out, and it is known who held the memory."""
    if m.memory is None or m.end.state not in (RunState.FAILED, RunState.KILLED):
        return False
    num_kills = (m.host.num_oom_kills or 0) if m.host is not None else 0
    return num_kills > 0 or any(error.is_memory for error in m.errors)


def describe_empty(m: Measurement, diagnosis: Diagnosis, *, store: str | None = None) -> str:
    """Say how the command ended, which run it is, what was found nevertheless, and the notes."""
    if m.outliving:
        return f"{describe_outliving(m.outliving)}; {describe_return(m.run_id, store=store)}"
    findings = [f for f in diagnosis.findings if f.cause != "no_steps"]
    parts = [
        f"the command {_ending(m)}; nothing to measure. Run {m.run_id}.",
        *(describe_finding(finding, None) for finding in findings),
        *(describe_note(note) for note in m.notes),
    ]
    return " ".join(parts)


def _ending(m: Measurement) -> str:
    if m.end.state is RunState.FINISHED:
        return "finished without a step"
    verb = "was " if m.end.state is RunState.KILLED else ""
    # The last moments of a process that was killed are not known.
    is_certain = all(note.code != "unwritten_steps" for note in m.notes)
    step = "its first step" if is_certain else "a step was recorded"
    return f"{verb}{describe_end(m.end)} before {step}"
