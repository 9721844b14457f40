"""Batches and calls apart from the padding behind their rows: how much of it there is may differ.

A lever of class NUMERIC may cut padding off. Before the checksum of a batch is taken, the batch is
cut here as far as its own mask allows, with a lever and without. If a lever cuts more than padding,
mask and tokens are missing, and the checksum is another one.
"""

from __future__ import annotations

from typing import Any

from ..trial.trial_plan import lever_tool
from .checksums import crc_of


class ApartFromPadding:
    """Cuts batches, and the arguments of the calls that are made with them."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.padding = lever_tool("lengths/mask_padding")
        self.tensors = lever_tool("tools/tensors")
        self.widths: tuple[int, int] | None = None  # of the last batch: as it came, and cut

    def cut(self, batch: Any) -> Any:
        """Return a loader's batch without the padding behind its longest row."""
        cut = self.padding.trim(self.torch, batch)
        self.widths = None if cut is batch else self._compare_widths(batch, cut)
        return cut

    def crc_of_call(self, arguments: Any) -> int:
        """Return the checksum of a call's arguments, cut as the last batch was.

        Where no mask is among them, whatever is as wide as that batch is cut: by one column more or
        less where inputs and targets are shifted against each other.
        """
        cut = self.padding.trim(self.torch, arguments)
        if cut is arguments and self.widths is not None:
            cut = self.tensors.map_tensors(self.torch, arguments, self._shorten)
        return crc_of(cut)

    def _compare_widths(self, batch: Any, cut: Any) -> tuple[int, int] | None:
        fields = [self.padding.fields_of(self.torch, one) for one in (batch, cut)]
        for (_, before), (_, after) in zip(*fields):
            if before.shape != after.shape:
                return int(before.shape[1]), int(after.shape[1])
        return None

    def _shorten(self, tensor: Any) -> Any:
        width, kept = self.widths or (0, 0)
        for dimension, size in enumerate(tensor.shape):
            is_rows = dimension == 0 and tensor.dim() > 1
            if abs(size - width) <= 1 and not is_rows:
                tensor = tensor.narrow(dimension, 0, max(0, kept + size - width))
        return tensor
