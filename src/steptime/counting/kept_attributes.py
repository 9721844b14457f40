"""Keeps what modules hold in Python: attributes, hooks, flags, and the collections among them.

In: all modules of the process, for a function does not say which it calls, and once it runs, a
module may hold the weights of a functional call; and the objects among the inputs. Out: what each
had, put back where it was changed. Tensors are noted by identity here; `kept_tensors.py` keeps
their elements.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

COLLECTIONS = (dict, OrderedDict, defaultdict, Counter, list, set, deque)

MAX_ITEMS = 1_000_000
"""In collections of more items than this, those that come later are not looked for collections."""


class KeptAttributes:
    """Modules and other objects as they were.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensors: list[Any] = []  # found among the attributes
        self.owners: list[tuple[Any, type, dict[str, Any]]] = []
        self.collections: dict[int, tuple[Any, Any]] = {}
        self.states: list[tuple[Callable[[Any], Any], Any]] = []
        self.num_items = 0

    def note(self, owners: Iterable[Any]) -> None:
        """Note objects that have attributes, and the collections among these."""
        for owner in owners:
            own = dict(owner.__dict__)
            self.owners.append((owner, type(owner), own))
            self.note_values(own.values())
            self._note_script(owner)

    def _note_script(self, owner: Any) -> None:
        """Note the attributes of a scripted module, which lie in C++."""
        kind, script = owner.__dict__.get("_concrete_type"), owner.__dict__.get("_c")
        if kind is None or script is None:
            return
        for name in kind.get_attributes():
            value = script.getattr(name)
            plain = isinstance(value, (int, float, str, type(None)))
            if plain or hasattr(value, "untyped_storage"):
                self.states.append((partial(script.setattr, name), value))

    def note_values(self, values: Iterable[Any]) -> None:
        """Note the collections among values, and the sources of random numbers."""
        pending = list(values)
        while pending:
            value = pending.pop()
            if type(value) in COLLECTIONS and id(value) not in self.collections:
                self.collections[id(value)] = (value, value.copy())
                self.num_items += len(value)
                if self.num_items < MAX_ITEMS:
                    pending += value.values() if isinstance(value, dict) else value
            elif issubclass(type(value), self.torch.Tensor):
                self.tensors.append(value)
            else:
                self.states += _random_state(value)

    def put_back(self) -> None:
        """Give every object its class and its attributes, and every collection its items."""
        for owner, kind, before in self.owners:
            if type(owner) is not kind:
                owner.__class__ = kind
            now = owner.__dict__
            if not _is_same(now, before):
                now.clear()
                now.update(before)
        for collection, before in self.collections.values():
            if not _is_same(collection, before):
                collection.clear()
                if isinstance(collection, (list, deque)):
                    collection.extend(before)
                else:
                    collection.update(before)
        for write, state in self.states:
            write(state)


def _is_same(now: Any, before: Any) -> bool:
    """Return whether it holds the same objects in the same order."""
    if len(now) != len(before):
        return False
    if isinstance(now, set):
        return bool(now == before)
    if isinstance(now, dict):
        pairs = zip(now.items(), before.items(), strict=True)
        return all(a is c and b is d for (a, b), (c, d) in pairs)
    return all(a is b for a, b in zip(now, before, strict=True))


def _random_state(value: Any) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """Yield how to put back a source of random numbers of Python's or NumPy's."""
    random, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    if random is not None and isinstance(value, random.Random):
        yield value.setstate, value.getstate()
    elif numpy is not None and isinstance(value, numpy.RandomState):
        yield value.set_state, value.get_state(legacy=False)
    elif numpy is not None and isinstance(value, numpy.Generator):
        yield partial(setattr, value.bit_generator, "state"), value.bit_generator.state


def live_modules(torch: Any) -> list[Any]:
    """Return every module that there is, also those that a list hides or a function finds."""
    kinds, pending = set(), [torch.nn.Module]
    while pending:
        kind = pending.pop()
        if kind not in kinds:
            kinds.add(kind)
            pending += type.__subclasses__(kind)
    return [one for one in gc.get_objects() if type(one) in kinds]


def modules_reached_by(torch: Any, model: Any) -> list[Any]:
    """Return the module, or those that a function or an object names, directly or by a function."""
    found: list[Any] = []
    seen: dict[int, Any] = {}  # kept alive, because Python reuses the id of what is gone
    pending = [(model, MAX_DEPTH)]
    while pending and len(seen) < MAX_NAMED:
        value, depth = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, torch.nn.Module):
            found.append(value)
        elif depth:
            pending += ((one, depth - 1) for one in _named_by(value))
    return found


MAX_DEPTH, MAX_NAMED = 4, 10_000
"""What is named farther away is not looked at before it is called."""


def _named_by(value: Any) -> Iterator[Any]:
    """Yield what a function, a method, a partial call, a callable object or a collection names."""
    if isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, FunctionType):
        known = value.__globals__
        yield [known[name] for name in value.__code__.co_names if name in known]
        yield from (value.__defaults__, value.__kwdefaults__, getattr(value, "__wrapped__", None))
        yield from (cell.cell_contents for cell in value.__closure__ or () if _has_value(cell))
    elif callable(value) and not isinstance(value, type):
        yield from (getattr(value, "__dict__", None), vars(type(value)).get("__call__"))


def _has_value(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
