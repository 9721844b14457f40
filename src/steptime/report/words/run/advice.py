"""Says what to do next: one sentence and one command, chosen from what was found and already done.

In: a Measurement and its Diagnosis. Out: an Act, whose command is the report's last line. The rows
of `diagnose/ailments` have the remedies and levers; this module chooses one.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from steptime import levers
from steptime.core.process_end import RunState
from steptime.core.units import format_speedup
from steptime.diagnose.ailments import contention
from steptime.diagnose.ailments.all_ailments import FAULTS, ailment_named, ailment_of
from steptime.diagnose.ailments.compute.computing import CAN_FUSE, LEVERS
from steptime.diagnose.ailments.contention import is_of_machine
from steptime.diagnose.ailments.memory.memory_limits import OUT_OF_MEMORY
from steptime.diagnose.ailments.scale import INFO_FRACTION
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis, Finding, Severity
from steptime.levers.base import Facts, OptimizerFacts
from steptime.measure.values.measurement import Measurement
from steptime.report.words.run.input_levers import fits_input, is_superseded
from steptime.report.words.run.run_words import describe_title, fill_in
from steptime.report.words.run.show_words import is_cell, show_command, words_again

MAX_COMMAND = 400
"""A longer command is not repeated, because it is too long to copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What to do, as a sentence, and the command to type."""

    sentence: str
    command: str


MAX_LEVERS = 4
"""How many likely levers are named; to try all of them, the user leaves `--levers` out."""

AGAIN = "Then measure again:"

_OF_CONVOLUTIONS = ("channels_last", "cudnn_benchmark")

_UNSEEN = ("wide_convolutions",)
"""Levers of whose ground a run shows nothing: a study finds out."""

_OF_THE_USER = "interpreter"
"""A lever that needs `--python`: the user has to name an interpreter."""

_CHANGE_THE_TRAINING = ("low_memory_states",)
"""Levers of findings that `tune` does not try: whole runs over seeds have to speak for them."""

_ENOUGH_ZEROS = 0.95
"""The lever `sparse_input` leaves an input of fewer zeros alone (its `MIN_ZEROS`)."""

_CELLS = ("LSTMCell", "GRUCell")
_OF_WRITTEN_GELU = ("aten.tanh", "aten.erf", "aten.pow")

_OF_LOOPS = "vectorized_loops"
"""A lever that needs an edit of a loop that can be made while the script runs."""

_OF_THREADS = ("num_threads", "wait_policy")
"""Levers that need several threads computing on the CPU."""


def next_act(
    measurement: Measurement, diagnosis: Diagnosis | None, *, store: str | None = None
) -> Act:
    """Return the act that makes most sense now, or else how to see this report again.

    `store` is the folder that holds the store of the run, if that is not the store of this folder.
    """
    show = show_command(measurement.run_id, training=_number(measurement), store=store)
    if measurement.end.state in (RunState.RUNNING, RunState.STILL_TRAINING):
        return Act(sentence="The run goes on. See it again later:", command=show)
    if _died_of_memory(diagnosis) and not is_cell(measurement.command):
        sentence = f"{OUT_OF_MEMORY.remedy} Or let Steptime find what makes it fit, at the same "
        sentence += "global batch:"
        return Act(sentence=sentence, command=fit_command(measurement))
    opening = opening_findings(diagnosis)
    serious = (f for f in opening if not is_of_machine(f) and f.severity is not Severity.INFO)
    finding = next(serious, None) or next(iter(opening), None)
    act = None if finding is None else _relieve(finding, measurement, show)
    return act or Act(sentence="This report again:", command=show)


def _relieve(finding: Finding, measurement: Measurement, show: str) -> Act | None:
    """Return what remedies a finding: its levers, or an act by hand; None if there is nothing."""
    row = ailment_of(finding)
    remedy = fill_in(row.remedy, finding) if row else None
    if row is None or remedy is None:
        return None
    if finding.cause == "non_finite" and not _knows_layers(measurement):
        sentence = "Let Steptime name the layer and the samples of the first bad number:"
        return Act(sentence=sentence, command=_command("steptime run --health --", measurement))
    levers, known = _levers_of(finding, measurement)
    if not (levers or known) or measurement.end.state is RunState.FAILED:
        return Act(sentence=f"{remedy} {AGAIN}", command=_same_command(measurement))
    if not levers:
        sentence = f"The recipe already uses what relieves this ({', '.join(known)})."
        return Act(sentence=f"{sentence} This report again:", command=show)
    these = "this lever" if len(levers) == 1 else "these levers"
    sentence = f"{remedy} Or let Steptime try {these} and prove the result{_most(finding)}:"
    if is_cell(measurement.command):
        sentence = f"{remedy} Or put the training into a file, and let Steptime try {these} there:"
    if known:
        sentence = f"The recipe already uses {' and '.join(known)}. Let Steptime try other levers "
        sentence += f"beside it and prove the result{_most(finding)}:"
    return Act(sentence=sentence, command=trial_command(levers, measurement))


def _most(finding: Finding) -> str:
    """Return what a remedy can give at most, if that is known."""
    known = finding.headroom_speedup
    return "" if known is None else f", at most {format_speedup(known)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverChoice:
    """The levers to try for a finding, or why there are none, as a machine word."""

    levers: tuple[str, ...] = ()
    missing: str | None = None


def trial_levers(finding: Finding, measurement: Measurement) -> LeverChoice:
    """Return the levers that a trial for this finding alone would try."""
    row = ailment_of(finding)
    if row is None or not row.levers:
        return LeverChoice(missing="no_lever")
    if measurement.end.state is RunState.FAILED:
        return LeverChoice(missing="failed")
    levers, known = _levers_of(finding, measurement)
    if not levers:
        return LeverChoice(missing="in_recipe" if known else "not_here")
    return LeverChoice(levers=tuple(levers))


def _levers_of(finding: Finding, measurement: Measurement) -> tuple[list[str], list[str]]:
    """Return the levers to offer, and those of the finding that the run had on."""
    row, in_use = ailment_of(finding), _in_use(measurement)
    names = () if row is None else row.levers
    shares = {one.name: one.value for one in finding.evidence}
    if finding.kind is BottleneckKind.BALANCED and "compute" in shares:
        names = LEVERS  # nothing stands out, and most of a step is arithmetic
    found = [name for name in names if _may_help(name, measurement)]
    if not _has_live_edit(finding, measurement):
        found = [name for name in found if name != _OF_LOOPS]
    if (finding.names or {}).get("room") == "cores_busy" and measurement.workers is not None:
        found = [name for name in found if name != "dataloader"]  # no core for one more worker
    is_updating = shares.get("optimizer", 0.0) >= INFO_FRACTION.value

    def order(name: str) -> tuple[bool, bool]:
        # What takes back something that was seen to be on is likelier than anything else.
        is_likely = name in ("no_checkpointing", _OF_LOOPS)
        return not is_likely, not (is_updating and name == "fused_optimizer")

    found.sort(key=order)
    new = [name for name in found if name not in in_use and not is_superseded(name, in_use)]
    return new[:MAX_LEVERS], [name for name in found if name in in_use]


def _has_live_edit(finding: Finding, measurement: Measurement) -> bool:
    """Return whether a lever can make the edit of a loop, or of one in the data of a wait."""
    if finding.kind is not BottleneckKind.INPUT_BOUND:
        return finding.edit is not None and finding.edit.is_live
    edits = [one.edit for one in measurement.python_loops if one.phase in ("fetch", "collate")]
    return any(edit is not None and edit.is_live for edit in edits)


def _knows_layers(measurement: Measurement) -> bool:
    """Return whether somebody has looked at the layers already."""
    return measurement.health is not None and measurement.health.layers is not None


def _may_help(lever: str, measurement: Measurement) -> bool:
    """Return whether the lever may apply here, as far as the measurement shows."""
    count = measurement.count
    if lever == _OF_THE_USER or lever in (*_CHANGE_THE_TRAINING, *_UNSEEN):
        return False
    if speaks_against(lever, measurement):
        return False
    if lever == "no_checkpointing":
        return count is not None and count.recomputed > 0
    if lever in _OF_CONVOLUTIONS:
        found = count is not None and any(one.name == "convolution" for one in count.classes)
        is_cuda = any(rank.device == "cuda" for rank in measurement.ranks)
        return found and (is_cuda or lever != "cudnn_benchmark")
    if lever == "fused_attention":
        return any(one.way == "written" for one in measurement.attention or ())
    if lever == "fused_gelu":
        return count is not None and any(
            one.name.startswith(_OF_WRITTEN_GELU) and "gelu" in one.module_kind.lower()
            for one in count.operators
        )
    if lever == "sparse_input":
        seen = None if measurement.operators is None else measurement.operators.zero_input
        return seen is not None and seen.zero_fraction >= _ENOUGH_ZEROS
    if lever == "fused_rnn":
        return count is not None and any(one.kind in _CELLS for one in count.modules)
    if lever == "ddp_no_sync":  # it leaves out exchanges before the last of an update
        return any(
            (one.num_exchanges or 0) > one.num_optimizer_updates for one in measurement.ranks
        )
    if lever in _OF_THREADS:
        ranks = measurement.ranks
        return all(rank.device == "cpu" and rank.num_threads != 1 for rank in ranks)
    return fits_input(lever, measurement)


def _in_use(measurement: Measurement) -> tuple[str, ...]:
    """Return the levers that the recipe of the run turned on."""
    use = measurement.recipe
    return () if use is None else tuple(one.name for one in use.levers if one.error is None)


_NOT_THE_LOADER = ("copies", "worker_startup", "preprocessing")
"""Findings of the input of which `data bench` says no more than the run does."""


def bench_command(finding: Finding, measurement: Measurement) -> str | None:
    """Return the command that measures the parts of the input; None where it would not help."""
    is_input = finding.kind is BottleneckKind.INPUT_BOUND and finding.cause not in _NOT_THE_LOADER
    has_ended = measurement.end.state is not RunState.FAILED
    return _command("steptime data bench --", measurement) if is_input and has_ended else None


def trial_command(levers: Sequence[str], measurement: Measurement) -> str:
    """Return the command that tries these levers beside those of the run's recipe.

    A study starts from the command as it is written, so it has to know what the recipe has.
    """
    use = measurement.recipe
    recipe = f" --recipe {shlex.quote(use.path)}" if use and _in_use(measurement) else ""
    options = f"{_which(measurement)}{recipe} --levers {','.join(levers)}"
    return _command(f"steptime tune{options} --", measurement)


def fit_command(measurement: Measurement) -> str:
    """Return the command that makes the training fit into the memory that it had."""
    limit = memory_limit(measurement)
    option = "" if limit is None else f" --memory-limit {size_word(limit)}"
    return _command(f"steptime fit{option} --", measurement)


def memory_limit(measurement: Measurement) -> int | None:
    """Return the most memory that the training could have [bytes]; None where it is not known."""
    memory = measurement.memory
    if memory is not None and memory.death is not None and memory.death.limit_bytes is not None:
        return memory.death.limit_bytes
    rank = next(iter(measurement.ranks), None)
    if rank is None:
        return None
    if rank.device != "cpu":
        return rank.device_bytes
    return None if rank.host_memory is None else rank.host_memory.limit_bytes


def size_word(size: int) -> str:
    """Return a size as an option takes it: whole GiB or MiB, rounded down."""
    gib, mib = size // (1 << 30), size // (1 << 20)
    return f"{gib}GiB" if gib and size % (1 << 30) == 0 else f"{mib}MiB" if mib else f"{size}"


def _which(measurement: Measurement) -> str:
    """Return the option that names the training, if the command has several."""
    number = _number(measurement)
    return "" if number is None else f" --training {number}"


def _number(measurement: Measurement) -> int | None:
    """Return the number of the training, if the command has several."""
    training = measurement.training
    return None if training is None or training.is_alone else training.number


def choose_headline(diagnosis: Diagnosis) -> Finding | None:
    """Return the primary finding, or a more severe one that is not a bottleneck.

    The machine comes last, however severe: the script cannot mend it. `opening_findings` has it.
    """
    heads = [f for f in diagnosis.findings if f.kind is None or f.kind is diagnosis.kind]
    own = (
        f
        for f in heads
        if not is_of_machine(f) and (f.kind is diagnosis.kind or f.severity is not Severity.INFO)
    )
    return next(own, None) or next(iter(heads), None)


def opening_findings(diagnosis: Diagnosis | None) -> tuple[Finding, ...]:
    """Return what a report opens with, in order.

    An error or a hang is first; then the machine, where the run lost by it; then the bottleneck.
    """
    head = None if diagnosis is None else choose_headline(diagnosis)
    if diagnosis is None or head is None:
        return ()
    lost = (f for f in diagnosis.findings if is_of_machine(f) and f.severity is not Severity.INFO)
    machine = tuple(f for f in lost if f is not head)
    return (head, *machine) if head.cause in FAULTS else (*machine, head)


def describe_opening(kind: str | None, opens_with: str | None) -> str | None:
    """Return the heading of a report that is known by machine words; None if nothing is known.

    Beside the state of the machine, the kind is of interest, too.
    """
    bottleneck = None if kind is None else describe_title(kind)
    kinds = (None, BottleneckKind.CONTENDED)
    rows = (ailment_named(kind, opens_with) for kind in kinds if opens_with is not None)
    row = next(filter(None, rows), None)
    title = None if row is None else row.title or describe_title(BottleneckKind.CONTENDED)
    is_beside = row in contention.AILMENTS and bottleneck not in (None, title)
    return f"{title}, {bottleneck}" if is_beside else title or bottleneck


def _died_of_memory(diagnosis: Diagnosis | None) -> bool:
    findings = () if diagnosis is None else diagnosis.findings
    return any(finding.cause == "out_of_memory" for finding in findings)


def _same_command(measurement: Measurement) -> str:
    """Return the command that measures again."""
    if is_cell(measurement.command):
        return shlex.join(measurement.command)
    return _command("steptime run --", measurement)


def _command(verb: str, measurement: Measurement) -> str:
    """Return the script's command behind our verb, or dots if it cannot be copied."""
    command = f"{verb} {shlex.join(words_again(measurement.command))}"
    can_copy = command.isprintable() and len(command) <= MAX_COMMAND
    return command if can_copy else f"{verb} ..."


MANY_CORES = 64
"""Where the cores are not known, no lever is refused for their number."""


def speaks_against(lever: str, measurement: Measurement) -> bool:
    """Return whether a lever refuses by what the run showed, and not because facts are missing."""
    if not measurement.ranks:
        return False
    applies, facts = levers.load(lever).applies, _facts_of(measurement)
    nothing = Facts(torch_version=facts.torch_version, num_cores=MANY_CORES)
    return applies(nothing) is None and applies(facts) is not None


def _facts_of(measurement: Measurement) -> Facts:
    rank, host, found = measurement.ranks[0], measurement.host, measurement.compilation
    in_use = () if measurement.recipe is None else measurement.recipe.levers
    is_own = found is not None and not any(one.name == "compile" for one in in_use)
    return Facts(
        torch_version=rank.torch_version,
        device=rank.device,
        capabilities=rank.capabilities,
        num_cores=MANY_CORES if host is None else host.num_cores,
        num_threads=rank.num_threads,
        world_size=rank.world_size,
        uses_compile=bool(found.num_graphs) if found and is_own else None,
        optimizers=tuple(
            OptimizerFacts(name=name, can_fuse=name in CAN_FUSE) for name in rank.optimizers
        )
        or None,
    )
