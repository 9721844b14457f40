"""The stack of levers that are on: the last one put on is the first one taken off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .lever_session import LeverSession, Owner, Registry
from .trial_plan import Wanted, load_lever


class NotUndoneError(Exception):
    """A lever could not be taken off; the cause of the exception says why."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted.name)
        self.wanted = wanted


class LeverStack:
    """Puts levers on and takes them off.

    Args:
        registry: where they register their callbacks.
        load: returns the lever that is wanted; raises where there is none.
    """

    def __init__(self, registry: Registry, load: Callable[[Wanted], Any] = load_lever) -> None:
        self.registry = registry
        self.load = load
        self.owners: list[Owner] = []
        self.is_acting = False  # what happens now is a lever's doing, not the script's
        self.was_used = False

    def put_on(self, wanted: Wanted, *, must_undo: bool) -> None:
        """Apply a lever; if that fails, remove its callbacks and raise."""
        owner = Owner(wanted)
        self.is_acting = self.was_used = True
        try:
            lever = self.load(wanted)
            owner.undo = lever.apply(wanted.settings, LeverSession(self.registry, owner))
            if must_undo and owner.undo is None:
                raise TypeError(f"`apply` of {wanted.name!r} returned no way back")
        except BaseException:
            self.registry.take_down(owner)
            raise
        finally:
            self.is_acting = False
        self.owners.append(owner)

    def take_off(self) -> None:
        """Undo the topmost lever."""
        owner = self.owners[-1]
        try:
            self.drop(owner)
        except Exception as error:
            raise NotUndoneError(owner.wanted) from error

    def drop(self, owner: Owner) -> None:
        """Undo a lever, wherever it is in the stack."""
        if owner in self.owners:
            self.owners.remove(owner)
        if owner.is_off:
            return
        owner.is_off = True
        self.registry.take_down(owner)
        if owner.undo is None:
            return
        self.is_acting = True
        try:
            owner.undo()
        finally:
            self.is_acting = False

    def go_to(self, state: Sequence[Wanted], *, above: int) -> None:
        """Make the levers above the first `above` those of a state, in its order.

        Levers below the first difference stay on untouched.
        """
        kept = above
        for owner, wanted in zip(self.owners[above:], state):
            if owner.wanted != wanted:
                break
            kept += 1
        while len(self.owners) > kept:
            self.take_off()
        for wanted in state[kept - above :]:
            self.put_on(wanted, must_undo=True)
