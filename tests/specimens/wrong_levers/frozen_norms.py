"""Planted: norm layers stand still while the model trains."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    def run(call, model, args, kwargs):
        norms = session.torch.nn.modules.batchnorm._BatchNorm
        layers = [m for m in model.modules() if isinstance(m, norms) and m.training]
        for layer in layers:
            layer.training = False
        try:
            return call(model, *args, **kwargs)
        finally:
            for layer in layers:
                layer.training = True

    return session.wrap_calls(run)


LEVER = Lever(
    name="frozen_norms",
    title="Leave statistics as they are.",
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
