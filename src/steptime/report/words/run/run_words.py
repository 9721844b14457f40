"""The wording of the machine words that people meet: typed values in, text out.

The text of a finding is in its row in `diagnose/ailments`; this module fills in the numbers. A word
without a wording is shown as it is. `text` does the layout, `advice` says what to do next.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from steptime.core.evidence import Evidence
from steptime.core.note import Note
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.units import format_count, format_seconds, format_speedup, format_value
from steptime.diagnose.ailments.ailment import Removal
from steptime.diagnose.ailments.all_ailments import ailment_of
from steptime.diagnose.values.finding import BottleneckKind, Finding, Severity
from steptime.measure.values.observations import ScriptError
from steptime.report.words.run.algorithm_words import ALGORITHMS
from steptime.report.words.study.fact_words import describe_facts, fill, listed

PHASES: Mapping[str, str] = {
    "input_wait": "input wait",
    "process_wait": "process wait",
    "rollout": "rollout",
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

WALL_PARTS: Mapping[str, str] = {
    **SPANS,
    "interpreter": "start of Python",
    "imports": "imports",
    "data_set": "data set",
    "model": "model",
    "loading": "loading a checkpoint",
    "setup": "set-up",
    "first_batch": "first batch",
    "warmup": "warm-up",
    "steps": "steps that trained",
    "logging": "logging",
    "stalled": "stalled",
    "wasted_updates": "wasted updates",
    "skipped_updates": "skipped updates",
    "earlier_starts": "earlier starts",
    "unseen": "not seen",
    "after_steps": "after the last step",
    "exit": "end of the process",
}

CHANGES: Mapping[str, str] = {
    "throttle": "what holds the device's clock down",
    "device_clock": "the device's clock",
    "neighbor": "the cores that other programs keep busy",
    "core_wait": "the time for which the run waits for a core",
    "cpu_clock": "the clock of the cores",
    "swap": "reads from swap",
    "page_cache": "the page cache, and reads from storage",
    "memory": "the memory that is left",
    "disk": "reads from storage",
    "input_size": "the work of a step",
}
"""What changed with a shift, by the words of `Shift.causes`; steps may be longer or shorter."""

MISSING: Mapping[str, str] = {
    "not_applicable_on_cpu": "the run was on the CPU",
    "no_loader_seen": "no DataLoader was used",
    "loads_in_workers": "worker processes do it",
    "not_split": "the loader does not show its parts",
    "not_sampled": "no counted step was sampled",
    "no_module_seen": "no call of a module was seen",
    "inside_forward": "it is part of the model's forward",
    "inside_rollout": "it is part of the rollout",
    "no_rollout_seen": "nothing acted in an environment or generated",
    "no_process_wait_seen": "nothing was received from another process",
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

NUMBERS: Mapping[str, str] = {
    "gradient_norm": "norm of the gradients",
    "skipped_updates": "scaled gradients",
    "nan": "NaN",
    "exactly": "on",
    "at_latest": "at the latest",
    "still_going": "to the end of the run",
    "recovered": "for a while",
}
"""The words of a number of the training that is not finite."""

ATTENTION: Mapping[str, str] = {
    "mask": "its mask",
    "mask_gradient": "a mask that needs gradients",
    "dropout": "dropout of weights",
    "dtype": "32-bit numbers",
    "layout": "how its inputs are laid out in memory",
    "several_reasons": "several of its arguments together (the document lists them)",
    "no_single_reason": "its shapes, or kernels that are switched off",
}
"""Why torch did not take a faster kernel for attention."""

WORDS: Mapping[str, str] = {
    **NUMBERS,
    **ATTENTION,
    **ALGORITHMS,
    "one_kernel": "Let one kernel update all parameters (the optimizer's `fused=True`)",
    "deferred_exchange": "with larger batches or with the last backward pass of each update alone "
    "(no_sync of DDP, set_requires_gradient_sync of FSDP2)",
    "larger_batches": "with larger batches",
    "few_calls": "Update all parameters in a few calls (torch._foreach_*) instead of one by one",
    "cores_free": "Use more workers, since cores are free, or make",
    "cores_busy": "Make",
    "interpreter": "the start of Python",
    "data_set": "the data set",
    "loading": "loading a checkpoint",
    "setup": "what else came before the first step",
    "warmup": "warm-up",
    "first_batch": "the first batch",
    "compile": "compiling",
    "copy": "copying the weights",
    "gather": "gathering from the ranks",
    "serialize": "pickling",
    "write": "writing",
}
"""All words that stand in the sentence of a finding, beside those of phases."""

_SAME_SHARE = 0.01
"""Shares of a step that differ by less are the same to a reader."""

OBVIOUS = (
    *("inside_forward_and_loss", "not_compiled_together", "single_rank", "no_steady_steps"),
    *("no_rollout_seen", "no_process_wait_seen"),
)
"""Reasons for an absent phase that other lines of the report make plain."""

# Sentences by the code of the note; `{facts}` stands for all its facts.
NOTES: Mapping[str, str] = {
    "no_python_seen": (
        "No Python process was seen: the command started none, or in a way that keeps Steptime "
        "out (-S, -I, -E, a cleaned environment)."
    ),
    "old_python": "Python {versions} is too old to be watched; 3.10 or newer is needed.",
    "python_without_guest": (
        "Steptime did not get into these Python processes, and knows nothing of them: {count} "
        "({names}). Start them without -S, -I and -E, and with the environment of the command."
    ),
    "no_nvml_binding": (
        "How busy the device was, its power and its clocks are not known, because NVIDIA's "
        "package is missing: pip install nvidia-ml-py"
    ),
    "nvml_failed": (
        "How busy the device was, its power and its clocks are not known, because the driver's "
        "library did not start. Try: nvidia-smi"
    ),
    "no_torch_seen": "Python ran, but it never imported torch.",
    "old_torch": "torch {versions} is too old to be watched; 2.4 or newer is needed.",
    "hooks_failed": "Steptime could not get into torch: {reasons}.",
    "no_steps_seen": (
        "torch was used, but no update of an optimizer and no backward call ended a step "
        "({facts}). What a script derives and updates by hand cannot be seen."
    ),
    "no_step_ended": "Backward calls were seen, but no step of an optimizer ended ({facts}).",
    "steps_by_backward": (
        "In {steps} of {num_steps} steps no optimizer stepped: the weights are updated by hand, "
        "and the end of each backward call counts as a step."
    ),
    "closure_evaluations": (
        "The optimizer evaluated its closure {evaluations} times in {optimizer_steps} steps: a "
        "step is one call of optimizer.step."
    ),
    "loops_in_sums": (
        "{loops} training loops, or stages with other optimizers, stepped, but steps after the "
        "first 20,000 updates are summed, so the report shows them as one: its step time is of all."
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
        "Several threads of rank {ranks} stepped; the report shows the one that stepped most."
    ),
    "several_processes_stepped": (
        "Several processes stepped as rank {ranks}, for example because a launcher started the "
        "training again; the report shows the start that stepped most."
    ),
    "trainings_beside": (
        "Other trainings of this command stepped at the same time and shared the machine with it "
        "(training {numbers}): alone, its steps may be faster."
    ),
    "lost_updates": "Updates that are not in the record (full disk, lost file): {count}.",
    "watched_in_bursts": (
        "Watching each step would cost too much: {watched} of {steps} were watched, in bursts; "
        "phases are their shares of the usual step. A watched step took {watched_s}, the usual one "
        "{step_s}."
    ),
    "host_unobserved": (
        "The machine was observed for {observed_s} of the {counted_s} that the counted steps took, "
        "because Steptime ends with the command: its load, its memory, and times in which the "
        "training stood still are not known after that."
    ),
    "torn_lines": "Lines of the record that were cut short and are left out: {count}.",
    "record_changed": (
        "{files}: changed while the command ran, and not by Steptime, which only appends; what the "
        "report says of these steps may be untrue."
    ),
    "guest_failures": "Steptime failed inside the training, which continued; where: {facts}.",
    "device_time_missing": (
        "Rank {ranks} sent no times from its device; the report shows the host's clock alone."
    ),
    "recipe_lever_failed": "These levers of the recipe are off because they failed: {facts}.",
    "recipe_lever_unseen": (
        "It is not known whether these levers of the recipe are on, because no process reported "
        "them: {levers}."
    ),
    "recipe_differs": (
        "This run is not as the recipe was proven: {facts}. The speedup may differ here; "
        "`steptime tune` proves it again."
    ),
}


def is_interrupt(error: ScriptError) -> bool:
    """Return whether somebody stopped the script (Ctrl-C): that is no fault of it."""
    return error.type == "KeyboardInterrupt"


def describe_error(error: ScriptError) -> str:
    """Say what ended a process, where, in which phase and after how many updates."""
    where = "" if error.where is None else f" at {error.where}"
    phase = "" if error.phase is None else f" in {describe_phase(error.phase)}"
    updates = f"after {format_count(error.num_updates)} optimizer updates"
    if is_interrupt(error):
        return f"interrupted{where}{phase}, {updates}"
    text = " ".join(error.text.split())
    return f"{error.type}{where}{phase}, {updates}: {text}" if text else f"{error.type}{where}"


def describe_title(kind: BottleneckKind | str) -> str:
    """Return the name of a kind as people write it, such as `input-bound`."""
    return str(getattr(kind, "value", kind)).replace("_", "-").lower()


def describe_heading(finding: Finding) -> str:
    """Return the kind of a finding, or its name if it is not a bottleneck."""
    if finding.kind is not None:
        return describe_title(finding.kind)
    row = ailment_of(finding)
    return (row.title if row else None) or finding.severity.value


def describe_phase(name: str) -> str:
    """Return the name of a phase."""
    return PHASES.get(name, name)


def describe_span(name: str) -> str:
    """Return the name of a span."""
    return SPANS.get(name, name)


def describe_wall_part(name: str) -> str:
    """Return the name of a part of the run's whole time."""
    return WALL_PARTS.get(name, name)


def describe_missing(word: str) -> str:
    """Say why a phase was not observed, or which signal was missing."""
    return MISSING.get(word) or PHASES.get(word, word)


def describe_note(note: Note) -> str:
    """Return the sentence of a note, or its code and facts if there is no sentence for them."""
    facts = describe_facts(note.facts or {})
    together = listed(facts)
    sentence = fill(NOTES.get(note.code), {**facts, "facts": together})
    return f"{note.code} {together}".rstrip() if sentence is None else sentence.replace(" ()", "")


def describe_finding(finding: Finding, step_time_s: float | None, step: str = "a step") -> str:
    """Say what was found with its numbers, what a remedy gives at most, where, and the cause."""
    row = ailment_of(finding)
    wants = [describe_missing(word) for word in finding.missing if word not in PHASES]
    parts = (
        fill_in(row.sentence if row else None, finding) or _describe_unknown(finding),
        describe_headroom(finding, step_time_s, step),
        _describe_place(finding),
        _describe_own_share(finding),
        fill_in(row.explanation, finding) if row else None,  # None of a straggler without a phase
        fill_in(row.suspicion, finding) if row else None,
        f"It would be more certain with {' and '.join(wants)}." if wants else None,
    )
    return " ".join(part for part in parts if part)


def _describe_unknown(finding: Finding) -> str:
    """Return the machine words and the numbers of a finding that has no wording."""
    word = finding.cause or (finding.kind.value if finding.kind else "")
    numbers = {e.name: _value(e) for e in finding.evidence}
    return f"{word} {listed(numbers)}".rstrip() + "."


def _describe_place(finding: Finding) -> str | None:
    """Say where it is, with its calls: `At train.py:187 loss.item(), 3 per step`."""
    if finding.where is None:
        return None
    line = f" `{finding.where_text}`" if finding.where_text else ""
    found = {e.name: _value(e) for e in finding.evidence}
    of_run = _is_of_run(finding)
    told = f", {found['calls']}{' times' if of_run else ' per step'}" if "calls" in found else ""
    return f"At {finding.where}{line}{told}."


def _describe_own_share(finding: Finding) -> str | None:
    """Say what remains without other programs, where they kept the cores busy."""
    own = next((e for e in finding.evidence if e.name == "own_share"), None)
    if own is None or finding.severity is Severity.INFO:
        return None
    measured = finding.evidence[0].value  # the rules give the share first
    if measured - own.value < _SAME_SHARE:
        return None
    return f"Without what other programs may have taken, it is {_value(own)}."


def fill_in(sentence: str | None, finding: Finding) -> str | None:
    """Fill the finding's evidence into the sentence; return None if some of it is missing."""
    return fill(sentence, _values(finding))


def _values(finding: Finding) -> dict[str, str]:
    """Return evidence and names by name; those of its own phase have general names, too."""
    values = {e.name: _value(e) for e in finding.evidence}
    names = dict(finding.names or {})
    if finding.cause is not None and f"{finding.cause}_excess" in values:
        names["cause"] = finding.cause
        values["excess"] = values[f"{finding.cause}_excess"]
    phase = names.get("phase")
    for end in ("before", "after"):
        if f"phase_{phase}_{end}" in values:
            values[f"phase_{end}"] = values[f"phase_{phase}_{end}"]
    return values | {name: WORDS.get(word) or describe_phase(word) for name, word in names.items()}


def _value(evidence: Evidence) -> str:
    if evidence.unit == "cores":
        return format_count(evidence.value)
    return format_value(evidence.value, evidence.unit)


def describe_headroom(finding: Finding, step_time_s: float | None, step: str) -> str | None:
    """Say how long a step would take without what the row removes; None if that is not known."""
    row = ailment_of(finding)
    removal = row.removal if row else None
    condition = None if removal is None else _describe_removal(removal, finding)
    if finding.headroom_speedup is None or removal is None or condition is None:
        return None
    most = f"at most {format_speedup(finding.headroom_speedup)} faster"
    if step_time_s is None or removal.whole != "step":
        return f"{condition} the {removal.whole} would be {most}."
    left = format_seconds(step_time_s / finding.headroom_speedup)
    return f"{condition} {step} would take at least {left}: {most}."


def _describe_removal(removal: Removal, finding: Finding) -> str | None:
    """Return the condition of a headroom, with those of its parts that the finding holds."""
    if not removal.parts:
        return removal.condition
    held = {e.name for e in finding.evidence}
    parts = [fill_in(words, finding) for name, words in removal.parts.items() if name in held]
    told = [part for part in parts if part]
    return f"{removal.condition} {joined(told)}," if told else None


def joined(parts: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`; there is at least one part."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _is_of_run(finding: Finding) -> bool:
    """Return whether it lies beside the steps, so that its calls are counted over the whole run."""
    row = ailment_of(finding)
    return row is not None and row.removal is not None and row.removal.whole in ("loop", "run")


_ENDS: Mapping[RunState, str] = {
    RunState.FINISHED: "finished",
    RunState.RUNNING: "still running",
    RunState.STILL_TRAINING: "still training in the background",
}


def describe_end(end: ProcessEnd) -> str:
    """Say how the command ended, in a few words."""
    if end.state is RunState.KILLED:
        if end.signal == signal.SIGINT:
            return "interrupted (SIGINT)"
        return "cut short" if end.signal is None else f"killed by {_signal_name(end.signal)}"
    if end.state is RunState.FAILED:
        return "failed" if end.exit_code is None else f"failed with exit code {end.exit_code}"
    return _ENDS.get(end.state, "end not seen")


def describe_short_end(end: ProcessEnd) -> str:
    """Return how the command ended, in short: `finished`, `exit 1`, `SIGKILL`, `running`."""
    if end.state is RunState.KILLED:
        return "cut short" if end.signal is None else _signal_name(end.signal)
    if end.state is RunState.FAILED:
        return "failed" if end.exit_code is None else f"exit {end.exit_code}"
    return "?" if end.state is RunState.UNKNOWN else end.state.value.replace("_", " ")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
