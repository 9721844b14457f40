"""Observes one run of a command: starts it, watches it, and says what holds it back.

In: a command. Out: an `ObservedRun`. The command line starts it as the only task of its process
(`run_in_foreground`), a Python program as a child among other tasks (`observe`); `prepare` before
and `conclude` after are the same. Both are silent while the command runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from steptime.app.run.attempt import attempt
from steptime.app.run.command_words import as_argv
from steptime.app.run.prepare import RunOptions, RunPlan, prepare
from steptime.core.devices.given_peaks import check_peaks
from steptime.core.devices.given_price import parse_price
from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import Run, write_value
from steptime.errors import NotFoundError, StoreError, UsageError
from steptime.launch import user_command
from steptime.measure.values.model.profiled import DEFAULT_STEP, TORCH, ProfileWish

if TYPE_CHECKING:
    from steptime.app.run.beside import Beside, MakeLine
    from steptime.app.run.observed_run import ObservedRun
    from steptime.app.run.stopping import Stopper
    from steptime.launch.values import CommandRecord
    from steptime.measure.values.measurement import Measurement

_NEVER_S = 1e6
CAPTURE = "capture"
"""A value of `output`: keep what the command writes in the run's folder."""

Tell = Callable[[str], None]
Take = Callable[[ProcessEnd], None]


class Wait(Protocol):
    """Waits for the command; it calls `on_end` as soon as the command has ended."""

    def __call__(self, tick: Callable[[], float], *, on_end: Take) -> ProcessEnd:
        """Return how it ended; `tick` is called during it, and says when it is due again [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """An ended run; the end is in its plan's `record`, and `notes` say what went wrong."""

    plan: RunPlan
    end: ProcessEnd
    notes: tuple[str, ...] = ()


def observe(
    command: str | Sequence[str | os.PathLike[str]],
    *,
    store: str | os.PathLike[str] = ".",
    recipe: str | os.PathLike[str] | None = None,
    profile: bool | int = False,
    count: bool = False,
    health: bool = False,
    peak: Mapping[str, float] | None = None,
    hourly_price: float | None = None,
    output: str | os.PathLike[str] | None = None,
    tell: Tell | None = None,
) -> ObservedRun:
    """Run a training command as it is, measure its steps, and say what holds it back.

    This works from a script, a thread and a notebook. Ctrl-C ends the command and is raised again;
    what was recorded until then can be loaded with `steptime.load("last")`.

    Args:
        command: the words of the command, or one string that is split like in a shell.
        store: the folder that holds `.steptime`.
        recipe: the file of a recipe that `steptime.tune` wrote; the command trains with it.
        profile: let torch's profiler run around three steps, from this step on; True for 30.
        count: count the work of a step in a short extra run if the script compiles.
        health: name layer and samples of a number that is not finite, and take norms by layer.
        peak: dense peaks of the device, or of the CPU, by type [TFLOPS], such as `{"bf16": 312}`;
            MFU, HFU and the waterfall use them before those of the datasheet.
        hourly_price: what an hour of the machine costs, in any currency.
        output: the file that takes what the command writes; "capture" keeps it for
            `ObservedRun.output`; None leaves it where the output of this process goes.
        tell: gets sentences worth knowing while this works; they are in `ObservedRun.notes`, too.

    Returns:
        The run. Its `exit_code` is the command's: a command that fails is no error here.

    Raises:
        NotStartedError: there is no such command.
        UsageError: `peak` has an unknown type, or a number is out of range.
        StoreError: no folder for the run can be made, or the run's own is gone.
        SteptimeError: the base class of these and all others.

    Example:
        >>> run = steptime.observe(["python", "train.py"])  # doctest: +SKIP
        >>> run.diagnosis.kind.name, run.measurement.steady.step_time_s.median  # doctest: +SKIP
        ('INPUT_BOUND', 0.0531)
    """
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)
        if tell is not None:
            tell(text)

    text = None if hourly_price is None else str(hourly_price)
    price = parse_price(text, flag="hourly_price")
    options = RunOptions(
        command=as_argv(command, what="observe"),
        store=Path(store),
        recipe=None if recipe is None else Path(recipe),
        counts=count,
        profile=_wish(profile=profile),
        looks_at_layers=health,
        peaks=check_peaks(peak or {}),
        price_per_h=price,
    )
    plan = prepare(options, user_command.user_environment(), tell=note)
    ended = _run_as_child(plan, output)
    observed, notes = conclude(ended, counts=options.counts, tell=note)
    if observed is None:
        raise StoreError(" ".join(dict.fromkeys(notes)))
    return replace(observed, notes=(*told, *dict.fromkeys(notes)))


def run_in_foreground(
    plan: RunPlan,
    *,
    on_start: Callable[[], None],
    on_end: Take,
    make_line: MakeLine | None = None,
) -> EndedRun:
    """Run the command as the only task of this process; signals are passed on to it.

    Args:
        plan: what `prepare` returned.
        on_start: called when the command has started.
        on_end: called when its end is on disk; signals that arrive later interrupt this.
        make_line: makes the live line of the run, if one is shown.

    Raises:
        NotStartedError: the command cannot be started.
    """
    child = user_command.start(plan.argv, plan.environment)
    on_start()
    wait = partial(user_command.wait, child)
    return _watch(plan, child.pid, wait, on_end=on_end, make_line=make_line)


def conclude(
    ended: EndedRun, *, counts: bool, tell: Tell
) -> tuple[ObservedRun | None, tuple[str, ...]]:
    """Fold the run and save it; return the run, and sentences about what went wrong.

    Each act is tried by itself: a full disk costs the saved files, not the result.
    """
    notes = list(ended.notes)
    observed = None
    with attempt(notes.append):
        observed = _fold_and_save(ended, notes, counts=counts, tell=tell)
    return observed, tuple(notes)


def _wish(*, profile: bool | int) -> ProfileWish | None:
    if profile is False:
        return None
    first_step = DEFAULT_STEP if profile is True else profile
    if first_step < 1:
        raise UsageError(f"profile must be the number of a step, from 1 on, got {profile}.")
    return ProfileWish(tool=TORCH, first_step=first_step)


def _run_as_child(plan: RunPlan, output: str | os.PathLike[str] | None) -> EndedRun:
    """Run the command as a child of a program that may do other things, too."""
    from steptime.launch.caller_child import start_child
    from steptime.record import files

    if plan.run is None:
        raise StoreError(f"nothing was started: {' '.join(plan.notes)}")
    file = None if output is None else Path(output)
    if output == CAPTURE:
        file = plan.run.folder / files.OUTPUT
    try:
        child = start_child(plan.argv, plan.environment, output=file)
    except OSError as error:
        raise StoreError(f"output: {error}") from error
    has_ended = False
    try:
        ended = _watch(plan, child.pid, child.wait)
        has_ended = True
        return ended
    finally:
        if not has_ended:  # mostly because of Ctrl-C
            end = child.stop()
            if plan.record is not None:
                write_value(plan.run, "command.json", _with_end(plan.record, child.pid, end))


def _watch(
    plan: RunPlan,
    pid: int,
    wait: Wait,
    *,
    on_end: Take = lambda _: None,
    make_line: MakeLine | None = None,
) -> EndedRun:
    """Wait for the command; sample and watch it in the meantime."""
    run = plan.run
    if run is None or plan.record is None:
        return EndedRun(plan=plan, end=wait(lambda: _NEVER_S, on_end=on_end), notes=plan.notes)
    from steptime.app.run.beside import start_beside

    notes, record = list(plan.notes), replace(plan.record, child_pid=pid)

    def save(*, is_durable: bool = False) -> None:
        with attempt(notes.append):
            write_value(run, "command.json", record, is_durable=is_durable)

    def write_down(end: ProcessEnd) -> None:
        """Write the end before anything is made of it: whatever follows can be made again."""
        nonlocal record
        record = _with_end(record, pid, end)
        save(is_durable=True)
        on_end(end)

    save()
    beside = start_beside(run.folder, child_pid=pid, cwd=record.cwd, make_line=make_line)
    end = None
    stopper = _start_stopper(plan, run, beside, root_pid=pid)
    try:
        end = wait(beside.tick, on_end=write_down)
        if stopper is not None:
            with attempt(notes.append):
                record = replace(record, stopped=stopper.finish())
                save()
        if run.folder.is_dir():
            with attempt(notes.append):
                from steptime.app.run.run_end import look_for_survivors

                record = replace(record, survivors=look_for_survivors(run, record))
                save()
    finally:
        if stopper is not None:
            stopper.give_up()
        num_failures = beside.finish()
        with attempt(notes.append):
            _conclude_calls(run, record, end)
    record = replace(record, num_sample_failures=num_failures)
    ended = replace(plan, record=record)
    return EndedRun(plan=ended, end=end, notes=(*notes, *beside.notes))


def _start_stopper(plan: RunPlan, run: Run, beside: Beside, *, root_pid: int) -> Stopper | None:
    """Judge the run while it goes on, if that is wanted."""
    if plan.stop.is_empty:
        return None
    from steptime.app.run.stopping import Stopper, last_finished
    from steptime.app.stored.run_listing import list_runs

    stopper = Stopper(
        run.folder,
        plan.stop,
        root_pid=root_pid,
        note=beside.notes.append,
        past=lambda: last_finished(list_runs(run.store), plan.command),
    )
    beside.add(stopper.take)
    return stopper


def _conclude_calls(run: Run, record: CommandRecord, end: ProcessEnd | None) -> None:
    """Look at what the ranks called last if the command failed, and remove their records."""
    from steptime.watch.stalls.ended_calls import conclude_calls

    has_failed = end is not None and end.state is not RunState.FINISHED
    try:
        conclude_calls(run.folder, cwd=record.cwd, has_failed=has_failed)
    except OSError as error:
        raise StoreError(f"what the ranks called cannot be written: {error}") from error


def _with_end(record: CommandRecord, pid: int, end: ProcessEnd) -> CommandRecord:
    """Return the record with the command's end in it."""
    return replace(
        record,
        child_pid=pid,
        ended_unix_s=time.time(),
        exit_code=end.exit_code,
        signal=end.signal,
    )


def _fold_and_save(ended: EndedRun, notes: list[str], *, counts: bool, tell: Tell) -> ObservedRun:
    run, record = ended.plan.run, ended.plan.record
    if run is None or record is None:
        raise StoreError("the command ran unobserved.")
    if not run.folder.is_dir():
        notes.clear()  # this is the reason for all failures
        raise NotFoundError(
            f"the run folder {run.folder} was deleted while the command ran; nothing to report."
        )
    if run.instead_of is not None:
        notes.append(
            f"{run.instead_of} cannot be written ({run.because}); the run is in {run.folder}"
        )
    with attempt(notes.append):
        write_value(run, "command.json", record)
    # These are needed only after the command has ended, and would delay its start.
    from steptime.app.run.run_end import RunEnd, look_at_end
    from steptime.app.stored.kept_ceilings import note_exceeded
    from steptime.app.stored.load import fold, save
    from steptime.app.stored.run_listing import add_to_index
    from steptime.measure.source.scan import write_source

    with attempt(notes.append):
        write_source(run.folder, cwd=record.cwd)
    if record.profile is not None:
        with attempt(notes.append):
            from steptime.measure.profile.profile_fold import pack_traces

            pack_traces(run.folder)
    seen = look_at_end(run)
    if not seen.end.is_over and not seen.processes:
        seen = RunEnd(end=ended.end)  # it could not be written down
    observed = fold(run, seen)
    if counts and _counts_apart(ended.plan, observed, notes, tell):
        observed = fold(run, seen)
    if ended.end.exit_code == 0 and observed.ceilings is not None and not observed.goes_on:
        with attempt(notes.append):
            note_exceeded(run, observed.ceilings, observed.picture.waterfall)
    if not observed.goes_on:  # otherwise it is folded again each time that somebody looks
        with attempt(notes.append):
            save(observed)
        add_to_index(run)
    return observed


def wants_count(measurement: Measurement) -> bool:
    """Return whether an extra run would show what this one could not."""
    from steptime.measure.values.model.work import COUNTED_APART

    m = measurement
    if m.count is not None:
        return m.count.is_range
    return m.num_steps > 0 and m.count_missing in COUNTED_APART


def _counts_apart(plan: RunPlan, observed: ObservedRun, notes: list[str], tell: Tell) -> bool:
    """Count the work of a step in an extra run if wanted; return whether one was made.

    It is kept from doing harm, and ends when its steps are counted. Of several trainings, the
    shown one is counted. The counts, or the reason why there are none, go into `count.jsonl`.
    """
    run, record = plan.run, plan.record
    if run is None or record is None or not wants_count(observed.measurement):
        return False
    from steptime.tune.trials.children.count_child import count_in_child

    tell("counting the work of a step in a short extra run, kept from doing harm")
    own = observed.measurement.training
    with attempt(notes.append):
        count_in_child(
            plan.command,
            user_command.user_environment(),
            run_folder=run.folder,
            cwd=Path(record.cwd or "."),
            training=None if own is None or own.is_alone else own.number,
        )
    return True
