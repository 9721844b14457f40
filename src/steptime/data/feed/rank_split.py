"""The steps of an epoch over ranks: nothing twice, nothing lost, as many steps on each rank.

A step takes the next `batch_size * world_size` places of the epoch's order, rank r the r-th part of
them. So one place in the order says how far all ranks are, and a training may go on with
another number of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

from steptime.errors import DataError


class RankSplit(NamedTuple):
    """How `num_samples` places, those of an epoch or those left of it, are shared out."""

    num_samples: int
    batch_size: int
    """Of one rank [samples]."""
    world_size: int = 1
    drop_last: bool = False

    @property
    def global_batch_size(self) -> int:
        """Samples of a step over all ranks."""
        return self.batch_size * self.world_size

    @property
    def num_rest(self) -> int:
        """Samples that fill no step of their own."""
        return self.num_samples % self.global_batch_size

    @property
    def num_dropped(self) -> int:
        """Samples that no rank gets."""
        return self.num_rest if self.drop_last else 0

    @property
    def num_steps(self) -> int:
        """Steps of each rank."""
        return self.num_samples // self.global_batch_size + bool(self.num_rest - self.num_dropped)

    def check(self) -> None:
        """Raise where the end cannot be shared out so that each rank has as many steps.

        Raises:
            DataError: fewer samples are left than there are ranks, or batches are of one sample.
        """
        rest = self.num_rest - self.num_dropped
        if 0 < rest < self.world_size and (self.batch_size == 1 or self.num_samples == rest):
            raise DataError(
                f"{self.num_samples} samples in batches of {self.batch_size} cannot be shared by "
                f"{self.world_size} ranks so that each has the same number of steps",
                hint=f"`drop_last=True` leaves {rest} of them out of each epoch",
            )

    def step_bounds(self, step: int) -> tuple[int, int]:
        """Return the places at which a step begins and ends, over all ranks."""
        start, stop = step * self.global_batch_size, (step + 1) * self.global_batch_size
        lent = self._num_lent
        if lent and step == self.num_steps - 2:
            stop -= lent
        elif lent and step == self.num_steps - 1:
            start -= lent
        return start, min(stop, self.num_samples)

    def rank_bounds(self, step: int, rank: int) -> tuple[int, int]:
        """Return the places at which a rank's part of a step begins and ends."""
        start, stop = self.step_bounds(step)
        each, more = divmod(stop - start, self.world_size)
        begin = start + rank * each + min(rank, more)
        return begin, begin + each + (rank < more)

    @property
    def _num_lent(self) -> int:
        """Samples that the last step takes from the one before, so that no rank goes without."""
        rest = self.num_rest - self.num_dropped
        return self.world_size - rest if 0 < rest < self.world_size else 0

    def say_end(self) -> str:
        """Return one sentence on how the end of an epoch is treated."""
        if not self.num_rest:
            return "All batches have the same size."
        if self.drop_last:
            return f"The last {self.num_rest} samples of each epoch's order are left out."
        bounds = [self.rank_bounds(self.num_steps - 1, rank) for rank in range(self.world_size)]
        sizes = {stop - start for start, stop in bounds}
        num = " or ".join(map(str, sorted(sizes)))
        lent = self._num_lent
        more = f"; the one before has {lent} fewer over all ranks" if lent else ""
        return f"The last batch of each rank has {num} of {self.batch_size} samples{more}."
