"""The outputs and gradients of modules on a device: read some updates later, without a wait.

Their bounds are computed where they are, and fetched together at the end of the update. So neither
the rows nor the weights can be examined: the bracket has the modules and the samples of the batch.
What the loss was is not known in time either. An update is bad if a gradient was; infinite outputs
without a bad gradient do no harm.
"""

from __future__ import annotations

from typing import Any

from .batch_samples import BatchBook
from .bracket import ModuleNames
from .number_fetch import NumberFetch

ARGUMENT, INPUT, OUTPUT, GRADIENT = "argument", "input", "output", "gradient"

Where = tuple[int, str]
Entry = tuple[str, Where]


class DeviceOutputs:
    """What was computed of one update after the other; `brackets` are those not taken yet."""

    def __init__(self, torch: Any, names: ModuleNames, batches: BatchBook) -> None:
        self.torch = torch
        self.names = names
        self.batches = batches
        self.fetch = NumberFetch(torch)
        self.reset()

    def reset(self) -> None:
        """Forget what is under way."""
        self.entries: list[Entry] = []
        self.bounds: list[Any] = []
        self.brackets: list[dict[str, Any]] = []
        self.tolerated: dict[int, bool] = {}
        self.was_bad = False
        self.num_behind = 0
        self.fetch.waiting.clear()

    def add(self, kind: str, where: Where, tensor: Any) -> None:
        """Compute the bounds of a tensor, in the order of the stream."""
        torch = self.torch
        if torch._C._len_torch_dispatch_stack():
            with torch._C._DisableTorchDispatch():
                bounds = torch.aminmax(tensor.detach())
        else:
            bounds = torch.aminmax(tensor.detach())
        self.entries.append((kind, where))
        self.bounds += bounds

    def end_update(self, number: int, skipped: int) -> None:
        """Fetch the bounds of an update; hand over those of earlier ones."""
        entries, self.entries = self.entries, []
        bounds, self.bounds = self.bounds, []
        facts = {"n": number, "skipped": skipped, "samples": self.batches.describe()}

        def take(numbers: list[float]) -> None:
            pairs = zip(numbers[::2], numbers[1::2], strict=True)
            self._take(facts, list(zip(entries, pairs, strict=True)))

        torch = self.torch
        with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            self.num_behind += not self.fetch.begin(bounds, take)
            self.fetch.poll()

    def _take(self, facts: dict[str, Any], found: list[tuple[Entry, tuple[float, float]]]) -> None:
        """Make the bracket of an update, if it is the first bad one in a row."""
        bad = [
            (place, kind, where, low != low)
            for place, ((kind, where), (low, high)) in enumerate(found)
            if not low - low == 0.0 == high - high
        ]
        gradient = next((one for one in bad if one[1] == GRADIENT), None)
        outputs = [one for one in bad if one[1] != GRADIENT]
        if gradient is None:
            for _, _, where, is_nan in outputs:
                self.tolerated[where[0]] = self.tolerated.get(where[0], False) or is_nan
            self.was_bad = False
            return
        was_bad, self.was_bad = self.was_bad, True
        if was_bad:
            return
        output = next((one for one in outputs if not self._is_harmless(one)), None)
        forward = self._side(found, output, facts)
        backward = self._side(found, gradient, facts)
        if forward is None and backward is not None and backward["after"] is None:
            last = next((w for (kind, w), _ in reversed(found) if kind == OUTPUT), None)
            forward = {"at": "loss", "after": self.names.find(last), **facts["samples"]}
        self.brackets.append(
            {
                "n": facts["n"],
                "skipped": facts["skipped"],
                "forward": forward,
                "backward": backward,
                "is_late": True,
            }
        )

    def _is_harmless(self, one: tuple[int, str, Where, bool]) -> bool:
        _, _, where, is_nan = one
        known = self.tolerated.get(where[0])
        return known is not None and (known or not is_nan)

    def _side(
        self,
        found: list[tuple[Entry, tuple[float, float]]],
        one: tuple[int, str, Where, bool] | None,
        facts: dict[str, Any],
    ) -> dict[str, Any] | None:
        """Return a side of the bracket: the last sound entry of its direction, and the bad one."""
        if one is None:
            return None
        place, kind, where, is_nan = one
        same = (GRADIENT,) if kind == GRADIENT else (OUTPUT,)
        after = next((w for (k, w), _ in reversed(found[:place]) if k in same), None)
        return {
            "at": kind,
            "module": self.names.find(where),
            "after": None if kind == ARGUMENT else self.names.find(after),
            "is_nan": is_nan,
            **facts["samples"],
        }

    def pop(self) -> list[dict[str, Any]]:
        """Return the brackets that have become known."""
        self.fetch.poll()
        brackets, self.brackets = self.brackets, []
        return brackets


TAKE_TENSORS = (DeviceOutputs.add, DeviceOutputs.end_update)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
