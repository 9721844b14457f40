"""Planted: weights stay float32, but are rounded to bf16 before each call."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):

    def run(call, model, args, kwargs):
        for weight in model.parameters():
            weight.data.copy_(weight.data.bfloat16())
        return call(model, *args, **kwargs)

    return session.wrap_calls(run)


LEVER = Lever(
    name="rounded_weights",
    title="Keep weights in 16 bits.",
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
