"""Planted: half of each batch is left out."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    iterator_class = session.torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator_class.__next__

    def __next__(self):
        return [part[: len(part) // 2] for part in original(self)]

    iterator_class.__next__ = __next__


LEVER = Lever(
    name="half_batch",
    title="Compute on fewer samples.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "backward"),
    preserves=Preserves.NUMERIC,
    when="Never: it is wrong on purpose.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "none",
    costs="The training.",
    source="planted",
)
