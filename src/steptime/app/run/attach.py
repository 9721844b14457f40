"""Looks into a process or a run: takes its stacks, or asks it while it trains.

In: a run or a process, and what is asked. Out: a `RunAnswer`. Stacks are taken
from outside; everything else the processes examine themselves, between two steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from steptime.app.run.conversation import Conversation, Heard
from steptime.app.run.run_end import COMMAND, read_end
from steptime.app.stored.load import find, fold_now
from steptime.app.stored.run_listing import run_at
from steptime.core.process_end import RunState
from steptime.core.store import Run, read_value, store_to_name
from steptime.errors import DamagedRunError, NotAnsweredError, NotFoundError, UsageError
from steptime.launch.values import CommandRecord
from steptime.measure.fold.rank_answers import count_of, memory_of, profile_of
from steptime.measure.fold.run_records import no_such_training, read_records
from steptime.measure.values.answer import RankAnswer
from steptime.measure.values.stall import Stall
from steptime.measure.wall.stall_file import read_stalls
from steptime.measure.wall.trainings import trainings_in
from steptime.record.lines import Torn
from steptime.record.live.questions import ANSWERED, COUNT, HEALTH, MAX_STEPS, MEMORY, PROFILE
from steptime.report.blocks.run.answer_report import RunAnswer
from steptime.report.words.run.run_words import describe_end
from steptime.report.words.run.show_words import show_command
from steptime.watch import asking
from steptime.watch.asking import AskedProcess
from steptime.watch.stalls import rank_stacks

STACKS = "stacks"
WHATS = (*ANSWERED, STACKS)
"""What can be asked."""

TIMEOUT_S = 60.0
NUM_STEPS: Mapping[str, int] = {PROFILE: 3, HEALTH: 50}
"""Steps that are examined if no number is given."""

_TRAINS = (RunState.RUNNING, RunState.STILL_TRAINING)


def attach(
    which: int | str | os.PathLike[str] = "last",
    what: str = STACKS,
    *,
    steps: int | None = None,
    timeout_s: float | None = None,
    training: int | None = None,
    store: str | os.PathLike[str] = ".",
) -> RunAnswer:
    """Look into a run while it trains; what it computes stays as it is, bit for bit.

    Args:
        which: a process id; or a run's id or the beginning of it, `last`, or the path of its
            folder. A process that `steptime run` did not start has its stacks alone.
        what: `stacks`, `memory`, `count`, `profile`, or `health`.
        steps: how many steps are examined; None for 3 for `profile`, and 50 for `health`.
        timeout_s: how long to wait for the answers [s]; None for a minute, or longer where steps
            take long.
        training: the number of the training that is asked; None for all that go on.
        store: the folder that holds `.steptime`.

    Raises:
        NotFoundError: there is no such run, it has ended, or it has not stepped yet.
        NotAnsweredError: another question is under way, or an older Steptime started the run.
        StoreError: its folder cannot be written.
        UsageError: an argument makes no sense.

    Example:
        >>> print(steptime.attach("last", "memory"))  # doctest: +SKIP
    """
    found = find_target(which, lambda: find(str(which), store=store))
    return ask_run(found, what, num_steps=steps, timeout_s=timeout_s, training=training)


def find_target(which: int | str | os.PathLike[str], find_run: Callable[[], Run]) -> Run | int:
    """Return the run that is meant, or the id of a process that belongs to none.

    Digits are a process first, if there is one.

    Raises:
        NotFoundError: there is neither.
    """
    word = str(which)
    if not (word.isascii() and word.isdigit() and os.path.isdir(f"/proc/{word}")):
        return find_run()
    folder = rank_stacks.run_folder_of(int(word))
    if folder is not None and os.path.isdir(folder):
        return run_at(folder)
    if isinstance(which, str):
        with suppress(NotFoundError):
            return find_run()
    return int(word)


def ask_run(
    run: Run | int,
    what: str,
    *,
    num_steps: int | None = None,
    timeout_s: float | None = None,
    training: int | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> RunAnswer:
    """Ask a run, and say now and then how far it is; see `attach`."""
    num_steps = NUM_STEPS.get(what, 1) if num_steps is None else num_steps
    _check(what, num_steps, timeout_s)
    if isinstance(run, int):
        return _stacks_of_process(run, what)
    if what == STACKS:
        return take_stacks(run, training=training)
    asked = _asked(run, what)
    processes = _find_processes(run, what, training)
    if timeout_s is None:
        usual_s = max((one.usual_s for one in processes if one.usual_s), default=0.0)
        timeout_s = max(TIMEOUT_S, 2 * (num_steps + _STEPS_AROUND) * usual_s)
    question = asking.make_question(processes, what, num_steps=num_steps, timeout_s=timeout_s)
    asking.put_question(run.folder, question)
    try:
        heard = Conversation(run.folder, question, processes).wait(timeout_s, show)
    finally:
        asking.take_back(run.folder, question)
    is_one = len({one.training for one in processes}) == 1
    ranks = tuple(
        _fold(run, process, one, is_one=is_one)
        for process, one in zip(processes, heard, strict=True)
    )
    asked = replace(asked, ranks=ranks)
    if what == HEALTH and any(one.missing is None for one in ranks):
        health = fold_now(run, training=training).measurement.health
        asked = replace(asked, layers=None if health is None else health.layers)
    return _with_stacks_of_silent(asked, run, training)


def _check(what: str, num_steps: int, timeout_s: float | None) -> None:
    if what not in WHATS:
        raise UsageError(f"a run can be asked for {', '.join(WHATS)}, not for `{what}`.")
    if not 1 <= num_steps <= MAX_STEPS.get(what, 1):
        raise UsageError(
            f"{what} takes 1 to {MAX_STEPS.get(what, 1)} steps, got {num_steps}.",
            hint=f"Without a number it takes {NUM_STEPS.get(what, 1)}.",
        )
    if timeout_s is not None and not timeout_s > 0:
        raise UsageError(f"the time to wait must be above zero, got {timeout_s:g} s.")


_STEPS_AROUND = 5
"""Steps before and after those that are examined: to find the question, and to get ready."""


# -- who is asked


def _find_processes(run: Run, what: str, training: int | None) -> tuple[AskedProcess, ...]:
    """Return the processes that are asked.

    Raises:
        NotFoundError: there is none.
        NotAnsweredError: they are of an older Steptime.
    """
    end = read_end(run)
    found = () if end.is_over else asking.find_processes(run.folder)
    if not found and end.state not in _TRAINS:
        raise _ended(run)
    if not found:
        raise NotFoundError(
            f"run {run.run_id} has no process that makes steps now.",
            hint=f"Ask again when it trains. To see where it is: steptime attach {run.run_id}",
        )
    if training is not None:
        num = max(one.training for one in found)
        found = tuple(one for one in found if one.training == training)
        if not found:
            raise no_such_training(run.run_id, training, num)
    if any(what not in one.answers for one in found):
        raise NotAnsweredError(
            f"run {run.run_id} was started by a Steptime that does not answer this question.",
            hint=f"See what it has recorded: steptime show {run.run_id}",
        )
    return found


def _ended(run: Run) -> NotFoundError:
    return NotFoundError(
        f"run {run.run_id} cannot be asked: it has ended ({describe_end(read_end(run))}).",
        hint=f"See its report: steptime show {run.run_id}",
    )


# -- what is made of the answers


def _fold(run: Run, process: AskedProcess, heard: Heard, *, is_one: bool) -> RankAnswer:
    """Return what a process answered, as a value."""
    bare = RankAnswer(
        rank=process.rank, pid=process.pid, training=None if is_one else process.training
    )
    answer = heard.answer
    if answer is None or answer.facts is None:
        missing = heard.missing if answer is None else answer.missing
        return replace(bare, missing=missing or "damaged")
    found = replace(bare, first_update=answer.first, num_updates=answer.num_updates)
    try:
        if answer.what == MEMORY:
            memory = memory_of(answer.facts, rank=process.rank, pid=process.pid)
            return replace(found, memory=memory)
        if answer.what == COUNT:
            return replace(found, count=count_of(answer.facts, update_s=process.usual_s))
        if answer.what == HEALTH:
            return found  # what was seen is in the record
        command = read_value(run, COMMAND, CommandRecord)
        profile = profile_of(answer.facts, rank=process.rank, folder=run.folder, command=command)
        return replace(found, profile=profile, missing=profile.missing)
    except (DamagedRunError, OSError):
        return replace(bare, missing="damaged")


def _asked(run: Run | None, what: str) -> RunAnswer:
    run_id = None if run is None else run.run_id
    return RunAnswer(run_id=run_id, what=what, asked_unix_s=round(time.time(), 3))


def take_stacks(run: Run, *, training: int | None = None) -> RunAnswer:
    """Return the stacks of a run, or of one of its trainings, as they are or in its last stall.

    Raises:
        NotFoundError: none of its processes is here, and it was never stalled; or it has no
            training with this number.
    """
    known = [] if training is None else [one.training.number for one in trainings_in(run.folder)]
    if training is not None and training not in known:
        raise no_such_training(run.run_id, training, len(known))
    found = rank_stacks.probe_ranks(run.folder, training=training)
    asked = _asked(run, STACKS)
    if found.ranks:
        return replace(asked, stacks=found.ranks, culprits=found.culprits, desync=found.desync)
    stalls = _stalls_of(run, training)
    if stalls:
        last = stalls[-1]
        told = replace(asked, stacks=last.ranks, culprits=last.culprits, desync=last.desync)
        return replace(told, is_past=True)
    end = read_end(run)
    if end.state is RunState.RUNNING:
        raise NotFoundError(
            f"run {run.run_id} has no Python process that uses torch, or not on this machine.",
            hint="Try again when the training has begun, on the machine where it runs.",
        )
    raise NotFoundError(
        f"run {run.run_id} has ended ({describe_end(end)}) and was never stalled, so there are no "
        "stacks.",
        hint=f"See its report: {show_command(run.run_id, store=store_to_name(run.store))}",
    )


def _stalls_of(run: Run, training: int | None) -> Sequence[Stall]:
    if training is None:
        return read_stalls(run.folder, Torn())
    return read_records(run.folder, training).stalls


def _stacks_of_process(pid: int, what: str) -> RunAnswer:
    """Return the stacks of a process that no run of ours started.

    Raises:
        NotFoundError: it can be asked nothing else.
    """
    if what != STACKS:
        raise NotFoundError(
            f"process {pid} cannot be asked: `steptime run` did not start it.",
            hint=f"It has its stacks alone: steptime attach {pid}",
        )
    return replace(_asked(None, what), stacks=(rank_stacks.probe_alone(pid),))


def _with_stacks_of_silent(asked: RunAnswer, run: Run, training: int | None) -> RunAnswer:
    """Return the answer with the stacks of the ranks that did not end a step in time."""
    silent = {one.pid for one in asked.ranks if one.missing == "no_answer"}
    if not silent:
        return asked
    try:
        found = take_stacks(run, training=training)
    except NotFoundError:
        return asked  # they are on another machine
    if found.is_past:
        return asked
    stacks = tuple(one for one in found.stacks if one.pid in silent)
    return replace(asked, stacks=stacks, culprits=found.culprits, desync=found.desync)
