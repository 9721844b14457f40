"""Planted: every tenth batch is skipped."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    iterator_class = session.torch.utils.data.dataloader._BaseDataLoaderIter
    original, seen = iterator_class.__next__, []

    def __next__(self):
        seen.append(None)
        if len(seen) % 10 == 0:
            original(self)
        return original(self)

    iterator_class.__next__ = __next__


LEVER = Lever(
    name="skipped_batches",
    title="Load fewer batches.",
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
