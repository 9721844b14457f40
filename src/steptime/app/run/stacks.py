"""The stacks of a run's ranks: as they are now, or as they were in its last stall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steptime.app.run.run_end import read_end
from steptime.core.process_end import RunState
from steptime.core.store import Run, store_to_name
from steptime.errors import NotFoundError
from steptime.measure.fold.run_records import no_such_training, read_records
from steptime.measure.values.desync import Desync
from steptime.measure.values.stall import Stall, StalledRank
from steptime.measure.wall.stall_file import read_stalls
from steptime.measure.wall.trainings import trainings_in
from steptime.record.lines import Torn
from steptime.report.words.run.run_words import describe_end
from steptime.report.words.run.show_words import show_command
from steptime.watch.stalls import rank_stacks


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """The ranks with their stacks, those that the others wait for, and how they lost each other.

    `is_past`: the run has ended, and the stacks are those of its last stall.
    """

    ranks: tuple[StalledRank, ...]
    culprits: tuple[int, ...]
    desync: Desync | None = None
    is_past: bool = False


def take_stacks(run: Run, *, training: int | None = None) -> RankStacks:
    """Return the stacks of a run, or of one of its trainings.

    Raises:
        NotFoundError: none of its processes is here, and it was never stalled; or it has no
            training with this number.
    """
    if training is None:
        found = rank_stacks.probe_ranks(run.folder)
    else:
        known = [one.training.number for one in trainings_in(run.folder)]
        if training not in known:
            raise no_such_training(run.run_id, training, len(known))
        found = rank_stacks.probe_ranks(run.folder, training=training)
    if found.ranks:
        return RankStacks(ranks=found.ranks, culprits=found.culprits, desync=found.desync)
    stalls = _stalls_of(run, training)
    if stalls:
        last = stalls[-1]
        return RankStacks(
            ranks=last.ranks, culprits=last.culprits, desync=last.desync, is_past=True
        )
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
