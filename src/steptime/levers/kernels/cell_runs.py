"""Steps of a recurrent cell that are computed together, once one of their results is wanted.

In: calls of `nn.LSTMCell` and `nn.GRUCell` inside the `forward` of one module. Each returns states
that stand for tensors that are not computed yet; given to the next call, they make a run of steps
longer. Any other use computes the whole run by torch's LSTM or GRU over a sequence.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import local
from typing import Any

from ..tools.owners import put_forward
from .attention_finder import is_close, try_out
from .scores import OPERATORS, is_plain

MIN_STEPS = 4
"""A shorter run is computed step by step; a module whose runs are that short is left alone."""

MAX_SHORT = 3
"""So many short runs, one after the other, and its cells are left alone."""

TRIED_ROWS = 2
"""The rows on which both ways are tried."""

STATES = {"lstm": ("h", "c"), "gru": ("h",)}


@dataclass(frozen=True, slots=True)
class CellSteps:
    """How a cell of torch's is stepped.

    Attributes:
        kind: `lstm` or `gru`.
        size: columns of a state.
        forward: the cell's own.
    """

    kind: str
    size: int
    forward: Callable[..., Any]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its states."""
        return STATES[self.kind]

    def read(self, given: Any) -> tuple[Any, ...] | None:
        """Return the states that a call was given; None where they have another form."""
        states = tuple(given) if type(given) in (tuple, list) else (given,)
        return states if len(states) == len(self.names) else None

    def result(self, states: Sequence[Any]) -> Any:
        """Return what the cell returns, and takes, with these states in it."""
        return tuple(states) if self.kind == "lstm" else states[0]

    def step(self, cell: Any, x: Any, states: Sequence[Any]) -> tuple[Any, ...]:
        """Make one step as it is written; return the states after it."""
        made = self.forward(cell, x, self.result(states))
        return made if self.kind == "lstm" else (made,)


class CellRun:
    """Steps of one cell, one after the other.

    `first` are the states before it, None for zeros; `ends` are the cell states after each step.
    """

    def __init__(self, fuser: CellFuser, cell: Any, steps: CellSteps, first: Any) -> None:
        self.fuser = fuser
        self.cell = cell
        self.steps = steps
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

    def add(self, x: Any) -> Any:
        """Make the run one step longer; return what the cell returns."""
        self.inputs.append(x)
        self.hold([x])
        at = len(self.inputs) - 1
        after = [State(self, name, at) for name in self.steps.names]
        self.ends += [weakref.ref(one) for one in after[1:]]
        return self.steps.result(after)

    def follows(self, cell: Any, x: Any, states: Any) -> bool:
        """Return whether a call continues the run: its states are those after the last step."""
        last = len(self.inputs) - 1
        places = [(one._run, one._name, one._at) for one in states]
        return (
            self.results is None
            and cell is self.cell
            and places == [(self, name, last) for name in self.steps.names]
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
        """Run a function of torch with the tensors themselves."""
        return func(*real(args), **real(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name == "shape":
            run = self._run
            return run.fuser.torch.Size((run.inputs[0].shape[0], run.steps.size))
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
    """Computes runs by torch's LSTM or GRU over a sequence, where it was seen to give the same.

    Attributes:
        reasons: why runs were computed step by step, and how often.
        off: cells that are left as they are.
        own: the classes of torch's, each with its kind and its forward.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        own = {torch.nn.LSTMCell: "lstm", torch.nn.GRUCell: "gru"}
        self.own = {cell: (kind, cell.forward) for cell, kind in own.items()}
        self.reasons: Counter[str] = Counter()
        self.tried: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self.off: weakref.WeakSet[Any] = weakref.WeakSet()
        self.num_short: Counter[int] = Counter()
        self.inside = local()

    def forward(self, cell: Any, written: Callable[..., Any], x: Any, given: Any) -> Any:
        """Stand for the `forward` of a cell; `written` is its own."""
        steps = self._steps_of(cell)
        states = None if steps is None or given is None else steps.read(given)
        is_odd = given is not None and states is None
        if steps is None or is_odd or not self._takes(cell, x):
            return written(cell, real(x), real(given))
        if states is not None and all(type(one) is State for one in states):
            run = states[0]._run
            if run.follows(cell, x, states):
                return run.add(x)
        first = None if states is None else real(states)
        if first is not None and not self._are_states(first, x, steps):
            return written(cell, real(x), real(given))
        return CellRun(self, cell, steps, first).add(x)

    def _steps_of(self, cell: Any) -> CellSteps | None:
        """Return how a cell is stepped; None where it is left alone."""
        is_inside = getattr(self.inside, "depth", 0) and cell not in self.off
        if not is_inside or type(cell) not in self.own:
            return None
        kind, forward = self.own[type(cell)]
        return CellSteps(kind, cell.hidden_size, forward)

    def _takes(self, cell: Any, x: Any) -> bool:
        torch, weight = self.torch, next(cell.parameters())
        if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
            return False
        if torch.is_inference_mode_enabled() or weight.device.type != "cpu":
            return False
        if type(x) is State:
            return len(x.shape) == 2 and x._run.results is None
        return is_plain(torch, x) and x.dim() == 2 and x.dtype == weight.dtype

    def _are_states(self, first: Any, x: Any, steps: CellSteps) -> bool:
        shape = (x.shape[0], steps.size)
        return all(is_plain(self.torch, one) and one.shape == shape for one in first)

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
        weights = list(run.cell.parameters())
        first = self._first(run, inputs[0])
        hidden, last = run_together(self.torch, run.steps.kind, inputs, first, weights)
        ends = {("c", num - 1): last} if "c" in run.steps.names else {}
        return {("h", at): one for at, one in enumerate(hidden)} | ends

    def _why_not(self, run: CellRun, inputs: list[Any]) -> str | None:
        if len(inputs) < MIN_STEPS:
            return "short"
        if any(one() is not None for one in run.ends[:-1]):
            return "cell_states"
        if run.cell not in self.tried:
            self.tried[run.cell] = self._agrees(run, inputs)
        return None if self.tried[run.cell] else "differs"

    def _compute_by_steps(self, run: CellRun, inputs: list[Any]) -> dict[tuple[str, int], Any]:
        states, names = self._first(run, inputs[0]), run.steps.names
        found: dict[tuple[str, int], Any] = {}
        for at, one in enumerate(inputs):
            states = run.steps.step(run.cell, one, states)
            found |= {(name, at): state for name, state in zip(names, states, strict=True)}
        return found

    def _first(self, run: CellRun, x: Any) -> Any:
        if run.first is not None:
            return run.first
        zeros = x.new_zeros(x.shape[0], run.steps.size)
        return tuple(zeros for _ in run.steps.names)

    def _agrees(self, run: CellRun, inputs: list[Any]) -> bool:
        """Return whether both ways agree on some rows, forward and backward."""
        torch, cell, steps = self.torch, run.cell, run.steps
        first = self._first(run, inputs[0])
        rows = [one[:TRIED_ROWS] for one in (*first, *inputs)]
        own = dict(cell.named_parameters())

        def by_steps(*given: Any) -> Any:
            states, xs, weights = self._apart(given, len(first), len(rows), own)
            found = []
            with self._of_weights(cell, weights):
                for x in xs:
                    states = steps.step(cell, x, states)
                    found.append(states[0])
            return torch.stack([*found, *states[1:]])

        def together(*given: Any) -> Any:
            states, xs, weights = self._apart(given, len(first), len(rows), own)
            made = run_together(torch, steps.kind, xs, states, list(weights.values()))
            return torch.stack([*made[0], *([made[1]] if len(first) > 1 else [])])

        tensors, dtype = [*rows, *own.values()], inputs[0].dtype
        depth, self.inside.depth = getattr(self.inside, "depth", 0), 0
        try:
            true = try_out(torch, by_steps, tensors, torch.float64)
            ours, theirs = (try_out(torch, one, tensors, dtype) for one in (together, by_steps))
        except RuntimeError:  # a kernel that takes no such rows or dtypes
            return False
        finally:
            self.inside.depth = depth
        return all(map(is_close, ours, theirs, true, [torch.finfo(dtype).eps] * len(true)))

    def _apart(self, given: Any, num_states: int, num_rows: int, own: Any) -> Any:
        """Return states, inputs and the cell's parameters by name."""
        weights = dict(zip(own, given[num_rows:], strict=True))
        return given[:num_states], given[num_states:num_rows], weights

    def _of_weights(self, cell: Any, weights: Any) -> Any:
        """Return what gives a cell other weights for a while."""
        stateless = self.torch.nn.utils.stateless
        return stateless._reparametrize_module(cell, weights)


def run_together(
    torch: Any, kind: str, inputs: Sequence[Any], first: Sequence[Any], weights: Sequence[Any]
) -> tuple[Any, Any]:
    """Return the hidden states after each step, and the cell state after the last, if any."""
    before = tuple(one.unsqueeze(0) for one in first)
    is_training = torch.is_grad_enabled()  # oneDNN keeps what a backward needs only then
    options = (len(weights) == 4, 1, 0.0, is_training, False, False)
    if kind == "gru":
        hidden, _ = torch.gru(torch.stack(list(inputs)), *before, list(weights), *options)
        return hidden.unbind(0), None
    hidden, _, last = torch.lstm(torch.stack(list(inputs)), before, list(weights), *options)
    return hidden.unbind(0), last.squeeze(0)


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


def replace_steps(fuser: CellFuser, cell_class: type) -> Callable[[], None]:
    """Let each call of a cell of torch's ask the fuser, which leaves alone what it must."""
    _, written = fuser.own[cell_class]

    def forward(self: Any, input: Any, hx: Any = None) -> Any:  # noqa: A002
        return fuser.forward(self, written, input, hx)

    return put_forward(cell_class, forward)
