"""The stacks of a run's ranks: as they are now, or as they were in its last stall."""

from __future__ import annotations

from dataclasses import dataclass

from steptime.app.run_listing import read_end
from steptime.core.process_end import RunState
from steptime.core.store import Run
from steptime.errors import NotFoundError
from steptime.measure.values.stall import StalledRank
from steptime.record.lines import Torn
from steptime.report.words.run_words import describe_end
from steptime.watch import rank_stacks
from steptime.watch.stall_file import read_stalls


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """The ranks with their stacks, and those that the others wait for.

    `is_past`: the run has ended, and the stacks are those of its last stall.
    """

    ranks: tuple[StalledRank, ...]
    culprits: tuple[int, ...]
    is_past: bool = False


def take_stacks(run: Run) -> RankStacks:
    """Return the stacks of a run.

    Raises:
        NotFoundError: none of its processes is here, and it was never stalled.
    """
    ranks, culprits = rank_stacks.probe_ranks(run.folder)
    if ranks:
        return RankStacks(ranks=ranks, culprits=culprits)
    stalls = read_stalls(run.folder, Torn())
    if stalls:
        return RankStacks(ranks=stalls[-1].ranks, culprits=stalls[-1].culprits, is_past=True)
    end = read_end(run)
    if end.state is RunState.RUNNING:
        raise NotFoundError(
            f"run {run.run_id} has no Python process that uses torch, or not on this machine.",
            hint="Try again when the training has begun, on the machine where it runs.",
        )
    raise NotFoundError(
        f"run {run.run_id} has ended ({describe_end(end)}) and was never stalled, so there are no "
        "stacks.",
        hint=f"See its report: steptime show {run.run_id}",
    )
