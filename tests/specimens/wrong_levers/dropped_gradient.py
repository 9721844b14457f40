"""Planted: the gradient of one layer's weights is dropped."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    def drop(optimizer):
        weights = [w for group in optimizer.param_groups for w in group["params"]]
        weights[len(weights) // 2].grad.zero_()

    return session.before_update(drop)


LEVER = Lever(
    name="dropped_gradient",
    title="Skip the backward of a layer.",
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
