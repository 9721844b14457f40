"""Finds modules that step a recurrent cell in a loop, and the cells that torch can step together.

The first call of a model is made as it is written; classes that may be cells note how they are
called meanwhile, and what their steps compute.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ._attention import owner_of
from ._cell_steps import CellSteps, UnlikeError, find_gates, weights_of
from ._cell_traces import ODD, Poly, StepTrace, trace_step
from ._cells import MIN_STEPS, CellFuser
from ._owners import put_forward

GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
OWN_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class SteppedCell:
    """What was seen of one cell of the script's in the first call of its model.

    Attributes:
        num: its steps that were looked into.
        found: how it is stepped, as far as all steps agree.
        why: the word for why it cannot be replaced, None while it can.
    """

    def __init__(self, torch: Any, cell: Any, written: Callable[..., Any]) -> None:
        self.torch = torch
        self.cell = cell
        self.written = written
        self.num = 0
        self.found: tuple[Any, ...] | None = None
        self.why: str | None = "hooks" if has_more(torch, cell) else None
        self.before: list[Any] = []
        self.is_recurrent = False

    def step(self, args: Any, kwargs: Any) -> Any:
        """Make a step as it is written, and look into it."""
        given = leaves_of((args, kwargs))
        states = [at for at, one in enumerate(given) if any(one is b for b in self.before)]
        self.is_recurrent = self.is_recurrent or bool(states)
        if self.why is not None or not self._may_be_states(given):
            result = self.written(self.cell, *args, **kwargs)
        else:
            result = self._look(args, kwargs, given, states)
        self.before = [one for one in leaves_of(result) if isinstance(one, self.torch.Tensor)]
        return result

    def _look(self, args: Any, kwargs: Any, given: list[Any], states: list[int]) -> Any:
        trace = StepTrace(self.torch, dict(self.cell.named_parameters()), given)
        kept = contents(self.cell)
        result = trace_step(self.torch, trace, lambda: self.written(self.cell, *args, **kwargs))
        try:
            if contents(self.cell) != kept:
                raise UnlikeError("keeps")
            if states:
                self._see(trace, args, kwargs, states, result)
        except UnlikeError as error:
            self.why = str(error)
        except ODD:
            self.why = "unlike"
        return result

    def steps(self) -> CellSteps | None:
        """Return how it is stepped, if that is known."""
        if self.why is not None or self.num < MIN_STEPS - 1 or self.found is None:
            return None
        gates, given, named, made = self.found
        return CellSteps(
            kind=gates.kind,
            size=gates.gates[0][1].width,
            given=given,
            named=named,
            made=made,
            forward=self.written,
            weights=functools.partial(weights_of, self.torch, gates),
            mode=self.cell.training,
        )

    def _may_be_states(self, given: Sequence[Any]) -> bool:
        tensors = [one for one in given if isinstance(one, self.torch.Tensor)]
        return (
            1 < len(given) < 4
            and len(tensors) == len(given)
            and all(one.dim() == 2 and len(one) == len(given[0]) for one in tensors)
        )

    def _see(self, trace: StepTrace, args: Any, kwargs: Any, states: Any, result: Any) -> None:
        """Take a step that was given results of the one before: one of `states` is hidden."""
        made = [trace.value_of(one) for one in leaves_of(result)]
        polys = [one for one in made if isinstance(one, Poly)]
        if not trace.is_understood or len(polys) != len(made):
            raise UnlikeError("unlike")
        found = None
        for at in states:
            found = found or find_gates(polys, at)
        if found is None:
            raise UnlikeError("unlike")
        gates, names = found
        given, named = leaves_of((args, kwargs)), iter(names)
        roles = iter([gates.roles[at] for at in range(len(given))])
        form = (
            gates,
            name_leaves(args, roles),
            {key: name_leaves(kwargs[key], roles) for key in kwargs},
            name_leaves(result, named),
        )
        if self.found not in (None, form):
            raise UnlikeError("unlike")
        self.found = form
        self.num += 1


def has_more(torch: Any, cell: Any) -> bool:
    """Return whether a cell has hooks or buffers, or modules of the script's, which may do more."""
    hooks = [getattr(torch.nn.modules.module, name, None) for name in GLOBAL_HOOKS]
    hooks += [getattr(one, name, None) for one in cell.modules() for name in OWN_HOOKS]
    return any(hooks) or next(cell.buffers(), None) is not None


def contents(cell: Any) -> list[Any]:
    """Return what a cell and its modules hold, to see whether a step changes it."""
    found = []
    for module in cell.modules():
        for name, value in vars(module).items():
            size = len(value) if isinstance(value, (list, dict, set)) else None
            found.append((name, id(value), size))
    return found


def leaves_of(value: Any) -> list[Any]:
    """Return what stands in tuples, lists and dicts, in order."""
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves_of(one)]
    if type(value) in (tuple, list):
        return [leaf for one in value for leaf in leaves_of(one)]
    return [value]


def name_leaves(value: Any, names: Any) -> Any:
    """Return tuples and lists with names in place of what stands in them."""
    if type(value) in (tuple, list):
        return type(value)(name_leaves(one, names) for one in value)
    return next(names)


def may_be_cell(torch: Any, module: Any) -> bool:
    """Return whether a module is of a class of the script's and holds only layers of torch's."""
    if type(module).__module__.startswith("torch.") or next(module.parameters(), None) is None:
        return False
    inner = [one for one in module.modules() if one is not module]
    return all(type(one).__module__.startswith("torch.nn.") for one in inner)


class LoopLook:
    """Makes one call of a model, and sees which modules step cells in a loop.

    Attributes:
        cells: those of the script's, by id.
        owners: classes of modules that step a cell in a loop, and how often.
    """

    def __init__(self, fuser: CellFuser) -> None:
        self.fuser = fuser
        self.cells: dict[int, SteppedCell] = {}
        self.num_steps: Counter[tuple[type, int]] = Counter()
        self.modules: dict[int, Any] = {}

    def run(self, model: Any, call: Callable[[], Any]) -> Any:
        """Make the call as it is written; return its result."""
        torch = self.fuser.torch
        classes = {type(one) for one in model.modules() if may_be_cell(torch, one)}
        # all before the first is replaced: one may inherit the forward of another
        written = {one: one.forward for one in (*self.fuser.own, *classes)}
        put_back = [self._watch(one, forward) for one, forward in written.items()]
        try:
            return call()
        finally:
            for undo in put_back:
                undo()

    def _watch(self, cell_class: Any, written: Callable[..., Any]) -> Callable[[], None]:
        torch = self.fuser.torch

        def forward(cell: Any, *args: Any, **kwargs: Any) -> Any:
            owner = owner_of(sys._getframe(1), torch.nn.Module)
            if owner is None or torch.compiler.is_compiling():
                return written(cell, *args, **kwargs)
            self.num_steps[owner, id(cell)] += 1
            self.modules[id(cell)] = cell
            if type(cell) is not cell_class or cell_class in self.fuser.own:
                return written(cell, *args, **kwargs)
            if id(cell) not in self.cells:
                self.cells[id(cell)] = SteppedCell(torch, cell, written)
            return self.cells[id(cell)].step(args, kwargs)

        return put_forward(cell_class, forward)

    def loops(self) -> list[tuple[type, Any]]:
        """Return the classes that step a cell in a loop, each with the cell."""
        return [
            (owner, self.modules[at])
            for (owner, at), num in self.num_steps.items()
            if num >= MIN_STEPS
        ]

    def found(self) -> dict[type, list[Any]]:
        """Return the classes that step cells that can be replaced, and those cells."""
        found: dict[type, list[Any]] = {}
        for owner, cell in self.loops():
            own = self.cells.get(id(cell))
            if type(cell) in self.fuser.own or (own is not None and own.steps() is not None):
                found.setdefault(owner, []).append(cell)
        return found

    def reasons(self) -> list[str]:
        """Return why cells in loops cannot be replaced: only of those that look like one."""
        found = [self.cells[id(cell)] for _, cell in self.loops() if id(cell) in self.cells]
        return sorted({one.why for one in found if one.why is not None and one.is_recurrent})


def find_loops(fuser: CellFuser, model: Any, call: Callable[[], Any]) -> tuple[Any, set[type]]:
    """Make a call as it is written; return its result and the classes that act on cells in loops.

    These are the classes with the loops, and those of the script's cells, whose steps the fuser
    knows from then on.
    """
    look = LoopLook(fuser)
    result = look.run(model, call)
    found = look.found()
    for cell in (one for cells in found.values() for one in cells):
        steps = look.cells[id(cell)].steps() if id(cell) in look.cells else None
        if steps is not None:
            fuser.steps[cell] = steps
            fuser.cell_classes.add(type(cell))
    classes = {type(one) for cells in found.values() for one in cells} - set(fuser.own)
    return result, set(found) | classes
