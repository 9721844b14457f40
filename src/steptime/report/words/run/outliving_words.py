"""The wording of processes that outlive their command: a training in the background, mostly."""

from __future__ import annotations

from collections.abc import Sequence

from steptime.core.printable import printable
from steptime.core.units import format_count
from steptime.measure.values.outliving import OutlivingProcess, ProcessState
from steptime.report.words.run.show_words import show_command

_MAX_NAMED = 4
"""More process ids than these are counted."""


def describe_outliving(processes: Sequence[OutlivingProcess]) -> str:
    """Say which processes go on: `still training in process 1234 (python train.py, 120 steps)`."""
    unknown = [one for one in processes if one.state is ProcessState.UNKNOWN]
    running = [one for one in processes if one.state is not ProcessState.UNKNOWN]
    parts = []
    if any(one.is_training for one in running):
        parts.append(f"still training in {_listed(running)}")
    elif running:
        verb = "goes on" if len(running) == 1 else "go on"
        parts.append(f"{_listed(running)} {verb}, without a step so far")
    if unknown:
        parts.append(f"it cannot be seen from here whether {_listed(unknown)} has ended")
    return "; ".join(parts)


def describe_return(run_id: str, *, store: str | None = None) -> str:
    """Say how to see the run later."""
    return f"look again with: {show_command(run_id, store=store)}"


def _listed(processes: Sequence[OutlivingProcess]) -> str:
    """Return `process 1234 (python train.py, 120 steps so far)`, or the same of several."""
    named = [_describe(one) for one in processes[:_MAX_NAMED]]
    if len(processes) > _MAX_NAMED:
        named.append(f"{len(processes) - _MAX_NAMED} more")
    what = "process" if len(processes) == 1 else "processes"
    return f"{what} {', '.join(named)}"


def _describe(one: OutlivingProcess) -> str:
    host = "" if one.host is None else f" on host {printable(one.host)}"
    facts = [] if one.name is None else [printable(one.name)]
    if one.is_training:
        steps = "step" if one.num_steps == 1 else "steps"
        facts.append(f"{format_count(one.num_steps)} {steps} so far")
    return f"{one.pid}{host}" + (f" ({', '.join(facts)})" if facts else "")
