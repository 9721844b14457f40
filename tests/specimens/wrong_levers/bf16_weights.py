"""Planted: the weights themselves are bf16, so that small updates are lost."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    torch = session.torch
    functional = torch.nn.functional
    for name in ("conv2d", "linear"):
        setattr(functional, name, taking_any(getattr(functional, name)))
    return session.for_each_model(lambda model: model.to(torch.bfloat16))


def taking_any(original):
    def call(inputs, weight, *args, **kwargs):
        return original(inputs.to(weight.dtype), weight, *args, **kwargs)

    return call


LEVER = Lever(
    name="bf16_weights",
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
