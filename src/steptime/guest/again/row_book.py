"""Tells whether the rows of tensors come again, by a digest of each.

A digest is a sum of a row's elements, as whole numbers, by odd weights: a row that is flipped or
cut elsewhere has another one, and zeros at the end (padding) count for nothing. Of rows with many
elements those in the middle are read. Where there are many rows, those whose digest ends in
zeros stand for all of them, so that memory and time stay bounded and the same rows are met in each
epoch.
"""

from __future__ import annotations

from ctypes import c_int64, string_at
from typing import Any

MAX_KEPT = 16_384
"""Digests in memory: 1 MB. Beyond it, half of them are left out, and stand for twice as many."""

MAX_ELEMENTS = 16_384
"""Elements of a batch that are read: 0.1 ms with cold caches."""

MIN_ELEMENTS = 64
"""Of a row, at least: an augmentation hardly leaves all of these as they were."""

MANY = 64
"""Rows that must come again, at least, before it is said of all."""

_ODD = 0x9E3779B1
_MASK = (1 << 31) - 1


class RowBook:
    """The rows so far: how many there are, and whether new ones still come."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.weights: dict[int, bytearray] = {}
        self.kept: set[int] = set()
        self.mask = 0
        self.num_rows = 0
        self.streak = 0  # sampled rows that had all been met before, since the last new one
        self.row_bytes = 0
        self.most = 0  # elements of a row that are read

    def see(self, tensors: list[Any], salt: int = 0) -> bool:
        """Take the rows of tensors that belong together; False where they have none.

        Args:
            tensors: plain tensors on the CPU with equal leading sizes.
            salt: of what else the rows depend on.
        """
        digests = self._digests(tensors)
        if digests is None:
            return False
        self.num_rows += len(digests)
        for digest in (one ^ salt for one in digests):
            if digest & self.mask:
                continue
            if digest in self.kept:
                self.streak += 1
                continue
            self.streak = 0
            self.kept.add(digest)
            if len(self.kept) > MAX_KEPT:
                self.mask = 2 * self.mask + 1
                self.kept = {one for one in self.kept if not one & self.mask}
        return True

    @property
    def num_distinct(self) -> int:
        """How many different rows there are, estimated where some stand for all."""
        return len(self.kept) * (self.mask + 1)

    @property
    def comes_again(self) -> bool:
        """Whether all rows of half a pass had been met before: no new ones are to be expected."""
        return self.streak >= max(MANY / (self.mask + 1), 8, len(self.kept) / 2)

    def _digests(self, tensors: list[Any]) -> list[int] | None:
        """Return a number for each row."""
        sizes = {int(one.shape[0]) for one in tensors if one.dim()}
        if len(sizes) != 1 or not all(one.dim() and one.numel() for one in tensors):
            return None
        (num,) = sizes
        if not self.most:  # the same of each row, also of the fewer ones in a last batch
            self.most = max(MIN_ELEMENTS, MAX_ELEMENTS // (num * len(tensors)))
        total: Any = None
        self.row_bytes = 0
        for tensor in tensors:
            numbers = self._whole_numbers(tensor.detach().reshape(num, -1), self.most)
            self.row_bytes += tensor.numel() // num * tensor.element_size()
            part = (numbers * self._weights(numbers.shape[1])).sum(1, dtype=self.torch.int64)
            total = part if total is None else total * _ODD + part
        return None if total is None else [(one ^ one >> 29) & _MASK for one in read_whole(total)]

    def _whole_numbers(self, rows: Any, most: int) -> Any:
        """Return the elements as whole numbers of 32 bits; of long rows, those in their middle.

        They lie together, because memory that is read here and there takes ten times as long.
        """
        torch = self.torch
        if rows.shape[1] > most:
            begin = (rows.shape[1] - most) // 2
            rows = rows[:, begin : begin + most]
        if rows.is_complex():
            rows = torch.view_as_real(rows.contiguous()).reshape(rows.shape[0], -1)
        if rows.element_size() < 4:
            rows = rows.float() if rows.is_floating_point() else rows.int()
        return rows.contiguous().view(torch.int32)

    def _weights(self, num: int) -> Any:
        """Return odd numbers that differ from place to place."""
        known = self.weights.get(num)
        if known is None:
            if len(self.weights) > 8:
                self.weights.clear()
            odd = mixed(self.torch.arange(1, num + 1, dtype=self.torch.int64, device="cpu"))
            odd = (odd | 1).to(self.torch.int32)
            # A tensor that is kept would count as one of the training's.
            known = self.weights[num] = bytearray(string_at(odd.data_ptr(), 4 * num))
        return self.torch.frombuffer(known, dtype=self.torch.int32)


def mixed(places: Any) -> Any:
    """Return whole numbers below 2^31 that do not follow a line, as their places do.

    By weights on a line, rows of small whole numbers would have one digest for each sum of their
    elements and of their elements times their places. Source: the finalizer of MurmurHash3.
    """
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        places = (places * _ODD ^ places >> shift) * factor & _MASK
    return places ^ places >> 16


def read_whole(numbers: Any) -> list[int]:
    """Return 64-bit whole numbers on the CPU; the script's own reads are counted, ours are not."""
    return list((c_int64 * numbers.numel()).from_address(numbers.contiguous().data_ptr()))


TAKE_TENSORS = (
    *(RowBook.see, RowBook._digests, RowBook._whole_numbers, RowBook._weights, read_whole),
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
