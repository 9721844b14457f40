"""Learning rates that are others for the time of a step, whatever schedules and scripts set.

This is no lever, as it has no `LEVER`. Like the levers, it imports only the standard library.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..base import Session, Undo

_OWN: weakref.WeakKeyDictionary[Any, list[list[Any]]] = weakref.WeakKeyDictionary()
"""The rates before each change that a running step has made of them, by optimizer.

Hooks after a step run in the order of those before it, not in the reverse one. With one pile for
all levers the last to take off puts back what the script set, whoever it is.
"""


def multiply_rates(session: Session, factor_of: Callable[[Any], float]) -> Undo:
    """Multiply the rates of each step by `factor_of(optimizer)`, and put them back after it."""
    handles = []

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        own = [group.get("lr") for group in optimizer.param_groups]
        _OWN.setdefault(optimizer, []).append(own)
        factor = factor_of(optimizer)
        for group, rate in zip(optimizer.param_groups, own, strict=True):
            if rate is not None and factor != 1:
                group["lr"] = rate * factor

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        for group, rate in zip(optimizer.param_groups, _OWN[optimizer].pop(), strict=True):
            if rate is not None:
                group["lr"] = rate

    def follow(optimizer: Any) -> None:
        handles.append(optimizer.register_step_pre_hook(before))
        handles.append(optimizer.register_step_post_hook(after))
        session.count("changed")

    stop = session.for_each_optimizer(follow)

    def undo() -> None:
        stop()
        for handle in handles:
            handle.remove()

    return undo
