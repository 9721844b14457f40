"""Runs single operators on fakes: what depends on values is made up, what is missing is named.

In: a dispatch mode's calls. Out: their results, corrected, and what was made up on the way. A
number that a script reads of a fake (a loss that it logs) is 1; the size of a selection
is the share of a mask that is likely: one of as many as `topk` or `argmax` chose among.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

from ..count.tensor_facts import tensors_in
from .corrections import corrected
from .fake_mode import Fakes
from .measured_operators import MeasuredOperators

FINITE = {"isnan": 0.0, "isinf": 0.0, "isfinite": 1.0}
"""Numbers are made up as finite."""

HALF = 0.5
"""Of a mask of which nothing is known."""

CHOICES = ("topk", "argmax", "argmin", "sort", "multinomial")
KEEP_SHARE = (
    *("view", "reshape", "_unsafe_view", "detach", "alias", "clone", "t", "transpose", "permute"),
    *("unsqueeze", "squeeze", "select", "slice", "expand", "_to_copy", "unbind", "split"),
)
"""What is said of an index or a mask holds of the results of these."""

SCALERS = "aten._amp_foreach_non_finite_check_and_unscale_"
READS = "aten._local_scalar_dense"
EMPTIES = ("aten.empty.", "aten.empty_strided.")
MAX_NAMED = 8


class MissingKernelError(Exception):
    """An operator has no fake kernel; the text is its name."""


class FakeOperators:
    """Runs operators, and notes what a forecast does not know.

    Args:
        fakes: makes fakes.
        measured: runs operators for real, each once; None where nothing may run.
    """

    def __init__(self, fakes: Fakes, measured: MeasuredOperators | None = None) -> None:
        self.fakes = fakes
        self.measured = measured
        self.missing: Callable[[str], None] = lambda name: None  # takes what nobody can run
        self.shares: dict[int, tuple[Any, float]] = {}  # of fakes: one chosen among how many
        self.unknown: dict[str, None] = {}
        self.places: tuple[str, ...] = ()  # files whose empty tensors are exchanged between ranks
        self.exchanged: weakref.WeakSet[Any] = weakref.WeakSet()  # the storages of these
        self.resizing: Callable[[Any, int], None] = lambda storage, size: None

    def note(self, word: str, detail: str) -> None:
        """Note something that is not known, once, with where it is."""
        if sum(one.startswith(word) for one in self.unknown) < MAX_NAMED:
            self.unknown[f"{word}: {detail}"] = None

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator; raise MissingKernelError where nobody knows its shapes."""
        name = str(func)
        if name.startswith(READS) and self.fakes.is_fake(args[0]):
            if not args[0].is_floating_point():  # others are logged far more often than they decide
                self.note("made_up_value", shape_of(args[0]))
            return _number(args[0].dtype, self._share_of(args[0]))
        if self.places and name.startswith(EMPTIES) and self._is_exchanged(kwargs):
            return self._make_exchanged(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except self.fakes.data_dependent:
            return self._make_up(name, func, args, kwargs)
        except self.fakes.unsupported as error:
            return self._run_missing(name, func, args, kwargs, error)
        except RuntimeError as error:
            if "no fake impl" not in str(error):  # what torch says of an operator of a library's
                raise
            return self._run_missing(name, func, args, kwargs, error)
        self._follow_choice(name, args, result)
        if self.measured is not None:
            result = self.measured.corrected(func, args, kwargs, result)
        return corrected(self.fakes, name, args, result)

    # -- what ranks exchange

    def _is_exchanged(self, kwargs: Any) -> bool:
        """Return whether the code of DDP or FSDP2 makes this tensor, and not to read it."""
        torch = self.fakes.torch
        if kwargs.get("dtype") in (torch.int32, torch.int64):
            return False  # the order of buckets
        name = sys._getframe(3).f_code.co_filename.replace("\\", "/")
        return any(place in name for place in self.places)

    def _make_exchanged(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self.fakes.mode:
            result = func(*args, **kwargs)
        for tensor in tensors_in(result):
            self.exchanged.add(tensor.untyped_storage())
        return result

    # -- what depends on values

    def _follow_choice(self, name: str, args: Any, result: Any) -> None:
        """Keep among how many an index was chosen, and which part of a mask is likely true."""
        if not name.startswith("aten.") or not args:
            return
        if name.startswith(SCALERS):
            self._keep(args[1], 0.0)  # no gradient is infinite, else no update would follow
        share = self._share_after(name.split(".")[1], args)
        if share is not None:
            for tensor in tensors_in(result):
                if not tensor.is_floating_point():
                    self._keep(tensor, share)

    def _share_after(self, short: str, args: Any) -> float | None:
        first = args[0]
        if short in CHOICES and hasattr(first, "ndim"):
            return 1 / max(1, first.shape[-1]) if first.ndim else None
        if short in ("eq", "ne") and len(args) > 1:
            equal = self._equal_share(first, args[1])
            return equal if equal is None or short == "eq" else 1 - equal
        if short in FINITE:
            return FINITE[short]
        share = self._share_of(first)
        if share is None:
            return None
        if short in ("any", "all"):
            return float(share > 0 if short == "any" else share == 1)
        if short in ("logical_not", "bitwise_not"):
            return 1 - share
        if short in ("logical_or", "bitwise_or", "add"):
            other = self._share_of(args[1])
            return share if other is None else share + other - share * other
        if short in ("mul", "logical_and", "bitwise_and"):
            other = self._share_of(args[1])
            return share if other is None else share * other
        return share if short in KEEP_SHARE else None

    def _equal_share(self, first: Any, second: Any) -> float | None:
        """Return which part of two values is likely equal; numbers are made up as finite."""
        if first is second:
            return 1.0
        if isinstance(second, float) and math.isinf(second):
            return 0.0
        return self._share_of(first)

    def _keep(self, tensor: Any, share: float) -> None:
        self.shares[id(tensor)] = (tensor, share)

    def _share_of(self, value: Any) -> float | None:
        found = self.shares.get(id(value))
        return found[1] if found is not None and found[0] is value else None

    def forget(self) -> None:
        """Forget what was chosen in a step: its tensors are kept alive by it."""
        self.shares.clear()

    def _make_up(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a result whose size depends on values."""
        if (known := self._run_decided(func, args, kwargs)) is not None:
            return known
        mask = args[1] if name.startswith("aten.masked_select") else args[0]
        if name.startswith("aten.index.Tensor"):
            mask = next(one for one in tensors_in([args[1]]) if not one.is_floating_point())
        share = self._share_of(mask)
        self.note("made_up_size", f"{name} of {shape_of(mask)}")
        num = max(1, round(mask.numel() * (HALF if share is None else share)))
        torch, like = self.fakes.torch, args[0]
        if name.startswith("aten.nonzero"):
            return self.fakes.empty((num, mask.ndim), like, torch.int64)
        if name.startswith("aten.masked_select"):
            return self.fakes.empty((num,), like)
        if name.startswith("aten.index.Tensor"):
            return self.fakes.empty((num, *like.shape[mask.ndim :]), like)
        self.missing(name)
        raise MissingKernelError(name)

    def _run_decided(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run on zeros what real numbers decide, such as lengths; None where fakes may, too."""
        given = [*tensors_in(list(args)), *tensors_in(list(kwargs.values()))]
        fakes = [one for one in given if self.fakes.is_fake(one)]
        if len(fakes) == len(given) or not all(one.is_floating_point() for one in fakes):
            return None
        try:
            return MeasuredOperators(self.fakes).run(func, args, kwargs, keeps_numbers=True)
        except (RuntimeError, IndexError, ValueError):  # zeros are no arguments for it
            return None

    def _run_missing(self, name: str, func: Any, args: Any, kwargs: Any, error: Any) -> Any:
        self.note("no_fake_kernel", name)
        if self.measured is None:
            self.missing(name)
            raise MissingKernelError(name) from error
        return self.measured.run(func, args, kwargs)


def _number(dtype: Any, share: float | None) -> Any:
    if str(dtype) == "torch.bool":
        return share is None or share >= HALF
    if share is not None and dtype.is_floating_point:
        return share
    return 1.0 if dtype.is_complex or dtype.is_floating_point else 1


def shape_of(tensor: Any) -> str:
    """Return type and shape as a finding names them: `float32 [4, 10]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
