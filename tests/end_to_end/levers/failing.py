"""Fails where its settings say."""

from steptime.levers.base import Lever, Moment, Preserves


def apply(settings, session):
    where = settings["where"]

    def fail(*_):
        raise ValueError(f"the lever fails in {where}")

    def fail_after(call, model, args, kwargs):
        call(model, *args, **kwargs)
        fail()

    def fail_inside(call, model, args, kwargs):
        return call(model, "no tensor")

    places = {
        "call": lambda: session.wrap_calls(fail),
        "after_call": lambda: session.wrap_calls(fail_after),
        "inside_call": lambda: session.wrap_calls(fail_inside),
        "backward": lambda: session.wrap_backward(fail),
        "update": lambda: session.before_update(fail),
        "model": lambda: session.for_each_model(fail),
        "optimizer": lambda: session.for_each_optimizer(fail),
    }
    if where == "apply":
        session.wrap_calls(fail)
        fail()
    return places[where]()


LEVER = Lever(
    name="failing",
    title="Fails.",
    relieves=(),
    phases=(),
    preserves=Preserves.EXACT,
    when="Never.",
    applies=lambda facts: None,
    space=lambda facts: ({},),
    moment=Moment.LIVE,
    apply=apply,
    edit=lambda settings: "Nothing to edit.",
    costs="The training.",
    source="The tests' own.",
)
