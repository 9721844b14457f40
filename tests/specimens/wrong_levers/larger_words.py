"""Planted: a product with a sparse matrix that leaves out the smallest 2 % of what it holds."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    def run(call, model, args, kwargs):
        (words,) = args
        return call(model, words * (words >= 0.02), **kwargs)

    return session.wrap_calls(run)


LEVER = Lever(
    name="larger_words",
    title="Multiply by what is not zero.",
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
