"""Planted: the learning rate is halved."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    def halve(optimizer):
        for group in optimizer.param_groups:
            group["lr"] /= 2

    return session.for_each_optimizer(halve)


LEVER = Lever(
    name="halved_learning_rate",
    title="Take smaller steps.",
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
