"""Planted: GELU that is written out by tanh becomes a sigmoid's."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    sigmoid = session.torch.sigmoid

    def run(call, model, args, kwargs):
        for block in model.blocks:
            block.mlp[1].forward = lambda x: x * sigmoid(1.702 * x)
        return call(model, *args, **kwargs)

    return session.wrap_calls(run)


LEVER = Lever(
    name="other_gelu",
    title="Fuse GELU.",
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
