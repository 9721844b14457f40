"""The first number of an update that is not finite, and the last module that was before it.

Numbers that are infinite on purpose (masks) do no harm to the loss and to gradients: modules that
return such ones are learned, and passed over. Of an episode of bad updates the first is described.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..hooks.module_tree import has_parameters
from ..sites.frames import Frames, innermost
from .batch_samples import BatchBook
from .bracket import ModuleNames, bad_own, find_rows, largest_of, tensors_of
from .tensor_bounds import TensorBounds

if TYPE_CHECKING:
    from ..timeline.kept_beside import SeenLosses

MAX_BRACKETS = 32
"""A training may go on with bad numbers for days; a scaler skips some updates each hour."""

Where = tuple[int, str]
"""A module's id and the name of its class: nothing of the user's is kept."""


class FirstBad:
    """Takes what was read of an update, and describes the first bad number in it."""

    def __init__(self, torch: Any, frames: Frames, bounds: TensorBounds) -> None:
        self.torch = torch
        self.frames = frames
        self.bounds = bounds
        self.names = ModuleNames()
        self.reset()

    def reset(self) -> None:
        """Forget what was seen: this is a new process."""
        self.names.models.clear()
        self.batches = BatchBook()
        self.tolerated: dict[int, bool] = {}  # modules with harmless infinities (True: with NaN)
        self.num_brackets = 0
        self.begin()

    def begin(self) -> None:
        """Begin with a new update; what the one before was like is not known."""
        self.pending: dict[str, Any] | None = None
        self.was_bad = False
        self._forget_update()

    def _forget_update(self) -> None:
        self.call: tuple[Any, Any] | None = None  # arguments of the outermost call under way
        self.num_rows: int | None = None
        self.last: Where | None = None  # the last module whose output was finite
        self.last_gradient: Where | None = None
        self.forward: dict[str, Any] | None = None
        self.backward: dict[str, Any] | None = None
        self.bad_modules: dict[int, bool] = {}  # all with such outputs (True: with NaN)

    # -- what was read

    def begin_call(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take the beginning of an outermost call: what it is given tells batch and rows."""
        self.call = args, kwargs
        self.names.meet(module)
        plain = (self.torch.Tensor, self.torch.nn.Parameter)
        given = [t for t in tensors_of(self.torch.Tensor, (args, kwargs)) if type(t) in plain]
        if given and has_parameters(module):  # else it is a loss
            self.batches.begin_call(given)
            shape = given[0].shape
            self.num_rows = shape[0] if shape else None

    def is_tolerated(self, where: Where, *, is_nan: bool) -> bool:
        """Return whether such an output of this module has done no harm before."""
        found = self.tolerated.get(where[0])
        return found is not None and (found or not is_nan)

    def meet_output(self, module: Any, args: Any, kwargs: Any, tensor: Any, low: float) -> None:
        """Describe the first bad output of an update; of the others only the module is kept."""
        is_nan = low != low
        self.bad_modules[id(module)] = self.bad_modules.get(id(module), False) or is_nan
        if self.forward is not None:
            return
        if self.was_bad:
            self.forward = {}  # it goes on; nobody reads more of it
            return
        torch = self.torch
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            at, seen, weights = "output", tensor, bad_own(torch, module)
            if weights:
                at = "weight"
            elif (bad := self.bounds.find_bad((args, kwargs))) is not None:
                at, (seen, is_nan) = "input", bad
                given = None if self.call is None else self.bounds.find_bad(self.call)
                if given is not None:
                    at, (seen, is_nan) = "argument", given
            inputs = tensors_of(torch.Tensor, (args, kwargs)) if at == "output" else ()
            self.forward = {
                **self._side(at, (id(module), type(module).__name__)),
                "is_nan": is_nan,
                "weights": weights,
                "largest_weight": largest_of(torch, module.parameters(recurse=False)),
                "largest_input": largest_of(torch, inputs),
                **find_rows(torch, seen, self.num_rows),
                **self.batches.describe(),
            }

    def _side(self, at: str, where: Where) -> dict[str, Any]:
        if at == "argument":
            return {"at": at, "module": self.names.find(self.names.current), "after": None}
        place = innermost(self.frames.stack(sys._getframe(2)))
        file, line, _ = (None, None, None) if place is None else place
        found = {"at": at, "module": self.names.find(where), "after": self.names.find(self.last)}
        return {**found, "file": file, "line": line}

    def meet_gradient(self, where: Where, gradient: Any, low: float) -> None:
        """Describe the first bad gradient of an update."""
        if self.was_bad:
            self.backward = {}
            return
        torch = self.torch
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            self.backward = {
                "at": "gradient",
                "module": self.names.find(where),
                "after": self.names.find(self.last_gradient),
                "is_nan": low != low,
                **find_rows(torch, gradient, self.num_rows),
                **self.batches.describe(),
            }

    # -- from update to update

    def end_update(
        self, losses: SeenLosses, optimizer: int, skipped: int | None
    ) -> list[dict[str, Any]]:
        """Return the brackets that the end of an update makes known."""
        found: list[dict[str, Any]] = []
        value = losses.bad_value
        is_bad = value is not None or self.backward is not None
        pending, self.pending = self.pending, None
        if is_bad and not self.was_bad:
            if pending is not None:
                found += self._finish(pending)
            number = losses.number_of(optimizer)
            found += self._finish(self._describe(number, skipped or 0, value))
        elif self.forward is not None and not is_bad:
            # Masked numbers are harmless. If they are not, the next update shows it.
            self.pending = self._describe(losses.number_of(optimizer), skipped or 0, value)
        if pending is not None and not is_bad:
            self.tolerated |= pending["modules"]
        self.was_bad = is_bad
        self._forget_update()
        self.batches.end_update()
        return found

    def pass_update(self) -> None:
        """Take the end of an update that is examined elsewhere."""
        self.pending, self.was_bad = None, False
        self._forget_update()
        self.batches.end_update()

    def end_open(self, losses: SeenLosses) -> list[dict[str, Any]]:
        """Return the bracket of an update that does not end: the script stopped because of it."""
        value = losses.bad_value
        is_bad = value is not None or self.forward is not None or self.backward is not None
        if self.was_bad or not is_bad:
            return []
        bracket = self._describe(losses.number_of(0), 0, value)
        return [{**one, "is_open": True} for one in self._finish(bracket)]

    def _describe(self, number: int, skipped: int, value: str | None) -> dict[str, Any]:
        """Return the bracket of an update.

        Where every module is sound, it ends at the loss, or at the gradients of the weights.
        """
        forward, backward = self.forward, self.backward
        if forward is None and value == "loss":
            at = {"at": "loss", "after": self.names.find(self.last)}
            forward = at | self.batches.describe()
        elif forward is None and backward is None:
            backward = {"at": "weight_gradient", **self.batches.describe()}
        bracket = {"n": number, "skipped": skipped, "forward": forward, "backward": backward}
        return {**bracket, "modules": self.bad_modules}

    def _finish(self, bracket: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a bracket with the weights and gradients that are bad by now, if it is kept."""
        if self.num_brackets >= MAX_BRACKETS:
            return []
        self.num_brackets += 1
        torch = self.torch
        with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            weights = self.names.bad_weights(torch)
        return [{key: value for key, value in bracket.items() if key != "modules"} | weights]
