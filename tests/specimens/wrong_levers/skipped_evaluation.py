"""Planted: a loader gives nothing to a loop without gradients, so evaluation is skipped."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    torch = session.torch
    iterator_class = torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator_class.__next__

    def __next__(self):
        if not torch.is_grad_enabled():
            raise StopIteration
        return original(self)

    iterator_class.__next__ = __next__


LEVER = Lever(
    name="skipped_evaluation",
    title="Train more of the time.",
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
