"""The losses of evaluations, where the script computes them with a loss module or its model does.

Of each evaluation (the calls without gradients between two updates) their number, mean and scatter
are kept. On the CPU a loss is read out of memory. On a device it is added up there, and the sums
are fetched when the evaluation is over. A loss of functions, or one that is added up by hand, is
not seen.
"""

from __future__ import annotations

import math
from json import dumps
from typing import TYPE_CHECKING, Any

from ...record import kinds
from .layer_norms import short
from .number_fetch import NumberFetch
from .scalars import readers

if TYPE_CHECKING:
    from ..timeline.journal import Journal
    from ..timeline.recorder import Recorder

MAX_EVALUATIONS = 5_000
MODEL, MODULE = "model", "module"


class Sums:
    """The losses of one evaluation that one source gave; `far` are sums on a device."""

    __slots__ = ("far", "num", "squares", "total")

    def __init__(self) -> None:
        self.num = 0
        self.total = self.squares = 0.0
        self.far: tuple[Any, Any] | None = None


class EvaluationLosses:
    """Sums up the losses of evaluations of the first thread that steps."""

    place = "evaluations"

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.readers = readers(torch)
        self.fetch = NumberFetch(torch)
        self.reset()

    def reset(self) -> None:
        """Forget everything: this is a new process."""
        self.number = -1  # rows that had ended when the evaluation began
        self.update = 0  # the same in updates
        self.sums: dict[str, Sums] = {}
        self.rows: list[list[Any]] = []
        self.num_rows = 0
        self.fetch.waiting.clear()

    def see_call(self, result: Any, journal: Journal) -> None:
        """Take what a model returned in an evaluation."""
        if journal.num_updates != self.number:
            self._close()
            self.number = self.update = journal.num_updates
            if journal.losses is not None:
                self.update = journal.losses.num_ended
        self._add(MODEL, loss_of(self.torch, result))

    def see_loss(self, result: Any, number: int) -> None:
        """Take what a loss module returned without gradients."""
        if number == self.number:
            self._add(MODULE, loss_of(self.torch, result))

    def _add(self, source: str, loss: Any) -> None:
        torch = self.torch
        if loss is None or loss.dtype not in self.readers or torch._C._len_torch_function_stack():
            return
        sums = self.sums.setdefault(source, Sums())
        if loss.is_cpu:
            value = self.readers[loss.dtype](loss.data_ptr())
            sums.num += 1
            sums.total += value
            sums.squares += value * value
        elif not torch._C._len_torch_dispatch_stack() and self._is_free():
            with torch.no_grad():
                value = loss.detach().float()
                total, squares = sums.far or (0.0, 0.0)
                sums.far = (value + total, value * value + squares)
            sums.num += 1

    def _is_free(self) -> bool:
        """Return whether work may be queued: a graph that is captured would record it."""
        return not self.torch.cuda.is_current_stream_capturing()

    def _close(self) -> None:
        """Make the row of the evaluation that is over; a model's own loss comes first."""
        number, sums = self.update, self.sums.get(MODEL) or self.sums.get(MODULE)
        self.number, self.sums = -1, {}
        if sums is None or not sums.num or self.num_rows >= MAX_EVALUATIONS:
            return
        self.num_rows += 1
        if sums.far is None:
            self._write(number, sums.num, sums.total, sums.squares)
            return
        num = sums.num
        self.fetch.begin(list(sums.far), lambda found: self._write(number, num, *found))

    def _write(self, number: int, num: int, total: float, squares: float) -> None:
        mean = total / num
        scatter = math.sqrt(max(0.0, squares / num - mean * mean)) if mean - mean == 0.0 else mean
        self.rows.append([number, num, short(mean), short(scatter)])

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return the rows of evaluations that are over."""
        journals = self.recorder.journals
        if self.number >= 0 and (is_last or (journals and journals[0].num_updates > self.number)):
            self._close()
        self.fetch.poll()
        rows, self.rows = self.rows, []
        return dumps({"k": kinds.EVALUATIONS, "rows": rows}) + "\n" if rows else ""


def loss_of(torch: Any, result: Any) -> Any:
    """Return the loss in what a model or a loss module returned: one number, and the only one.

    What a class of the user's would compute on access is not read.
    """
    if isinstance(result, dict):
        values = [dict.get(result, "loss")]
    elif isinstance(result, (tuple, list)):
        values = [one for one in result if is_number(torch, one)]
    else:
        values = [result]
    found = [one for one in values if is_number(torch, one)]
    return found[0] if len(found) == 1 else None


def is_number(torch: Any, value: Any) -> bool:
    """Return whether a value is a plain tensor of one number."""
    return type(value) is torch.Tensor and not value.shape and value.is_floating_point()


TAKE_TENSORS = (
    EvaluationLosses.see_call,
    EvaluationLosses.see_loss,
    EvaluationLosses._add,
    loss_of,
    is_number,
)
"""Functions whose frames hold tensors (`hooks/patching.py` says why that matters)."""
