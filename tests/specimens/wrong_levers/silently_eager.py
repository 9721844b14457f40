"""Planted: the model is compiled, but every frame runs eagerly."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    torch = session.torch
    torch.compiler.set_stance("force_eager")
    compiled = {}

    def run(call, model, args, kwargs):
        if id(model) not in compiled:
            compiled[id(model)] = torch.compile(model)
        return call(compiled[id(model)], *args, **kwargs)

    return session.wrap_calls(run)


LEVER = Lever(
    name="silently_eager",
    title="Compile the model.",
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
