"""Planted: the loss is scaled for backward, and the gradients are not scaled back."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    def run(call, args, kwargs):
        loss, *rest = args
        return call(loss * 128.0, *rest, **kwargs)

    return session.wrap_backward(run)


LEVER = Lever(
    name="wrong_loss_scale",
    title="Keep gradients from underflow.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "backward"),
    preserves=Preserves.NUMERIC,
    roundoff=lambda settings: 2.0**-8,
    when="Never: it is wrong on purpose.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "none",
    costs="The training.",
    source="planted",
)
