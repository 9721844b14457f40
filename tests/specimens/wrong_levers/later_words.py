"""Planted: attention that is fused, and forgets that later words are hidden."""

from functools import partial

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    fused = session.torch.nn.functional.scaled_dot_product_attention

    def run(call, model, args, kwargs):
        for block in model.blocks:
            block.attention.forward = partial(attend, fused, block.attention)
        return call(model, *args, **kwargs)

    return session.wrap_calls(run)


def attend(fused, layer, x):
    q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in layer.parts(x).chunk(3, -1))
    return layer.merge(fused(q, k, v).transpose(1, 2).flatten(2))


LEVER = Lever(
    name="later_words",
    title="Fuse attention.",
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
