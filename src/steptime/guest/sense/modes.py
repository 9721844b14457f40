"""Updates in evaluation mode: a model that trained in training mode, and does not any more.

A model is judged by all its calls with gradients since the last update. One in training mode is
enough: an attack on the model, or a teacher, is called in evaluation mode on purpose. Only modules
that compute something else then are of interest: dropout, and batch statistics.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ..hooks.module_tree import modules_of, parameters_of
from ..sites.frames import Frames, innermost

MIN_TRAINED = 8
"""Updates in training mode before: a first call, to see whether the model runs, proves nothing."""

MAX_PARTS, MAX_TRIES = 16, 4
"""Parts of models that are followed, and updates in which one may be seen not to train."""

MAX_PLACES = 64
MAX_MODELS = 256
MAX_WEIGHTS = 200
"""Weights of an optimizer that are compared with those of a model."""


Pair = tuple[int, int]
"""The ids of a model and of an optimizer."""


class EvaluatedPart:
    """A part of a model that was put into evaluation mode alone, at a place; `what` it changes."""

    __slots__ = ("num_tries", "place", "reference", "what")

    def __init__(self, module: Any, place: Any) -> None:
        self.reference = weakref.ref(module)
        self.place = place
        self.what: list[str] | None = None
        self.num_tries = 0


class Modes:
    """The modes in which the models of a thread are trained."""

    def __init__(self, torch: Any, frames: Frames, is_seen: Callable[[], bool]) -> None:
        self.torch = torch
        self.frames = frames
        self.is_seen = is_seen  # a mode of the script would see gradients read
        self.calls: dict[int, Any] = {}  # since the last update: True, or one in evaluation mode
        self.known: dict[int, Any] = {}  # models that were called in training mode
        self.trained: dict[int, int] = {}  # updates in training mode, by model
        self.harmless: set[Pair] = set()  # they compute the same in both modes, or do not train
        self.places: dict[tuple[CodeType, int], dict[str, Any] | None] = {}
        self.evaluated: tuple[Any, Any] = (lambda: None, None)  # who, and where
        self.parts: dict[int, EvaluatedPart] = {}
        self.found: dict[Pair, dict[str, Any]] = {}

    def see_call(self, module: Any) -> None:
        """Take an outermost call with gradients."""
        key = id(module)
        if module.training:
            self.calls[key] = True
            if key not in self.known:
                self.known[key] = weakref.ref(module)
        elif key in self.known and key not in self.calls:
            self.calls[key] = self.known[key]

    def see_eval(self, module: Any, frame: FrameType) -> None:
        """Take a call of `eval()` that begins, and where it is."""
        key = frame.f_code, frame.f_lasti
        if key not in self.places and len(self.places) < MAX_PLACES:
            place = innermost(self.frames.stack(frame))
            found = None if place is None else {"file": place[0], "line": place[1]}
            self.places[key] = found
        self.evaluated = weakref.ref(module), self.places.get(key)
        if id(module) not in self.known and len(self.parts) < MAX_PARTS:
            self.parts[id(module)] = EvaluatedPart(module, self.places.get(key))

    def end_step(self, optimizer: Any, number: int) -> None:
        """Take the end of the update with this number, from 1."""
        trained = self.trained
        for key, seen in self.calls.items():
            if seen is True:
                trained[key] = trained.get(key, 0) + 1
                continue
            pair = key, id(optimizer)
            is_known = trained.get(key, 0) >= MIN_TRAINED and pair not in self.harmless
            if is_known and not self.is_seen():
                self._see_evaluated(pair, seen(), optimizer, number)
        if self.parts and True in self.calls.values() and not self.is_seen():
            self._see_parts(optimizer, number)
        self.calls.clear()
        if len(self.known) > MAX_MODELS:  # a script that makes models in each step
            self.known.clear()
            trained.clear()

    def _see_evaluated(self, key: Pair, model: Any, optimizer: Any, number: int) -> None:
        if model is None or model.training:
            return  # another one has its number by now
        known = self.found.get(key)
        if known is not None:
            known["num_updates"] += 1
            return
        what = self._what_differs(model) if _trains(optimizer, model) else []
        if not what:
            self.harmless.add(key)
            return
        owner, place = self.evaluated
        is_left_so = any(one is model for _, one in modules_of(owner())) if owner() else False
        self.found[key] = {
            "model": type(model).__name__,
            "first_update": number,
            "num_updates": 1,
            "what": what,
            "place": place if is_left_so else None,
        }

    def _see_parts(self, optimizer: Any, number: int) -> None:
        """Take an update of models in training mode, parts of which may be in the other one.

        Batch statistics alone are often kept on purpose; a dropout that is off is not.
        """
        for key, part in list(self.parts.items()):
            module = part.reference()
            if module is None or module.training or part.num_tries >= MAX_TRIES:
                del self.parts[key]
                continue
            if part.what is None:
                part.num_tries += 1
                if not _trains(optimizer, module) or not self._has_trained(module):
                    continue
                part.what = self._what_differs(module)
                if "dropout" not in part.what:
                    del self.parts[key]
                    continue
            part.num_tries = 0
            known = self.found.setdefault(
                (key, 0),
                {
                    "model": type(module).__name__,
                    "first_update": number,
                    "num_updates": 0,
                    "what": part.what,
                    "place": part.place,
                },
            )
            known["num_updates"] += 1

    def _has_trained(self, part: Any) -> bool:
        """Return whether a model with this part has trained for a while."""
        models = [self.known[key]() for key, num in self.trained.items() if num >= MIN_TRAINED]
        held = (one for model in models if model is not None for _, one in modules_of(model))
        return any(one is part for one in held)

    def _what_differs(self, model: Any) -> list[str]:
        """Return which of its parts compute something else in evaluation mode."""
        modules = self.torch.nn.modules
        found: set[str] = set()
        for _, module in modules_of(model):
            if module.training:
                continue
            if isinstance(module, modules.dropout._DropoutNd):
                found |= {"dropout"} if module.p else set()
            elif isinstance(module, (modules.rnn.RNNBase, modules.activation.MultiheadAttention)):
                found |= {"dropout"} if module.dropout else set()
            elif isinstance(module, modules.batchnorm._NormBase) and module.track_running_stats:
                found.add("batch_norm")
        return sorted(found)

    def tell(self) -> dict[str, Any] | None:
        """Return the model with the most such updates."""
        return max(self.found.values(), key=lambda one: int(one["num_updates"]), default=None)


def _trains(optimizer: Any, model: Any) -> bool:
    """Return whether an optimizer has just updated weights of a model."""
    own = {id(weight) for _, weight in parameters_of(model)}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    known = [one for one in weights[:MAX_WEIGHTS] if one.grad is not None]
    return any(id(weight) in own for weight in known)
