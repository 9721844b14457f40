"""The dispatch mode that sees each operator: how it is made, and how it is left.

In: what takes an operator once it has run. Out: a mode that runs each operator unchanged.
`tally.py` adds up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..timeline.interrupts import let_through
from .tensor_facts import is_view, tensors_in

HELD = ("DTensor", "FakeTensor", "AsyncCollectiveTensor")
"""Classes of torch's with a dispatch of their own whose operators arrive as those of plain tensors,
or have their shapes."""


UNKNOWN = "?"
"""Stands for a class that could not be asked."""


def is_foreign(torch: Any, kind: Any) -> bool:
    """Return whether tensors of this class run their operators themselves, where nothing is seen.

    A class without a dispatch of its own (a picture, a box) is a plain tensor down here.
    """
    own = getattr(kind, "__torch_dispatch__", None)
    return own != torch.Tensor.__torch_dispatch__ and kind.__name__ not in HELD


def classes_in(torch: Any, types: Any) -> tuple[list[str], list[str]]:
    """Return the names of classes of tensors, and of those that are foreign.

    A class that cannot be asked is foreign.
    """
    try:
        names = [kind.__name__ for kind in types]
        return names, [kind.__name__ for kind in types if is_foreign(torch, kind)]
    except BaseException as error:
        let_through(error)
        return [], [UNKNOWN]


def leave_mode(torch: Any, mode: Any) -> None:
    """Leave this mode only: one that the script entered in between and kept stays on."""
    dispatch = torch.utils._python_dispatch
    num = torch._C._len_torch_dispatch_stack()
    stack = [torch._C._get_dispatch_stack_at(i) for i in range(num)]
    at = next((i for i, one in enumerate(stack) if one is mode), num)
    if at == num:
        return
    above = [dispatch._pop_mode() for _ in stack[at + 1 :]]
    mode.__exit__(None, None, None)
    for other in reversed(above):
        dispatch._push_mode(other)


def make_mode(
    torch: Any,
    add: Callable[[Any, Any, Any, Any, int], tuple[list[int], ...] | None],
    clock: Callable[[], int],
    *,
    decomposes: bool = False,
    takes_fakes: bool = False,
    workspaces: Any = None,
    times: Any = None,
    before: Callable[[Any, Any, Any], None] | None = None,
) -> Any:
    """Return a dispatch mode that runs each operator unchanged and then reports it.

    Tensors of a class that `is_foreign` run their operators with the mode off. The mode's attribute
    `foreign` has the names of the classes that were met.

    Args:
        torch: the module.
        add: takes an operator, its positional and named arguments, its result, and its time [ns].
        clock: [ns].
        decomposes: whether composite operators are decomposed, as autograd does it; without
            gradients they arrive whole.
        takes_fakes: whether the model has shapes only. Otherwise fake tensors are torch's own: it
            tries an operator of several ranks on shapes before it runs it.
        workspaces: sees the memory that operators take for themselves (`Workspaces`), if allowed.
        times: times operators on a device (`OperatorTimes`), for the rows that `add` returns.
        before: takes an operator and its arguments right before it runs.
    """

    class OperatorCounter(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch wraps the method below, at more than its own cost

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names, strange = classes_in(torch, types)
            if strange:
                self.foreign.update(strange)
                return func(*args, **(kwargs or {}))
            if "DTensor" in names:
                return NotImplemented  # it calls again with this rank's part
            if getattr(func, "namespace", "") == "prim" or (
                "FakeTensor" in names and not takes_fakes
            ):
                return func(*args, **(kwargs or {}))
            is_torchs = decomposes and getattr(func, "namespace", None) == "aten"
            if is_torchs and not any(one.is_nested for one in tensors_in(args)):
                with self:
                    result = func.decompose(*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
            if before is not None:
                before(func, args, kwargs or {})
            is_watched = workspaces is not None and workspaces.begin(func, args)
            event = None if times is None or is_view(func) else times.mark()
            try:
                began = clock()
                result = func(*args, **(kwargs or {}))
                ns = clock() - began
            finally:
                if is_watched:
                    workspaces.end()
            pair = None if event is None else (event, times.mark())
            rows = add(func, args, kwargs or {}, result, ns)
            if pair is not None and rows is not None:
                times.book(pair, tensors_in([*args, result]), rows)
            return result

    mode = OperatorCounter()
    mode.foreign = set()
    return mode
