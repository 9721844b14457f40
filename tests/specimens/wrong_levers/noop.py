"""Right: it does nothing."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    return session.wrap_calls(lambda call, model, args, kwargs: call(model, *args, **kwargs))


LEVER = Lever(
    name="noop",
    title="Do nothing.",
    relieves=("COMPUTE_BOUND",),
    phases=("forward", "backward"),
    preserves=Preserves.NUMERIC,
    when="Always: it leaves all as it is.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.STARTUP,
    apply=apply,
    edit=lambda settings: "none",
    costs="The training.",
    source="planted",
)
