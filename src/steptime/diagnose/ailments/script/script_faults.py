"""Ailments of the script itself: what its source, switches and compiled functions show."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from steptime.core.process_end import RunState
from steptime.diagnose.ailments.ailment import Ailment, Asked, by_facts
from steptime.diagnose.ailments.memory.memory_limits import find_out_of_memory
from steptime.diagnose.ailments.signals import count, make_finding
from steptime.diagnose.values.finding import Finding, Severity
from steptime.measure.values.measurement import Measurement

SWITCHES: Mapping[str, Severity] = {
    "anomaly_mode": Severity.WARNING,
    "launch_blocking": Severity.WARNING,
    "profiler": Severity.WARNING,
    "tracing": Severity.WARNING,
    "malloc_debug": Severity.WARNING,
    "deterministic": Severity.INFO,
    "distributed_debug": Severity.INFO,
}
"""Switches that slow down each operator are warnings; the last two may be deliberate choices."""


_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_INTERRUPTS = ("KeyboardInterrupt", f"exit code {128 + signal.SIGINT}")


def find_failure(measurement: Measurement) -> Finding | None:
    """No bottleneck: an exception, a crash or an exit code ended the command, not its own end.

    Memory that ran out has a row of its own, and who interrupts a run knows it.
    """
    end, error = measurement.end, next(iter(measurement.errors), None)
    if end.state is RunState.FAILED:
        reason = error.type if error else f"exit code {end.exit_code}"
    elif end.signal in _CRASHES:
        reason = signal.Signals(end.signal).name
    else:
        return None
    if reason in _INTERRUPTS or find_out_of_memory(measurement) is not None:
        return None
    num_updates = error.num_updates if error else measurement.num_optimizer_updates
    finding = make_finding(
        FAILURE,
        severity=Severity.CRITICAL,
        evidence=(count("updates_done", num_updates),),
    )
    names = {"reason": reason, **_other_place(measurement)}
    return replace(finding, where=error.where if error else None, names=names)


def _other_place(measurement: Measurement) -> dict[str, str]:
    """Return where another rank ended at the same update, by an error of the same class."""
    first, *others = measurement.errors or (None,)
    if first is None or measurement.num_ranks < 2 or first.where is None:
        return {}
    alike = ((one.type, one.num_updates) == (first.type, first.num_updates) for one in others)
    places = [one.where for one, is_alike in zip(others, alike, strict=True) if is_alike]
    return next(({"other": place} for place in places if place not in (None, first.where)), {})


def find_switch(measurement: Measurement, *, name: str) -> Finding | None:
    """No bottleneck by itself: a debug switch was on while the training ran."""
    switch = next((switch for switch in measurement.switches if switch.name == name), None)
    if switch is None:
        return None
    found = make_finding(_BY_CAUSE[name], severity=SWITCHES[name], evidence=())
    return replace(found, where=switch.where)


def find_suspicion(measurement: Measurement, *, code: str) -> Finding | None:
    """No bottleneck: the training may not do what was meant."""
    found = next((item for item in measurement.suspicions if item.code == code), None)
    num_updates = measurement.num_optimizer_updates
    if found is None or num_updates == 0 or measurement.num_backwards <= num_updates:
        return None
    evidence = (count("backwards_per_update", measurement.num_backwards / num_updates),)
    finding = make_finding(_BY_CAUSE[code], severity=Severity.WARNING, evidence=evidence)
    return replace(finding, where=found.where, where_text=found.text)


def find_graph_breaks(measurement: Measurement) -> Finding | None:
    """No measured bottleneck: torch.compile broke a graph at lines of the user's code."""
    compilation = measurement.compilation
    breaks = [event for event in compilation.breaks if event.where] if compilation else []
    if not breaks:
        return None
    worst = max(breaks, key=lambda event: event.count)
    evidence = (count("num_graph_breaks", sum(event.count for event in breaks)),)
    finding = make_finding(GRAPH_BREAKS, severity=Severity.WARNING, evidence=evidence)
    return replace(finding, where=worst.where, where_text=worst.reason)


def _suspicion(code: str, *, what: str, sentence: str, remedy: str) -> Ailment:
    """Return a row on what the source seems to do."""
    return Ailment(
        cause=code,
        what=what,
        needs="the script's source, backward calls",
        rule=partial(find_suspicion, code=code),
        asked=Asked.ALWAYS,
        title="suspicion",
        sentence=sentence,
        explanation="This is a suspicion from the source.",
        remedy=remedy,
        when_contended=by_facts("It is read from the source, and backward calls are counted."),
    )


def _switch(name: str, *, what: str, sentence: str, remedy: str) -> Ailment:
    """Return a row on a switch that was on."""
    return Ailment(
        cause=name,
        what=what,
        needs="switches",
        rule=partial(find_switch, name=name),
        asked=Asked.ALWAYS,
        title="debug switch",
        sentence=sentence,
        remedy=remedy,
        when_contended=by_facts("The switch was on, whoever else was there."),
    )


FAILURE = Ailment(
    cause="failure",
    what="an exception, a crash or an exit code ended the command",
    needs="how it ended",
    rule=find_failure,
    asked=Asked.ALWAYS,
    title="failed",
    sentence="the command ended with {reason}, after {updates_done} updates.",
    suspicion="Another rank ended at {other}, after as many updates. Suspected: they waited for "
    "each other in different calls, as where one has fewer batches and has left its loop.",
    remedy="Mend what the script itself reports.",
    when_contended=by_facts("It ended so, whoever else was there."),
)
ACCUMULATION_LOSS = _suspicion(
    "accumulation_loss",
    what="a loss is accumulated and not divided",
    sentence="{backwards_per_update} backward passes add up in each update, and nothing seems to "
    "divide the loss by their number.",
    remedy="Look at that line. If the passes add up, divide the loss by their number.",
)
ACCUMULATION_ZEROED = _suspicion(
    "accumulation_zeroed",
    what="gradients are zeroed before they were used",
    sentence="gradients seem to be zeroed before each of the {backwards_per_update} backward "
    "passes of an update, so that only the last pass counts.",
    remedy="Look at that line. Zero the gradients only after the update.",
)
ANOMALY_MODE = _switch(
    "anomaly_mode",
    what="autograd's anomaly detection is on",
    sentence="autograd's anomaly detection is on: it traces and checks every operator.",
    remedy="Turn it off when you have found the error.",
)
LAUNCH_BLOCKING = _switch(
    "launch_blocking",
    what="the host waits for the end of each kernel that it launches",
    sentence="CUDA_LAUNCH_BLOCKING is on: the host waits for the end of each kernel.",
    remedy="Unset CUDA_LAUNCH_BLOCKING.",
)
PROFILER = _switch(
    "profiler",
    what="a profiler runs along",
    sentence="a profiler runs along with the training.",
    remedy="Take the profiler out.",
)
TRACING = _switch(
    "tracing",
    what="a debugger or a coverage tool traces each line",
    sentence="a debugger, a profiler or a coverage tool traces the Python code.",
    remedy="Run without it.",
)
MALLOC_DEBUG = _switch(
    "malloc_debug",
    what="Python checks its memory at each allocation",
    sentence="Python checks its memory at each allocation (PYTHONMALLOC, development mode).",
    remedy="Run without these checks.",
)
DETERMINISTIC = _switch(
    "deterministic",
    what="deterministic algorithms are on",
    sentence="deterministic algorithms are on; some of them are slower.",
    remedy="Turn them off where two runs need not have the same bits.",
)
DISTRIBUTED_DEBUG = _switch(
    "distributed_debug",
    what="torch.distributed checks each collective",
    sentence="TORCH_DISTRIBUTED_DEBUG is on: torch checks each collective.",
    remedy="Unset TORCH_DISTRIBUTED_DEBUG, or set it to INFO.",
)
GRAPH_BREAKS = Ailment(
    cause="graph_breaks",
    what="a compiled function falls into pieces",
    needs="events of torch.compile",
    rule=find_graph_breaks,
    asked=Asked.ALWAYS,
    title="graph breaks",
    sentence="torch.compile broke the graph at {num_graph_breaks} places of this code.",
    remedy="Move what breaks the graph out of the compiled function (fullgraph=True names the "
    "first such place).",
    levers=("no_compile",),
    when_contended=by_facts("Breaks are counted."),
)
AILMENTS = (
    FAILURE,
    *(ACCUMULATION_LOSS, ACCUMULATION_ZEROED, ANOMALY_MODE, LAUNCH_BLOCKING, PROFILER, TRACING),
    *(MALLOC_DEBUG, DETERMINISTIC, DISTRIBUTED_DEBUG, GRAPH_BREAKS),
)
_BY_CAUSE = {row.cause: row for row in AILMENTS}
