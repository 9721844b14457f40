"""Planted: half of each update is taken back, with the learning rate as it was."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    torch = session.torch
    before = {}

    def keep(optimizer):
        weights = [w for group in optimizer.param_groups for w in group["params"]]
        before[id(optimizer)] = [(w, w.detach().clone()) for w in weights]

    def halve(optimizer, args, kwargs):
        with torch.no_grad():
            for weight, old in before.pop(id(optimizer), ()):
                weight.lerp_(old, 0.5)

    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(halve)
    return session.before_update(keep)


LEVER = Lever(
    name="halved_update",
    title="Take smaller steps.",
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
