"""Functions in whose place a lever acts; a script's classes are found in a model's first call."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..base import Session, Undo

Known = weakref.WeakKeyDictionary[Any, frozenset[type]]
"""The classes found in each model; a lever keeps them while it is off, so as not to look again."""


def act_where_found(
    session: Session,
    known: Known,
    find: Callable[[Any, Callable[[], Any]], tuple[Any, set[type]]],
    act: Callable[[type], Undo],
) -> Undo:
    """Look for classes in the first call of each model, and act on them from the second one on.

    Args:
        session: the user's process.
        known: what was found before.
        find: `find(model, call)` makes a call as it is; returns its result and the classes.
        act: acts on a class; returns what reverses it.
    """
    done: dict[type, Undo] = {}

    def act_on(model: Any) -> None:
        for owner in known.get(model, frozenset()).difference(done):
            done[owner] = act(owner)

    def run(call: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
        if model in known:
            act_on(model)  # not sooner: a checkpoint would compute the first call again with it
            return call(model, *args, **kwargs)
        result, owners = find(model, lambda: call(model, *args, **kwargs))
        known[model] = frozenset(owners)
        return result

    undos = (session.for_each_model(act_on), session.wrap_calls(run))

    def undo() -> None:
        for take_back in (*undos, *done.values()):
            take_back()

    return undo


def put_forward(owner: Any, forward: Callable[..., Any]) -> Undo:
    """Give a class another `forward`; return what takes it back, unless the script replaced it."""
    return put(owner, "forward", forward)


def put(owner: Any, name: str, ours: Callable[..., Any]) -> Undo:
    """Put a function of ours in the place of one of a class, a module or an object.

    What takes it back leaves what somebody else has put over ours.
    """
    original, is_own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, functools.wraps(original)(ours))

    def undo() -> None:
        if vars(owner).get(name) is not ours:
            return
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return undo
