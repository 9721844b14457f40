"""What to do next: one sentence and one command, chosen from what was found and already done.

In: a Measurement and its Diagnosis. Out: an Act, whose command is the report's last line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.process_end import RunState
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis, Finding
from steptime.measure.values.measurement import Measurement
from steptime.report.words.run_words import fill_in

MAX_COMMAND = 400
"""A longer command is not repeated: nobody copies it from a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What to do, as a sentence, and the command to type."""

    sentence: str
    command: str


_WORKERS = "Load in worker processes (DataLoader: num_workers above 0), then measure again:"

# By cause, else by kind: what to do before the same command is measured again. In braces stands
# the evidence of that name.
REMEDIES: Mapping[str, str] = {
    "fetch": _WORKERS,
    "collate": _WORKERS,
    "loader": _WORKERS,
    "worker_fetch": (
        "Use more workers than {num_workers} while cores are free, or make a sample cheaper to "
        "read, then measure again:"
    ),
    "worker_collate": (
        "Use more workers than {num_workers} while cores are free, or a cheaper collate_fn, then "
        "measure again:"
    ),
    "worker_startup": (
        "Keep the workers between epochs (DataLoader: persistent_workers=True), then measure again:"
    ),
    "collectives": "Exchange less often (accumulate gradients under no_sync), then measure again:",
    "preprocessing": (
        "Do that work in the data set, in worker processes (DataLoader: num_workers above 0), then "
        "measure again:"
    ),
    "copies": (
        "Pin the batches (DataLoader: pin_memory=True) and copy with non_blocking=True, then "
        "measure again:"
    ),
    "tiny_operators": (
        "Let torch.compile fuse them, or put their work into fewer, larger operators, then measure "
        "again:"
    ),
    "overhead": "Let torch.compile fuse operators, or make the batch larger, then measure again:",
    "launches": "Let torch.compile fuse operators (mode reduce-overhead), then measure again:",
    "sync": "Read values from the device less often (every tenth step, say), then measure again:",
    "gc": "Freeze what lives long (gc.freeze() before the loop), then measure again:",
    "recompile": (
        "Mark what varies as dynamic (torch.compile(dynamic=True)) or pad to a few sizes, then "
        "measure again:"
    ),
    "page_faults": "Try another allocator (jemalloc, tcmalloc), then measure again:",
    "out_of_memory": (
        "Make the batch smaller, or accumulate gradients over smaller ones, then measure again:"
    ),
    "swapping": "Give the run less to hold or the machine more memory, then measure again:",
    "evaluation": "Evaluate less often, or on less data, then measure again:",
    "checkpoint": "Write checkpoints less often, then measure again:",
    "shift": "See what changed on the machine or in the script then, and measure again:",
    "shift_throttle": "See to the device's cooling and power limit, then measure again:",
    "shift_device_clock": "See to the device's cooling and power limit, then measure again:",
    "shift_neighbor": "Measure again when the machine is quiet:",
    "shift_cpu_clock": "See to the cooling and the governor of the machine, then measure again:",
    "shift_swap": "Give the run less to hold or the machine more memory, then measure again:",
    "shift_page_cache": "Give the page cache more memory, or read fewer bytes, and measure again:",
    "shift_memory": "See what fills the memory, then measure again:",
    "shift_disk": "See what is read anew (a cache that is full, another file), and measure again:",
    "shift_input_size": "See whether inputs were meant to grow then, and measure again:",
    "shift_phase": "See what the script does there from that step on, and measure again:",
    "stall": "See what that line waits for, mend it, then measure again:",
    "stalled_rank": "See what rank {culprit_rank} does at that line, mend it, then measure again:",
    "leak": (
        "See what the loop keeps: losses with their graph (use .item() or .detach()), lists that "
        "grow; then measure again:"
    ),
    "device_leak": (
        "See what the loop keeps: losses with their graph (use .item() or .detach()), lists that "
        "grow; then measure again:"
    ),
    "graph_breaks": (
        "Move what breaks the graph out of the compiled function (fullgraph=True names the first "
        "one), then measure again:"
    ),
    "accumulation_loss": "Look at that line: divide the loss by the number of passes if they add:",
    "accumulation_zeroed": "Look at that line: zero the gradients after the update only:",
    "anomaly_mode": "Turn it off when the search is over, then measure again:",
    "launch_blocking": "Unset CUDA_LAUNCH_BLOCKING, then measure again:",
    "profiler": "Take the profiler out, then measure again:",
    "tracing": "Run without it, then measure again:",
    "malloc_debug": "Run without it, then measure again:",
    "no_steps": "See that the command trains with an optimizer of torch, then measure again:",
    "too_few_steps": "Let it train for more steps, then measure again:",
    "noise": "Let it train longer, or on a quieter machine, and measure again:",
    "unattributed_time": (
        "See what the script does between forward, backward and optimizer, then measure again:"
    ),
    "INPUT_BOUND": "Prepare batches ahead of the step, then measure again:",
    "STRAGGLER": "Look at rank {late_rank}: its machine, its share of the data; measure again:",
    "CONTENDED": "Measure again when the machine is quiet:",
    "MEMORY_BANDWIDTH_BOUND": (
        "Let torch.compile fuse operators, or use a shorter type, so that fewer bytes are moved; "
        "then measure again:"
    ),
    "COMPUTE_BOUND": (
        "Make the arithmetic cheaper (mixed precision, torch.compile), then measure again:"
    ),
}


def next_act(measurement: Measurement, diagnosis: Diagnosis | None) -> Act:
    """The act that makes most sense now; where there is none, how to see this report again."""
    show = f"steptime show {measurement.run_id}"
    if measurement.end.state is RunState.RUNNING:
        return Act(sentence="The run goes on; look again later:", command=show)
    sentence = _remedy(diagnosis)
    has_failed = measurement.end.state is RunState.FAILED
    if measurement.num_steps == 0 and has_failed and not _died_of_memory(diagnosis):
        sentence = "Mend what the script itself reports, then measure again:"
    if sentence is None:
        return Act(sentence="This report again:", command=show)
    return Act(sentence=sentence, command=_same_command(measurement))


def choose_headline(diagnosis: Diagnosis) -> Finding | None:
    """The primary finding, or one that is no bottleneck and more severe."""
    heads = (f for f in diagnosis.findings if f.kind is None or f.kind is diagnosis.kind)
    return next(heads, None)


def _died_of_memory(diagnosis: Diagnosis | None) -> bool:
    findings = () if diagnosis is None else diagnosis.findings
    return any(finding.cause == "out_of_memory" for finding in findings)


def _remedy(diagnosis: Diagnosis | None) -> str | None:
    """What mends the finding that the report opens with, or None where nothing is to be mended."""
    finding = None if diagnosis is None else choose_headline(diagnosis)
    if finding is None:
        return None
    kind = "" if finding.kind is None else finding.kind.value
    # A straggler's cause is a phase, not what is to be mended.
    cause = None if finding.kind is BottleneckKind.STRAGGLER else finding.cause
    return fill_in(REMEDIES.get(cause or "", REMEDIES.get(kind)), finding)


def _same_command(measurement: Measurement) -> str:
    """The command to measure again; dots for one that cannot be copied from a terminal."""
    command = f"steptime run -- {shlex.join(measurement.command)}"
    can_copy = command.isprintable() and len(command) <= MAX_COMMAND
    return command if can_copy else "steptime run -- ..."
