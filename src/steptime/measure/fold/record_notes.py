"""Makes the notes that a reader must know before believing a record, as codes with facts.

In: the raw records and the ranks folded from them. Out: `Note`s; docs/explanation/how-we-measure.md
lists the codes. Each note has one small function in a visible tuple; `report` has the words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steptime.core.note import Fact, Note, Numbers
from steptime.core.stats import median
from steptime.measure.fold.recipe_use import find_recipe, unseen_levers
from steptime.measure.steps.loops_apart import num_summed_loops
from steptime.measure.wall.host_load import observed_part
from steptime.record.places import NUMBER

if TYPE_CHECKING:
    from steptime.measure.fold.run_records import ProcessExit, RunRecords, TorchLoaded
    from steptime.measure.fold.stream import RankStream, StreamEnd
    from steptime.measure.steps.steady_window import StepWindow
    from steptime.measure.steps.step_fold import RankSteps

    Said = TorchLoaded | ProcessExit | StreamEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFacts:
    """The facts behind the notes: the records, the ranks that count, and their windows."""

    records: RunRecords
    has_ended: bool
    ranks: Sequence[RankSteps]
    windows: Sequence[StepWindow]


def make_notes(seen: NoteFacts) -> tuple[Note, ...]:
    """Return all notes that apply, in the order of `NOTES`."""
    found = [rule(seen) for rule in NOTES]
    return tuple(note for note in found if note is not None)


def no_python_seen(seen: NoteFacts) -> Note | None:
    """Note that no Python process loaded the guest, and none was seen to refuse it."""
    records = seen.records
    is_seen = records.starts or records.torches or records.streams or records.host.guestless
    return None if is_seen else Note(code="no_python_seen")


def old_python(seen: NoteFacts) -> Note | None:
    """Note a Python that is too old for the guest."""
    versions = {start.python for start in seen.records.starts if start.k == "old"}
    return _listed("old_python", "versions", versions)


def python_without_guest(seen: NoteFacts) -> Note | None:
    """Note Python processes without the guest, whether or not others loaded it.

    A process that starts slowly may write its line after it was reported missing.
    """
    records = seen.records
    known = {start.pid for start in records.starts} | {torch.pid for torch in records.torches}
    found = {
        python.pid: python.name for python in records.host.guestless if python.pid not in known
    }
    if not found:
        return None
    facts: dict[str, Fact] = {"count": len(found), "names": ", ".join(sorted(set(found.values())))}
    return Note(code="python_without_guest", facts=facts)


def no_nvml_binding(seen: NoteFacts) -> Note | None:
    """Note that steps ran on a device, and no package can read the device's state."""
    missing = seen.records.host.devices_missing
    is_missed = missing == "no_binding" and _has_device(seen)
    return Note(code="no_nvml_binding") if is_missed else None


def nvml_failed(seen: NoteFacts) -> Note | None:
    """Note that steps ran on a device, and the driver's library did not start."""
    missing = seen.records.host.devices_missing
    is_missed = missing not in (None, "no_binding") and _has_device(seen)
    return Note(code="nvml_failed") if is_missed else None


def _has_device(seen: NoteFacts) -> bool:
    return any(rank.head.device != "cpu" for rank in seen.ranks)


def no_torch_seen(seen: NoteFacts) -> Note | None:
    """Note that Python ran with the guest, but never imported torch."""
    records = seen.records
    has_guest = any(start.k == "start" for start in records.starts)
    is_seen = not has_guest or records.torches or records.streams
    return None if is_seen else Note(code="no_torch_seen")


def old_torch(seen: NoteFacts) -> Note | None:
    """Note a torch that is too old for the hooks."""
    versions = {torch.version or "unknown" for torch in seen.records.torches if torch.too_old}
    return _listed("old_torch", "versions", versions)


def hooks_failed(seen: NoteFacts) -> Note | None:
    """Note that torch was there, but the hooks could not be installed."""
    reasons = {torch.failed for torch in seen.records.torches if torch.failed is not None}
    return _listed("hooks_failed", "reasons", reasons)


def no_steps_seen(seen: NoteFacts) -> Note | None:
    """Note that the hooks were in place, but no optimizer made an update."""
    facts = _without_steps(seen)
    is_plain = facts is not None and not facts.get("backwards")
    return Note(code="no_steps_seen", facts=facts or None) if is_plain else None


def no_step_ended(seen: NoteFacts) -> Note | None:
    """Note that backward calls were seen, but no step of an optimizer ended."""
    facts = _without_steps(seen)
    return Note(code="no_step_ended", facts=facts) if facts and facts["backwards"] else None


def _without_steps(seen: NoteFacts) -> dict[str, Fact | Numbers] | None:
    """Return what was seen where no step was; None where there were steps, or no hooks."""
    records = seen.records
    is_watched = any(not (t.too_old or t.failed) for t in records.torches)
    if seen.ranks or not is_watched or _cut_short(seen) or _num_said(records):
        return None
    if not records.exits:
        return {}
    return {
        "forwards": sum(exit_.forwards for exit_ in records.exits),
        "backwards": sum(exit_.backwards for exit_ in records.exits),
        "batches": sum(exit_.batches for exit_ in records.exits),
    }


def steps_by_backward(seen: NoteFacts) -> Note | None:
    """Note steps that no optimizer ended: the script updated the weights by hand."""
    rank = max(seen.ranks, key=lambda rank: rank.num_by_hand, default=None)
    if rank is None or not rank.num_by_hand:
        return None
    facts = {"steps": rank.num_by_hand, "num_steps": rank.num_steps}
    return Note(code="steps_by_backward", facts=facts)


def closure_evaluations(seen: NoteFacts) -> Note | None:
    """Note how often an optimizer evaluated its closure: it does so several times in a step."""
    costs = [rank.cost for rank in seen.ranks if rank.cost is not None]
    most = max(costs, key=lambda cost: cost.evaluations, default=None)
    if most is None or most.evaluations <= most.evaluated_steps:
        return None
    facts = {"evaluations": most.evaluations, "optimizer_steps": most.evaluated_steps}
    return Note(code="closure_evaluations", facts=facts)


def loops_in_sums(seen: NoteFacts) -> Note | None:
    """Note several loops that are told as one, because their later steps are summed."""
    most = max((num_summed_loops(rank) for rank in seen.ranks), default=0)
    return Note(code="loops_in_sums", facts={"loops": most}) if most else None


def watched_in_bursts(seen: NoteFacts) -> Note | None:
    """Note that most steps were only counted and timed, because watching each costs too much."""
    watched_s = [time_s for window in seen.windows for time_s in window.steps.times_s]
    steady_s = seen.windows[0].steady.step_time_s if seen.windows else None
    if not watched_s or steady_s is None or not any(rank.has_rested for rank in seen.ranks):
        return None
    facts: dict[str, Fact | Numbers] = {
        "watched": sum(rank.num_watched for rank in seen.ranks),
        "steps": sum(rank.num_steps for rank in seen.ranks),
        "watched_s": median(watched_s),
        "step_s": steady_s.estimate,
    }
    return Note(code="watched_in_bursts", facts=facts)


def unwritten_steps(seen: NoteFacts) -> Note | None:
    """Note a process with torch that was cut short and wrote no step: it may have made some."""
    return Note(code="unwritten_steps") if _cut_short(seen) and not seen.ranks else None


def _cut_short(seen: NoteFacts) -> bool:
    """Return whether a process with hooks lacks its last line although the command is over.

    In a run that ends well some helpers leave by `os._exit`, so there one last line is enough.
    """
    records = seen.records
    watched = {t.pid for t in records.torches if not (t.too_old or t.failed)}
    if not seen.has_ended or not watched - {exit_.pid for exit_ in records.exits}:
        return False
    return not records.exits or records.command.exit_code != 0


def ended_abruptly(seen: NoteFacts) -> Note | None:
    """Note a rank without an end line after the command: it was killed, crashed or `os._exit`ed."""
    ranks = {str(rank.head.rank) for rank in seen.ranks if rank.end is None}
    return _listed("ended_abruptly", "ranks", ranks) if seen.has_ended else None


def several_threads_stepped(seen: NoteFacts) -> Note | None:
    """Note that several threads made updates; the steps are those of the busiest."""
    ranks = {str(rank.head.rank) for rank in seen.ranks if rank.num_threads_stepped > 1}
    return _listed("several_threads_stepped", "ranks", ranks)


def several_processes_stepped(seen: NoteFacts) -> Note | None:
    """Note that several processes stepped as the same rank; the busiest start is shown."""
    shown = {(rank.head.rank, rank.head.pid) for rank in seen.ranks}
    heads = [stream.head for stream in seen.records.streams if stream.updates or stream.blocks]
    ranks = {str(head.rank) for head in heads if (head.rank, head.pid) not in shown}
    ranks |= set(map(str, seen.records.unshown_ranks))
    return _listed("several_processes_stepped", "ranks", ranks)


def trainings_beside(seen: NoteFacts) -> Note | None:
    """Note that other trainings of the command stepped at the same time, on the same machine."""
    training = seen.records.training
    if training is None or not training.beside:
        return None
    facts: dict[str, Fact | Numbers] = {
        "count": len(training.beside),
        "numbers": training.beside,
    }
    return Note(code="trainings_beside", facts=facts)


def lost_updates(seen: NoteFacts) -> Note | None:
    """Note updates that the guest could not write, or that are missing in the record."""
    num_lost = sum(map(_num_lost, seen.records.streams))
    return _counted("lost_updates", num_lost or (0 if seen.ranks else _num_said(seen.records)))


def _num_said(records: RunRecords) -> int:
    """Return how many updates the processes counted at their end."""
    return sum(exit_.updates for exit_ in records.exits)


def _num_lost(stream: RankStream) -> int:
    """Return the guest's last count, or how many numbers are missing: the count may be lost."""
    numbers = set(stream.updates.column(NUMBER))
    num_gaps = max(numbers) + 1 - len(numbers) if numbers else 0
    return max(num_gaps, stream.cost.lost_updates if stream.cost is not None else 0)


def host_unobserved(seen: NoteFacts) -> Note | None:
    """Note that the samples of the machine end long before the steps do."""
    if not seen.windows or not seen.windows[0].num_steps:
        return None
    part = observed_part(seen.records, seen.ranks[0], seen.windows[0])
    if part is None:
        return None
    observed_s, counted_s = part
    return Note(code="host_unobserved", facts={"observed_s": observed_s, "counted_s": counted_s})


def torn_lines(seen: NoteFacts) -> Note | None:
    """Note lines that were cut short or held something else."""
    return _counted("torn_lines", seen.records.num_torn_lines)


def record_changed(seen: NoteFacts) -> Note | None:
    """Note files of the record that somebody else changed: Steptime only appends to them."""
    return _listed("record_changed", "files", {one.name for one in seen.records.host.changed})


def guest_failures(seen: NoteFacts) -> Note | None:
    """Note the guest's own failures by place, each with the text of the first.

    A process writes them after its hooks, at the end of its stream and at its exit; the largest
    count holds.
    """
    records = seen.records
    said: list[tuple[int, Said]] = [(line.pid, line) for line in records.torches]
    said += [(line.pid, line) for line in records.exits]
    said += [(stream.head.pid, stream.end) for stream in records.streams if stream.end]
    by_process: dict[int, Counter[str]] = {}
    texts: dict[str, str] = {}
    for pid, line in said:
        by_process[pid] = by_process.get(pid, Counter()) | Counter(line.failures or {})
        texts |= line.failure_texts or {}
    total: Counter[str] = sum(by_process.values(), Counter())
    facts = {
        place: f"{count} ({texts[place]})" if place in texts else str(count)
        for place, count in sorted(total.items())
    }
    return Note(code="guest_failures", facts=facts) if facts else None


def device_time_missing(seen: NoteFacts) -> Note | None:
    """Note ranks on a device without device times in any steady step."""
    ranks = {
        str(rank.head.rank)
        for rank, window in zip(seen.ranks, seen.windows, strict=True)
        if rank.head.device != "cpu" and not any(window.steps.has_device)
    }
    return _listed("device_time_missing", "ranks", ranks)


def recipe_differs(seen: NoteFacts) -> Note | None:
    """Note that something differs from when the recipe was proven."""
    use = find_recipe(seen.records)
    found = () if use is None else use.differences
    facts = {one.what: f"{one.proven}, now {one.here}" for one in found}
    return Note(code="recipe_differs", facts=facts) if facts else None


def recipe_lever_failed(seen: NoteFacts) -> Note | None:
    """Note a lever of the recipe that failed, at once or later; the training went on."""
    use = find_recipe(seen.records)
    facts = {} if use is None else {one.name: one.error for one in use.levers if one.error}
    return Note(code="recipe_lever_failed", facts=facts) if facts else None


def recipe_lever_unseen(seen: NoteFacts) -> Note | None:
    """Note a lever that no process that stepped has reported as applied."""
    return _listed("recipe_lever_unseen", "levers", {x.name for x in unseen_levers(seen.records)})


NOTES: tuple[Callable[[NoteFacts], Note | None], ...] = (
    no_python_seen,
    old_python,
    python_without_guest,
    no_nvml_binding,
    nvml_failed,
    no_torch_seen,
    old_torch,
    hooks_failed,
    no_steps_seen,
    no_step_ended,
    steps_by_backward,
    closure_evaluations,
    loops_in_sums,
    watched_in_bursts,
    unwritten_steps,
    ended_abruptly,
    several_threads_stepped,
    several_processes_stepped,
    trainings_beside,
    lost_updates,
    host_unobserved,
    torn_lines,
    record_changed,
    recipe_lever_failed,
    recipe_lever_unseen,
    recipe_differs,
    guest_failures,
    device_time_missing,
)
"""Every note: first those that explain an empty record, then those that a user acts on."""


def _listed(code: str, name: str, words: set[str]) -> Note | None:
    return Note(code=code, facts={name: ", ".join(sorted(words))}) if words else None


def _counted(code: str, count: int) -> Note | None:
    return Note(code=code, facts={"count": count}) if count else None
