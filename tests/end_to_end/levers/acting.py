"""A lever for the tests of studies that does what its setting says, in the user's process."""

import sys
import time

from steptime.levers.base import Lever, Moment, Preserves

ACTS = ("nothing", "quick", "crash", "hang", "not_finite", "half")


def apply(settings, session):
    return {
        "nothing": do_nothing,
        "quick": be_quick,
        "crash": crash,
        "hang": hang,
        "not_finite": spoil,
        "half": halve,
    }[settings["act"]](session)


def do_nothing(session):
    return session.wrap_calls(lambda call, model, args, kwargs: call(model, *args, **kwargs))


def be_quick(session):
    """Take the waste out of the script's own function, once that is there."""
    main = sys.modules["__main__"]
    before = []

    def call_quickly(call, model, args, kwargs):
        if not before:
            before.append(main.BURN_S)
            main.BURN_S = 0.0
        return call(model, *args, **kwargs)

    undo_call = session.wrap_calls(call_quickly)

    def undo():
        undo_call()
        if before:
            main.BURN_S = before.pop()

    return undo


def crash(session):
    def fail(call, model, args, kwargs):
        raise RuntimeError("planted")

    return session.wrap_calls(fail)


def hang(session):
    def sleep(call, model, args, kwargs):
        time.sleep(3600)

    return session.wrap_calls(sleep)


def spoil(session):
    return session.wrap_calls(
        lambda call, model, args, kwargs: call(model, *args, **kwargs) * float("nan")
    )


def halve(session):
    """Wrong, and a little quicker: half of each batch, and no waste."""
    undo_quick = be_quick(session)
    undo_call = session.wrap_calls(
        lambda call, model, args, kwargs: call(model, args[0][::2], **kwargs)
    )

    def undo():
        undo_call()
        undo_quick()

    return undo


def variables(settings, libraries):
    return {"BURN": "no"}


def make(name, act, **fields):
    values = {
        "name": name,
        "title": "Does what the tests want.",
        "relieves": ("HOST_BOUND",),
        "phases": ("other", "forward", "backward", "optimizer", "gradient_processing"),
        "preserves": Preserves.EXACT,
        "when": "Always.",
        "applies": lambda facts: None,
        "space": lambda facts: ({"act": act},),
        "moment": Moment.LIVE,
        "edit": lambda settings: "none",
        "costs": "None.",
        "source": "The tests.",
        "judged_by_cpu_time": True,
        "apply": apply,
    }
    return Lever(**(values | fields))


LEVER = make("acting", "nothing")
