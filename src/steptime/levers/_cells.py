"""Steps of an LSTM cell that are computed together, once one of their results is wanted.

In: calls of `nn.LSTMCell` inside the `forward` of one module. Each returns states that stand for
tensors that are not computed yet; given to the next call, they make a run of steps longer. Any
other use computes the whole run by torch's LSTM over a sequence. Python 3.10 and up.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from threading import local
from typing import Any

from ._attention import is_close, owner_of, try_out
from ._owners import put_forward
from ._scores import OPERATORS, is_plain

MIN_STEPS = 4
"""A shorter run is computed step by step; a module whose runs are that short is left alone."""

MAX_SHORT = 3
"""So many short runs, one after the other, and its cells are left alone."""


class CellRun:
    """Steps of one cell, one after the other.

    `first` are the states before it, None for zeros; `ends` are the cell states after each step.
    """

    def __init__(self, fuser: CellFuser, cell: Any, first: Any) -> None:
        self.fuser = fuser
        self.cell = cell
        self.first = first
        self.inputs: list[Any] = []
        self.versions: list[tuple[Any, int]] = []
        self.ends: list[weakref.ref[State]] = []
        self.is_grad = fuser.torch.is_grad_enabled()
        self.results: dict[tuple[str, int], Any] | None = None
        self.hold([*(first or ()), *cell.parameters()])

    def hold(self, tensors: list[Any]) -> None:
        """Remember how tensors are now; a run is computed later."""
        found = [one for one in tensors if type(one) is not State]
        self.versions += [(one, one._version) for one in found]

    def add(self, x: Any) -> tuple[State, State]:
        """Make the run one step longer; return its states."""
        self.inputs.append(x)
        self.hold([x])
        at = len(self.inputs) - 1
        after = State(self, "h", at), State(self, "c", at)
        self.ends.append(weakref.ref(after[1]))
        return after

    def follows(self, cell: Any, x: Any, states: Any) -> bool:
        """Return whether a call continues the run: its states are those after the last step."""
        last = len(self.inputs) - 1
        places = [(one._run, one._name, one._at) for one in states]
        return (
            self.results is None
            and cell is self.cell
            and places == [(self, "h", last), (self, "c", last)]
            and x.shape == self.inputs[0].shape
            and self.is_grad == self.fuser.torch.is_grad_enabled()
        )

    def result(self, name: str, at: int) -> Any:
        """Return the hidden or cell state after a step.

        Raises:
            RuntimeError: something that it is made of was changed in place since.
        """
        if self.results is None:
            if any(tensor._version != version for tensor, version in self.versions):
                raise RuntimeError("the input of a step was changed before its result was used")
            with self.fuser.torch.set_grad_enabled(self.is_grad):
                self.results = self.fuser.compute(self)
        return self.results[name, at]


class State:
    """Stands for the hidden (`h`) or the cell state (`c`) after one step of a run."""

    __slots__ = ("__weakref__", "_at", "_name", "_run")
    __array_priority__ = 1000

    def __init__(self, run: CellRun, name: str, at: int) -> None:
        for key, value in (("_run", run), ("_name", name), ("_at", at)):
            object.__setattr__(self, key, value)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """CellRun a function of torch with the tensors themselves."""
        return func(*real(args), **real(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name == "shape":
            run = self._run
            return run.fuser.torch.Size((run.inputs[0].shape[0], run.cell.hidden_size))
        return getattr(real(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(real(self), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return real(self).__reduce_ex__(protocol)

    __hash__ = object.__hash__


def forward_operator(name: str) -> Callable[..., Any]:
    """Return the method that runs an operator of Python."""

    def operator(self: State, *args: Any) -> Any:
        return getattr(real(self), name)(*real(args))

    return operator


for _name in OPERATORS:
    setattr(State, f"__{_name}__", forward_operator(f"__{_name}__"))


def real(value: Any) -> Any:
    """Return the same with tensors in place of states."""
    if type(value) is State:
        return value._run.result(value._name, value._at)
    if type(value) in (tuple, list):
        return type(value)(real(one) for one in value)
    if type(value) is dict:
        return {key: real(one) for key, one in value.items()}
    return value


class CellFuser:
    """Computes runs by torch's LSTM over a sequence, where it was seen to give the same.

    Attributes:
        reasons: why runs were computed step by step, and how often.
        off: cells that are left as they are.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.step = torch.nn.LSTMCell.forward
        self.reasons: Counter[str] = Counter()
        self.tried: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self.off: weakref.WeakSet[Any] = weakref.WeakSet()
        self.num_short: Counter[int] = Counter()
        self.inside = local()

    def forward(self, cell: Any, input: Any, hx: Any = None) -> Any:  # noqa: A002
        """Stand for `nn.LSTMCell.forward`."""
        if not getattr(self.inside, "depth", 0) or cell in self.off:
            return self.step(cell, real(input), real(hx))
        states: Any = hx if type(hx) in (tuple, list) and len(hx) == 2 else ()
        if [type(one) for one in states] == [State, State] and self._takes(cell, input):
            run = states[0]._run
            if run.follows(cell, input, states):
                return run.add(input)
        first = None if hx is None else real(tuple(states))
        if not self._takes(cell, input) or (hx is not None and not self._are_states(first, input)):
            return self.step(cell, real(input), real(hx))
        return CellRun(self, cell, first).add(input)

    def _takes(self, cell: Any, x: Any) -> bool:
        torch = self.torch
        if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
            return False
        if torch.is_inference_mode_enabled() or cell.weight_ih.device.type != "cpu":
            return False
        if type(x) is State:
            return len(x.shape) == 2 and x._run.results is None
        return is_plain(torch, x) and x.dim() == 2 and x.dtype == cell.weight_ih.dtype

    def _are_states(self, first: Any, x: Any) -> bool:
        return len(first) == 2 and all(
            is_plain(self.torch, one) and one.dim() == 2 and one.shape[0] == x.shape[0]
            for one in first
        )

    def compute(self, run: CellRun) -> dict[tuple[str, int], Any]:
        """Return all results of a run by name and step; of cell states only those still wanted."""
        inputs = [real(one) for one in run.inputs]
        num = len(inputs)
        self.num_short[id(run.cell)] = 0 if num >= MIN_STEPS else self.num_short[id(run.cell)] + 1
        if self.num_short[id(run.cell)] > MAX_SHORT:
            self.off.add(run.cell)
        why = self._why_not(run, inputs)
        if why is not None:
            self.reasons[why] += 1
            return self._compute_by_steps(run, inputs)
        hidden, last = run_together(self.torch, run.cell, inputs, self._first(run, inputs[0]))
        return {("h", at): one for at, one in enumerate(hidden)} | {("c", num - 1): last}

    def _why_not(self, run: CellRun, inputs: list[Any]) -> str | None:
        if len(inputs) < MIN_STEPS:
            return "short"
        if any(one() is not None for one in run.ends[:-1]):
            return "cell_states"
        if run.cell not in self.tried:
            self.tried[run.cell] = self._agrees(run, inputs)
        return None if self.tried[run.cell] else "differs"

    def _compute_by_steps(self, run: CellRun, inputs: list[Any]) -> dict[tuple[str, int], Any]:
        states = run.first
        found: dict[tuple[str, int], Any] = {}
        for at, one in enumerate(inputs):
            states = self.step(run.cell, one, states)
            found |= {("h", at): states[0], ("c", at): states[1]}
        return found

    def _first(self, run: CellRun, x: Any) -> Any:
        if run.first is not None:
            return run.first
        zeros = x.new_zeros(x.shape[0], run.cell.hidden_size)
        return zeros, zeros

    def _agrees(self, run: CellRun, inputs: list[Any]) -> bool:
        """Return whether both ways agree on one row, forward and backward."""
        torch, cell = self.torch, run.cell
        rows = [one[:1] for one in (*self._first(run, inputs[0]), *inputs)]
        weights = list(cell.parameters())

        def by_steps(*given: Any) -> Any:
            (h, c, *xs), own = given[: len(rows)], given[len(rows) :]
            found = []
            for x in xs:
                h, c = torch.lstm_cell(x, (h, c), *own)
                found.append(h)
            return torch.stack([*found, c])

        def together(*given: Any) -> Any:
            (h, c, *xs), own = given[: len(rows)], given[len(rows) :]
            hidden, last = run_together(torch, cell, xs, (h, c), own)
            return torch.stack([*hidden, last])

        inputs, dtype = [*rows, *weights], cell.weight_ih.dtype
        true = try_out(torch, by_steps, inputs, torch.float64)
        ours, theirs = (try_out(torch, one, inputs, dtype) for one in (together, by_steps))
        return all(map(is_close, ours, theirs, true, [torch.finfo(dtype).eps] * len(true)))


def run_together(
    torch: Any, cell: Any, inputs: list[Any], first: Any, weights: Any = None
) -> tuple[Any, Any]:
    """Return the hidden states after each step, and the cell state after the last."""
    weights = list(cell.parameters()) if weights is None else list(weights)
    before = tuple(one.unsqueeze(0) for one in first)
    options = (cell.bias, 1, 0.0, cell.training, False, False)
    hidden, _, last = torch.lstm(torch.stack(inputs), before, weights, *options)
    return hidden.unbind(0), last.squeeze(0)


def find_loops(torch: Any, call: Callable[[], Any]) -> tuple[Any, set[type]]:
    """Make a call as it is written; return its result and the classes that step cells in a loop."""
    steps: Counter[tuple[type, int]] = Counter()
    lstm = torch.nn.LSTMCell
    before = lstm.forward

    def forward(cell: Any, *args: Any, **kwargs: Any) -> Any:
        owner = owner_of(sys._getframe(1), torch.nn.Module)
        if owner is not None:
            steps[owner, id(cell)] += 1
        return before(cell, *args, **kwargs)

    put_back = put_forward(lstm, forward)
    try:
        result = call()
    finally:
        put_back()
    return result, {owner for (owner, _), num in steps.items() if num >= MIN_STEPS}


def fuse_loops(fuser: CellFuser, owner: Any) -> Callable[[], None]:
    """Compute the steps of cells together inside the `forward` of a class; undoable."""
    original, inside = owner.forward, fuser.inside

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside.depth = getattr(inside, "depth", 0) + 1
        try:
            return real(original(self, *args, **kwargs))
        finally:
            inside.depth -= 1

    return put_forward(owner, forward)


def replace_steps(torch: Any, fuser: CellFuser) -> Callable[[], None]:
    """Let each call of a cell ask the fuser, which leaves alone what no such class does."""

    def forward(self: Any, input: Any, hx: Any = None) -> Any:  # noqa: A002
        return fuser.forward(self, input, hx)

    return put_forward(torch.nn.LSTMCell, forward)
