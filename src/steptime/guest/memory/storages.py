"""Follows the storages of one step: who made each, when it was freed, what was held at the peak.

A dispatch mode hands over operators. A storage that is met for the first time is new if an operator
returned it; otherwise it was there before. Weak references say when one is gone, wherever that
happens, so no tensor and no storage is kept alive. `count/operator_probe.py` decides which call
frames are followed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..count.tensor_facts import tensors_in
from ..timeline.interrupts import let_through
from .holdings import storage_of
from .workspaces import Workspaces

MAX_OPERATORS = 200_000
"""A step with more operators is not followed to its end."""

MAX_INSTANTS = 80
"""What a timeline has room for; each stretch shows its highest instant."""

MAX_MODULES = 100

TEMPORARIES, INPUTS = "temporaries", "inputs"


class Storages:
    """The storages of one step.

    Args:
        torch: the module.
        device_type: only storages on such devices are followed.
    """

    def __init__(self, torch: Any, device_type: str) -> None:
        self.torch = torch
        self.device_type = device_type
        self.ids: dict[int, int] = {}
        self.references: dict[int, Any] = {}
        self.sizes: list[int] = []
        self.births: list[int] = []
        self.deaths: list[int | None] = []
        self.parts: list[str | None] = []
        self.operators: list[Any] = []
        self.calls: list[Any] = []  # calls of modules, or numbers of graph nodes
        self.phases: list[tuple[int, str]] = []
        self.noted: set[int] = set()  # graph nodes whose bytes are in `saved`
        self.saved: dict[int, int] = {}  # bytes that the graph keeps, by the module called
        self.extras: dict[int, int] = {}  # bytes that an operator took for itself, by its number
        self.workspaces = Workspaces(torch) if device_type == "cpu" else None
        self.tally: Any = None
        self.is_full = False
        self._node_now = torch._C._current_autograd_node

    # -- what happens

    def open(self, phase: str, tally: Any = None) -> None:
        """Enter a frame: what is met in it for the first time was there when it began."""
        self.phases.append((len(self.operators), phase))
        self.tally = tally or self.tally

    def own(self, name: str, storage: Any, device: str) -> None:
        """Give a storage to a part; it was there when the frame was entered."""
        if not device.startswith(self.device_type):
            return
        number = self._meet(storage, self._frame_began())
        if self.parts[number] is None:
            self.parts[number] = name

    def add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take an operator that has run."""
        if len(self.operators) >= MAX_OPERATORS:
            self.is_full = True
            return
        began = self._frame_began()
        is_forward = bool(self.phases) and self.phases[-1][1] in ("forward", "loss")
        for tensor in tensors_in([*args, *kwargs.values()]):
            if tensor.device.type == self.device_type:
                self._meet_old(tensor, began, INPUTS if is_forward else None)
        now = len(self.operators)
        for tensor in tensors_in(result):
            if tensor.device.type == self.device_type:
                storage = storage_of(tensor)
                if storage is not None:
                    self._meet(storage, now)
        if self.workspaces is not None and self.workspaces.taken:
            self.extras[now], self.workspaces.taken = self.workspaces.taken, 0
        self.operators.append(func)
        self.calls.append(self._call())

    def _frame_began(self) -> int:
        return self.phases[-1][0] if self.phases else 0

    def _call(self) -> Any:
        node = self._node_now()
        if node is not None:
            return node._sequence_nr()
        stacks = {} if self.tally is None else self.tally.stacks
        stack = next((stack for stack in stacks.values() if stack), None)
        return stack[-1] if stack else None

    def _meet_old(self, tensor: Any, began: int, part: str | None) -> None:
        storage = storage_of(tensor)
        if storage is not None and storage._cdata not in self.ids:
            self.parts[self._meet(storage, began)] = part

    def _meet(self, storage: Any, at: int) -> int:
        key = storage._cdata
        number = self.ids.get(key)
        if number is None:
            number = self.ids[key] = len(self.sizes)
            self.sizes.append(storage.nbytes())
            self.births.append(at)
            self.deaths.append(None)
            self.parts.append(None)
            self.references[number] = weakref.ref(storage, partial(self._forget, number, key))
        return number

    def change_size(self, number: int, storage: Any, at: int, size: int) -> None:
        """Let a storage go on with another size [bytes], under a new number, in the same part."""
        key, part = storage._cdata, self.parts[number]
        self.references.pop(number, None)  # so that its end is not noted twice
        self.deaths[number] = at
        del self.ids[key]
        number = self._meet(storage, at)
        self.sizes[number], self.parts[number] = size, part

    def _forget(self, number: int, key: int, _: Any) -> None:
        """Note that a storage is gone, since its address may be used again."""
        try:
            self.deaths[number] = len(self.operators)
            self.references.pop(number, None)
            if self.ids.get(key) == number:
                del self.ids[key]
        except BaseException as error:  # Python would print what this raises
            let_through(error)
            self.is_full = True

    # -- what came of it

    def keep(self, kept: Iterable[tuple[Any, int]]) -> None:
        """Note the bytes that graph nodes keep; a node that was noted before counts no more."""
        if self.tally is None:
            return
        before = frozenset(self.noted)
        for node, size in kept:
            number = node._sequence_nr()
            if not size or number in before:
                continue
            self.noted.add(number)
            call, seen = self.tally.call_of_node(number), set()
            while call is not None:
                if call.key not in seen:
                    seen.add(call.key)
                    self.saved[call.key] = self.saved.get(call.key, 0) + size
                call = call.parent

    def peak(self) -> dict[str, Any] | None:
        """Return the most that was held at once, and in which phase; None if nothing was seen."""
        if not self.operators or self.is_full:
            return None
        total, best, at = 0, -1, 0
        for index, change in enumerate(self._changes()):
            total += sum(change.values())
            if total + self.extras.get(index, 0) > best:
                best, at = total + self.extras.get(index, 0), index
        return {"bytes": best, "phase": self._phase_at(at)}

    def table(self) -> dict[str, Any] | None:
        """Return the step as it is written; None where nothing of it was seen."""
        self.references.clear()
        if not self.operators or self.is_full:
            return None
        return self._fold(self._changes())

    def _changes(self) -> list[dict[str, int]]:
        """Return by how much each part grew or shrank at each operator."""
        last = len(self.operators) - 1
        changes: list[dict[str, int]] = [{} for _ in range(last + 2)]
        for size, birth, death, part in zip(self.sizes, self.births, self.deaths, self.parts):
            name = part or TEMPORARIES
            add_to(changes[min(birth, last + 1)], name, size)
            if death is not None:
                add_to(changes[min(max(death, birth), last + 1)], name, -size)
        return changes[:-1]

    def _fold(self, changes: list[dict[str, int]]) -> dict[str, Any]:
        """Return the step, with the highest instant of each stretch of operators."""
        stretch = max(1, -(-len(changes) // MAX_INSTANTS))
        held: dict[str, int] = {}
        total, best = 0, -1
        instants: list[tuple[int, dict[str, int]]] = []
        for index, change in enumerate(changes):
            for name, size in change.items():
                held[name] = held.get(name, 0) + size
                total += size
            if index % stretch == 0:
                best = -1
                instants.append((index, {}))
            extra = self.extras.get(index, 0)
            if total + extra > best:
                best = total + extra
                instants[-1] = (index, dict(held))
                add_to(instants[-1][1], TEMPORARIES, extra)
        peak = max(instants, key=lambda instant: sum(instant[1].values()))
        return {
            "instants": [self._instant(*instant) for instant in instants],
            "peak": self._instant(*peak),
            "module": self._module_at(peak[0]),
            "operator": str(self.operators[peak[0]]),
            "num_storages": len(self.sizes),
            "modules": self._modules(),
        }

    def _instant(self, index: int, held: dict[str, int]) -> dict[str, Any]:
        return {
            "at_fraction": round(index / max(1, len(self.operators) - 1), 5),
            "phase": self._phase_at(index),
            "by_part": {name: size for name, size in held.items() if size},
        }

    def _phase_at(self, index: int) -> str:
        return next((name for at, name in reversed(self.phases) if at <= index), "forward")

    def _module_at(self, index: int) -> str | None:
        call = self.calls[index]
        if self.tally is None or call is None:
            return None
        if isinstance(call, int):
            call = self.tally.call_of_node(call)
        return None if call is None else self.tally.names.get(call.key, (None,))[0]

    def _modules(self) -> list[dict[str, Any]]:
        names = {} if self.tally is None else self.tally.names
        ordered = sorted(self.saved.items(), key=lambda item: -item[1])[:MAX_MODULES]
        return [
            {"name": names[key][0], "kind": names[key][1], "bytes": size}
            for key, size in ordered
            if key in names
        ]


def add_to(sizes: dict[str, int], name: str, size: int) -> None:
    """Add to the sum of a name."""
    sizes[name] = sizes.get(name, 0) + size


# -- the optimizer's step


def frame_next_step(step: Any, around: Callable[[Any, Any, Any], Any]) -> bool:
    """Make the next call of an optimizer's class run `around(step, args, kwargs)`, once.

    Torch's wrapper around `step` calls its hooks before and after. What it calls between them is in
    a cell of its closure: we fill that cell for this one call and restore it as the call begins.
    Nothing of the user's is written to, and the frame that enters a mode also leaves it.
    """
    code = getattr(step, "__code__", None)
    if code is None or "func" not in code.co_freevars:
        return False
    cell = step.__closure__[code.co_freevars.index("func")]
    original = cell.cell_contents

    def func(*args: Any, **kwargs: Any) -> Any:
        cell.cell_contents = original
        return around(original, args, kwargs)

    func.__code__ = func.__code__.replace(co_filename=code.co_filename)
    cell.cell_contents = func
    return True
