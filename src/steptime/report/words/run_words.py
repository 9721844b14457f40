"""The wording of every machine word that people meet, in one place: typed values in, text out.

A word that is not in the tables is shown as it is. Layout is left to `text`, what to do
next to `advice`.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress

from steptime.core.evidence import Evidence
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.units import format_count, format_seconds, format_speedup, format_value
from steptime.diagnose.values.finding import BottleneckKind, Finding
from steptime.measure.values.observations import ScriptError
from steptime.report.words.change_words import (
    CHANGE_FACTS,
    CHANGE_TITLES,
    SHIFT_CAUSES,
    phase_names,
)

PHASES: Mapping[str, str] = {
    "input_wait": "input wait",
    "fetch": "fetch",
    "collate": "collate",
    "h2d": "copy to device",
    "forward": "forward",
    "loss": "loss",
    "forward_and_loss": "forward and loss",
    "backward": "backward",
    "gradient_processing": "gradient processing",
    "communication": "communication",
    "optimizer": "optimizer",
    "sync": "sync stalls",
    "other": "other Python",
}

SPANS: Mapping[str, str] = {
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "epoch_start": "epoch start",
    "compile": "compile",
}

# What was found, by cause, else by kind. In braces stands the evidence of that name.
FACTS: Mapping[str, str] = {
    **CHANGE_FACTS,
    "INPUT_BOUND": "a step waits {input_wait_median} for data, {input_wait} of its time.",
    "COMMUNICATION_BOUND": (
        "even the last rank to arrive spends {least_communication} of a step in the exchange."
    ),
    "COMPUTE_BOUND": "forward, backward and optimizer fill {compute} of a step.",
    "MEMORY_BANDWIDTH_BOUND": (
        "operators that memory holds back take {bandwidth_bound} of a step, arithmetic "
        "{arithmetic}."
    ),
    "HOST_BOUND": "the Python process holds a step back.",
    "MEMORY_CAPACITY_BOUND": "there is not enough memory.",
    "preprocessing": (
        "between the loader and the model the script itself works on the batch, {preprocessing} "
        "of a step."
    ),
    "copies": "copies from host to device hold a step back for {h2d_median}, {h2d} of its time.",
    "tiny_operators": (
        "{num_tiny} of {num_operators} operators a step take under 20 µs: starting them costs "
        "more than they do, up to {tiny_operators} of a step."
    ),
    "overhead": (
        "{overhead} of a step goes by between operators, in Python and in starting them, and at "
        "most {operators} into what holds them."
    ),
    "launches": "the device is idle for {idle} of a step, {launches} for want of a launch.",
    "sync": "the host waits for the device in the middle of a step, {sync} of it.",
    "gc": (
        "collections of garbage take {gc} of a step; in rank {gc_rank} {gc_pauses} a step, "
        "{gc_time} together."
    ),
    "recompile": (
        "functions were compiled again {num_recompiles} times; all compiling took {compile_total}."
    ),
    "page_faults": (
        "the operating system hands out memory again, {num_page_faults} page faults a step, "
        "{page_faults} of its CPU time."
    ),
    "out_of_memory": "a process of the run died for want of memory, after {updates_done} updates.",
    "swapping": (
        "memory is read back from swap, {major_faults} page faults a step, {swapping} of its time."
    ),
    "evaluation": (
        "{num_evaluations} evaluations took {evaluation_total}, {evaluation} of all steps and "
        "evaluations."
    ),
    "checkpoint": (
        "{num_checkpoints} checkpoints took {checkpoint_total}, {checkpoint} of all steps and "
        "checkpoints."
    ),
    "leak": (
        "resident memory grows by {slope} a step (95 % interval {slope_low} to {slope_high}), "
        "{growth} in the steps counted; it is at {resident}."
    ),
    "device_leak": (
        "memory allocated on the device grows by {slope} a step (95 % interval {slope_low} to "
        "{slope_high}), {growth} in the steps counted; it is at {resident}."
    ),
    "graph_breaks": "torch.compile broke the graph at {num_graph_breaks} places of this code.",
    "accumulation_loss": (
        "{backwards_per_update} backward passes add up in each update, and nothing seems to divide "
        "the loss by their number: a suspicion from the source."
    ),
    "accumulation_zeroed": (
        "gradients seem to be zeroed before each of {backwards_per_update} backward passes of an "
        "update, so that only the last one counts: a suspicion from the source."
    ),
    "anomaly_mode": "autograd's anomaly detection is on: it traces and checks every operator.",
    "launch_blocking": "CUDA_LAUNCH_BLOCKING is on: each launch waits for its end.",
    "deterministic": "deterministic algorithms are on; some of them are slower.",
    "profiler": "a profiler runs along with the training.",
    "tracing": "a debugger, a profiler or a coverage tool traces the Python code.",
    "distributed_debug": "TORCH_DISTRIBUTED_DEBUG checks each collective.",
    "malloc_debug": "Python allocates its memory with checks (PYTHONMALLOC, development mode).",
    "STRAGGLER": "the others wait for rank {late_rank}, {wait} of a step.",
    "CONTENDED": "other programs kept {others_cores} of {num_cores} cores busy meanwhile.",
    "BALANCED": "no phase that was seen holds a share worth a remedy.",
    "worker_startup": (
        "{num_epoch_starts} starts of an epoch took {epoch_start_total}, {epoch_start} of all "
        "steps and starts."
    ),
    "no_steps": "no optimizer step was seen.",
    "too_few_steps": (
        "{num_steady_steps} steps are left after warmup; {min_steady_steps} are needed."
    ),
    "noise": (
        "the times of the steps scatter: their median is known to {step_time_half_width} only."
    ),
    "unattributed_time": "{unattributed} of a step is in Python code that no marker explains.",
}

# What lies under it, where the fact does not say so already.
CAUSES: Mapping[str, str] = {
    **SHIFT_CAUSES,
    "fetch": "The training process itself reads and decodes the samples.",
    "collate": "The training process itself makes batches of the samples.",
    "loader": "The loader's own work (sampler, pinning) is done in the training process.",
    "worker_fetch": "The loader's workers are too slow at reading and decoding samples.",
    "worker_collate": "The loader's workers are too slow at making batches.",
    "worker_startup": "The loader starts its workers anew each time.",
    "collectives": "It is the exchange of gradients itself, not a wait for a late rank.",
    "neighbor": "Trust the shares of a step more than its times.",
    "copies": "Pinned memory and non_blocking copies would run beside the arithmetic.",
    "gc": "Python looks through all objects for cycles, whatever the phase.",
    "recompile": "Sizes that vary, or values read from Python, make a graph invalid.",
    "page_faults": "The allocator gives memory back and asks for it anew.",
}
LATE_CAUSE = (
    "Rank {late_rank} loses its time in {cause}: {excess} of its step more than the others."
)
"""A straggler's cause is the phase in which it loses its time."""

# The heading of a finding that is no bottleneck, by cause.
TITLES: Mapping[str, str] = {
    "evaluation": "much evaluation",
    "checkpoint": "many checkpoints",
    **CHANGE_TITLES,
    "leak": "memory leak",
    "device_leak": "memory leak",
    "graph_breaks": "graph breaks",
    "accumulation_loss": "suspicion",
    "accumulation_zeroed": "suspicion",
    "anomaly_mode": "debug switch",
    "launch_blocking": "debug switch",
    "deterministic": "debug switch",
    "profiler": "debug switch",
    "tracing": "debug switch",
    "distributed_debug": "debug switch",
    "malloc_debug": "debug switch",
}

# Causes beside the steps: their headroom is over the whole run.
OF_RUN = ("worker_startup", "evaluation", "checkpoint", "recompile")

# What the headroom takes away, by cause, else by kind.
REMOVALS: Mapping[str, str] = {
    "preprocessing": "that work",
    "copies": "those copies",
    "tiny_operators": "the cost of starting them",
    "launches": "that wait",
    "sync": "that wait",
    "gc": "the collections",
    "recompile": "the repeated compiling",
    "page_faults": "the page faults",
    "swapping": "the swapping",
    "evaluation": "the evaluations",
    "checkpoint": "the checkpoints",
    "worker_startup": "the starts of workers",
    "unattributed_time": "that code",
    "INPUT_BOUND": "the wait",
    "COMMUNICATION_BOUND": "the exchange",
    "STRAGGLER": "the wait",
}

# Why a phase was not observed, and signals that a finding wants.
MISSING: Mapping[str, str] = {
    "not_applicable_on_cpu": "the run was on the CPU",
    "no_loader_seen": "no DataLoader was used",
    "loads_in_workers": "worker processes do it",
    "not_split": "the loader does not show its parts",
    "not_sampled": "no counted step was looked at so closely",
    "no_module_seen": "no call of a module was seen",
    "inside_forward": "it is part of the model's forward",
    "inside_forward_and_loss": "compiled together",
    "not_compiled_together": "not compiled together",
    "no_backward_seen": "no backward pass was seen",
    "no_optimizer_seen": "no optimizer stepped",
    "single_rank": "there is one rank",
    "no_steady_steps": "no steady steps",
    "quiet_machine": "a quiet machine",
    "operators": "a count of operators",
    "host_load": "the load of the machine",
    "workers": "the times of the loader's workers",
    "device_time": "times from the device",
}

OBVIOUS = ("inside_forward_and_loss", "not_compiled_together", "single_rank", "no_steady_steps")
"""Reasons for an absent phase that other lines of the report make plain."""

# By code; `{facts}` is all facts of the note.
NOTES: Mapping[str, str] = {
    "no_python_seen": (
        "No Python process was seen: the command started none, or in a way that keeps Steptime "
        "out (-S, -I, -E, a cleaned environment)."
    ),
    "old_python": "Python {versions} is too old to be watched; 3.10 or newer is needed.",
    "python_without_guest": (
        "Python processes that Steptime did not get into, of which nothing is known: {count} "
        "({names}). They must be started without -S, -I and -E, and with the environment that "
        "the command was given."
    ),
    "no_nvml_binding": (
        "How busy the device was, its power and its clocks are not known, for NVIDIA's package "
        "is missing: pip install nvidia-ml-py"
    ),
    "nvml_failed": (
        "How busy the device was, its power and its clocks are not known: the driver's library "
        "did not start. Try: nvidia-smi"
    ),
    "no_torch_seen": "Python ran, but it never imported torch.",
    "old_torch": "torch {versions} is too old to be watched; 2.4 or newer is needed.",
    "hooks_failed": "Steptime could not get into torch: {reasons}.",
    "no_steps_seen": (
        "torch was used, but nothing that ends a step was seen: no update of an optimizer and no "
        "backward call of autograd ({facts}). What a script derives and updates by hand cannot be "
        "seen."
    ),
    "steps_by_backward": (
        "In {steps} of {num_steps} steps no optimizer stepped: the weights are updated by hand, "
        "and the end of each backward call counts as a step."
    ),
    "unwritten_steps": (
        "torch was used by a process that did not reach its end (killed, crashed or os._exit): "
        "steps of its last 0.2 s, if it made any, are missing."
    ),
    "ended_abruptly": (
        "Rank {ranks} did not reach its end (killed, crashed or os._exit): at most the last "
        "0.2 s of its steps are missing."
    ),
    "several_threads_stepped": (
        "Several threads of rank {ranks} stepped; shown is the one that stepped most."
    ),
    "several_processes_stepped": (
        "Several processes stepped as rank {ranks}; shown is the one that stepped most."
    ),
    "lost_updates": "Updates that are not in the record (full disk, lost file): {count}.",
    "torn_lines": "Lines of the record that were cut short and are left out: {count}.",
    "guest_failures": "Steptime failed inside the training, which went on; where: {facts}.",
    "device_time_missing": (
        "Rank {ranks} sent no times from its device; shown is the host's clock alone."
    ),
    "recipe_lever_failed": "Levers of the recipe that are off, for they failed: {facts}.",
    "recipe_lever_unseen": (
        "Whether levers of the recipe are on is not known, no process told of them: {levers}."
    ),
    "recipe_differs": (
        "Not as when the recipe was proven: {facts}. It may give another speedup here, or none; "
        "`steptime tune` proves it anew."
    ),
}


def describe_error(error: ScriptError) -> str:
    """What ended a process, where, in which phase and after how many updates."""
    where = "" if error.where is None else f" at {error.where}"
    phase = "" if error.phase is None else f" in {describe_phase(error.phase)}"
    updates = f"after {format_count(error.num_updates)} optimizer updates"
    text = " ".join(error.text.split())
    return f"{error.type}{where}{phase}, {updates}: {text}" if text else f"{error.type}{where}"


def describe_title(kind: BottleneckKind | str) -> str:
    """The name of a kind as people write it: `input-bound`."""
    return str(getattr(kind, "value", kind)).replace("_", "-").lower()


def describe_heading(finding: Finding) -> str:
    """The kind of a finding, or what it is where it is no bottleneck."""
    if finding.kind is not None:
        return describe_title(finding.kind)
    return TITLES.get(finding.cause or "", finding.severity.value)


def describe_phase(name: str) -> str:
    """The name of a phase."""
    return PHASES.get(name, name)


def describe_span(name: str) -> str:
    """The name of a span."""
    return SPANS.get(name, name)


def describe_missing(word: str) -> str:
    """Why a phase was not observed, or the signal that was not there."""
    return MISSING.get(word) or PHASES.get(word, word)


def describe_note(note: Note) -> str:
    """The sentence of a note; its code and facts where there is no sentence for them."""
    facts = note.facts or {}
    listed = _listed(facts)
    sentence = _fill(NOTES.get(note.code), {**facts, "facts": listed})
    return f"{note.code} {listed}".rstrip() if sentence is None else sentence.replace(" ()", "")


def describe_finding(finding: Finding, step_time_s: float | None) -> str:
    """What was found with its numbers, where, what it would give to mend it, and the cause."""
    kind = "" if finding.kind is None else finding.kind.value
    is_late = finding.kind is BottleneckKind.STRAGGLER  # its cause is a phase
    cause = "" if is_late else finding.cause or ""
    fact = fill_in(FACTS.get(cause), finding) or fill_in(FACTS.get(kind), finding)
    if fact is None:
        numbers = {e.name: _value(e) for e in finding.evidence}
        fact = f"{finding.cause or kind} {_listed(numbers)}".rstrip() + "."
    headroom = describe_headroom(finding, step_time_s)
    parts = (fact, _describe_place(finding), headroom, _describe_cause(finding))
    return " ".join(part for part in (*parts, _describe_wants(finding)) if part)


def _describe_place(finding: Finding) -> str | None:
    """Where it is, with calls and time: `At train.py:187 loss.item(), 3 a step, 4.1 ms`."""
    if finding.where is None:
        return None
    line = f" `{finding.where_text}`" if finding.where_text else ""
    found = {e.name: e for e in finding.evidence}
    per = " times" if finding.cause in OF_RUN else " a step"
    calls = f", {_value(found['calls'])}{per}" if "calls" in found else ""
    time = f", {_value(found['site_time'])}" if "site_time" in found else ""
    return f"At {finding.where}{line}{calls}{time}."


def _describe_cause(finding: Finding) -> str | None:
    """What lies under it; None where the fact says so already."""
    if finding.cause is None:
        return None
    if finding.kind is BottleneckKind.STRAGGLER:
        return fill_in(LATE_CAUSE, finding)
    sentence = fill_in(CAUSES.get(finding.cause), finding)
    return sentence or (None if finding.cause in FACTS else f"Cause: {finding.cause}.")


def _describe_wants(finding: Finding) -> str | None:
    """What would make it surer; absent phases are told elsewhere."""
    wants = [describe_missing(word) for word in finding.missing if word not in PHASES]
    return f"It would be surer with {' and '.join(wants)}." if wants else None


def fill_in(sentence: str | None, finding: Finding) -> str | None:
    """The sentence with the finding's evidence in it; None if some of it is not there."""
    return _fill(sentence, _values(finding))


def _values(finding: Finding) -> dict[str, str]:
    """The evidence by name; that of the finding's own cause under general names too."""
    values = {e.name: _value(e) for e in finding.evidence}
    if finding.cause is not None:
        values["cause"] = describe_phase(finding.cause)
        if f"{finding.cause}_excess" in values:
            values["excess"] = values[f"{finding.cause}_excess"]
    values |= phase_names(values, describe_phase)
    return values


def _value(evidence: Evidence) -> str:
    if evidence.unit == "cores":
        return format_count(evidence.value)
    return format_value(evidence.value, evidence.unit)


def _fill(sentence: str | None, values: Mapping[str, str]) -> str | None:
    with suppress(KeyError):
        return None if sentence is None else sentence.format_map(values)
    return None


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def describe_headroom(finding: Finding, step_time_s: float | None) -> str | None:
    """What removing the cause could give at most; None where that is not known."""
    if finding.headroom_speedup is None:
        return None
    kind = "" if finding.kind is None else finding.kind.value
    removed = REMOVALS.get(finding.cause or "") or REMOVALS.get(kind, "it")
    most = f"at most {format_speedup(finding.headroom_speedup)} faster"
    if step_time_s is None or finding.cause in OF_RUN:
        return f"Without {removed} the run would be {most}."
    left = format_seconds(step_time_s / finding.headroom_speedup)
    return f"Without {removed} a step would take {left}: {most}."


def describe_end(end: ProcessEnd) -> str:
    """How the command ended, in a few words."""
    if end.state is RunState.KILLED:
        return f"killed by {_signal_name(end.signal)}"
    if end.state is RunState.FAILED:
        return f"failed with exit code {end.exit_code}"
    return {RunState.FINISHED: "finished", RunState.RUNNING: "still running"}.get(
        end.state, "end not seen"
    )


def describe_short_end(end: ProcessEnd) -> str:
    """How the command ended, for a column: `finished`, `exit 1`, `SIGKILL`, `running`, `?`."""
    if end.state is RunState.KILLED:
        return _signal_name(end.signal)
    if end.state is RunState.FAILED:
        return f"exit {end.exit_code}"
    return "?" if end.state is RunState.UNKNOWN else end.state.value


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return "a signal" if number is None else f"signal {number}"
