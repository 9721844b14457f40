"""Who reads gradients between the backward and the update, and whether rates change there.

In a trial only, for its first updates: `Parameter.grad` is asked through a property of ours, which
notes the first reader that is neither an optimizer, nor `zero_grad`, nor we. Clipping, a scaler and
a script that logs norms are such readers. A gradient may be freed after its use only where there is
none. In: moments of a step. Out: fields of `Facts`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ...hooks.patching import put

MAX_UPDATES = 8
"""Updates that are looked at; then the property is gone, because each read costs some 0.3 us."""

OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package: the guest and the levers read gradients, too."""


class GradientLook:
    """What was seen so far.

    Args:
        torch: the module.
        is_open: whether what happens now is the script's own doing.
    """

    def __init__(self, torch: Any, is_open: Callable[[], bool]) -> None:
        self.torch = torch
        self.is_open = is_open
        self.property: Any = None
        self.num_updates = 0
        self.reader: str | None = None
        self.changes_late = False
        self.rates: list[Any] | None = None  # at the end of the last backward
        self.zeroing = torch.nn.modules.module.__file__
        self.folders = (OURS, os.path.dirname(torch.optim.__file__))

    def hook(self) -> None:
        """Ask for gradients through a property, until enough updates were seen."""
        base = self.torch._C.TensorBase.grad

        def read(parameter: Any) -> Any:
            self._see(sys._getframe(1).f_code.co_filename)
            return base.__get__(parameter)

        def write(parameter: Any, value: Any) -> None:
            if value is not None:
                self._see(sys._getframe(1).f_code.co_filename)
            base.__set__(parameter, value)

        self.property = property(read, write)
        put(self.torch.nn.Parameter, "grad", self.property)

    def _see(self, file: str) -> None:
        if self.reader is None and file != self.zeroing and not file.startswith(self.folders):
            self.reader = file if self.is_open() else None

    def end_backward(self, optimizers: Iterable[Any]) -> None:
        """Keep the rates with which the gradients would be used now."""
        if self.num_updates < MAX_UPDATES:
            self.rates = [rates_of(one) for one in optimizers]

    def begin_update(self, optimizers: Iterable[Any]) -> None:
        """Compare them with the rates that are used."""
        rates, self.rates = self.rates, None
        if rates and self.num_updates < MAX_UPDATES and self.is_open():
            now = [rates_of(one) for one in optimizers]
            self.changes_late |= len(now) == len(rates) and now != rates

    def end_update(self) -> None:
        """Count an update, and take the property away after enough of them."""
        self.num_updates += 1
        if self.num_updates == MAX_UPDATES:
            owner = self.torch.nn.Parameter
            if self.property is not None and owner.__dict__.get("grad") is self.property:
                del owner.grad

    def describe(self) -> dict[str, Any]:
        """Return the fields of `Facts`; nothing before the second update."""
        if self.property is None or self.num_updates < 2:
            return {}
        return {
            "reads_gradients": self.reader is not None,
            "changes_rates_late": self.changes_late,
        }


def rates_of(optimizer: Any) -> list[dict[str, Any]]:
    """Return the numbers in an optimizer's groups: rates, decays, momenta."""
    return [
        {key: value for key, value in group.items() if isinstance(value, (bool, int, float, tuple))}
        for group in optimizer.param_groups
    ]
