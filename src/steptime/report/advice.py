"""What to do next: one sentence and one command, chosen from what was found and already done.

In: a Measurement and its Diagnosis. Out: an Act, whose command is the report's last line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from steptime.core.types import BottleneckKind, Diagnosis, Measurement, RunState
from steptime.report.words import fill_in

MAX_COMMAND = 200
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
    "no_steps": "See that the command trains with an optimizer of torch, then measure again:",
    "too_few_steps": "Let it train for more steps, then measure again:",
    "noise": "Let it train longer, or on a quieter machine, and measure again:",
    "unattributed_time": (
        "See what the script does between forward, backward and optimizer, then measure again:"
    ),
    "INPUT_BOUND": "Prepare batches ahead of the step, then measure again:",
    "STRAGGLER": "Look at rank {late_rank}: its machine, its share of the data; measure again:",
    "CONTENDED": "Measure again when the machine is quiet:",
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
    if measurement.num_steps == 0 and measurement.end.state is RunState.FAILED:
        sentence = "Mend what the script itself reports, then measure again:"
    if sentence is None:
        return Act(sentence="This report again:", command=show)
    return Act(sentence=sentence, command=_same_command(measurement))


def _remedy(diagnosis: Diagnosis | None) -> str | None:
    """What mends the primary finding, or None where nothing is to be mended."""
    findings = () if diagnosis is None else diagnosis.findings
    primary = next((f for f in findings if diagnosis and f.kind is diagnosis.kind), None)
    if primary is None or primary.kind is None:
        return None
    kind = primary.kind
    # A straggler's cause is a phase, not what is to be mended.
    cause = None if kind is BottleneckKind.STRAGGLER else primary.cause
    return fill_in(REMEDIES.get(cause or "", REMEDIES.get(kind.value)), primary)


def _same_command(measurement: Measurement) -> str:
    """The command to measure again; dots for one that cannot be copied from a terminal."""
    command = f"steptime run -- {shlex.join(measurement.command)}"
    can_copy = command.isprintable() and len(command) <= MAX_COMMAND
    return command if can_copy else "steptime run -- ..."
