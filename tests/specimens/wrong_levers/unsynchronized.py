"""Planted: ranks keep their gradients to themselves."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    def run(call, model, args, kwargs):
        if not hasattr(model, "no_sync"):
            return call(model, *args, **kwargs)
        with model.no_sync():
            return call(model, *args, **kwargs)

    return session.wrap_calls(run)


LEVER = Lever(
    name="unsynchronized",
    title="Communicate less.",
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
