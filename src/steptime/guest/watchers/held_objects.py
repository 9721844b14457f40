"""Which attributes of a data set hold many Python objects: what worker processes copy.

A forked worker shares the pages of its parent until one of them is written to. Reading a Python
object writes its reference count, so lists of dicts and strings are copied page by page, in every
worker. The numbers in an array or a tensor have no count. Some elements are looked at, and their
size stands for the rest; nothing of the user's is called.
Source: https://github.com/pytorch/pytorch/issues/13246.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from types import FunctionType
from typing import Any

MIN_OBJECTS = 10_000
"""Fewer objects lie in pages that are soon copied and cost little."""

NUM_LOOKED_AT = 64
"""Elements of a container whose sizes are added up."""

MAX_DEPTH = 4
MAX_ATTRIBUTES = 3
MAX_DATASETS = 8
"""Data sets inside a data set; the search must end for one that contains itself."""

SMALL_INT = 256
"""Integers up to here, None, True and False exist once, in the interpreter itself."""

_CONTAINERS = (list, tuple, dict, set, frozenset)
_PLAIN = (str, bytes, int, float, complex)


def find_held(dataset: Any) -> list[dict[str, Any]]:
    """Return the attributes that hold most, of a data set and of those that it wraps."""
    found = [row for one in inside(dataset) for row in held_by(one)]
    return sorted(found, key=lambda row: -row["bytes"])[:MAX_ATTRIBUTES]


def inside(dataset: Any) -> list[Any]:
    """Return the data set and those inside it, outermost first."""
    found = [dataset]
    for one in found:
        values = values_of(one)
        wrapped = [values.get("dataset"), *list_of(values.get("datasets"))]
        found += [it for it in wrapped if it is not None and not any(it is old for old in found)]
        if len(found) >= MAX_DATASETS:
            break
    return found[:MAX_DATASETS]


def values_of(thing: Any) -> dict[str, Any]:
    """Return the attributes of a thing without asking its class."""
    try:
        values = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return values if type(values) is dict else {}


def list_of(value: Any) -> list[Any]:
    """Return a list's elements; nothing for another value."""
    return value if type(value) in (list, tuple) else []


def held_by(one: Any) -> Iterator[dict[str, Any]]:
    """Yield what is known of each attribute that holds many objects."""
    for name, value in list(values_of(one).items()):
        if type(value) not in _CONTAINERS:
            continue
        size, num_objects = estimate(value)
        if num_objects >= MIN_OBJECTS:
            yield {
                "attribute": name,
                "holder": type(one).__name__,
                "file": file_of(type(one)),
                "container": type(value).__name__,
                "element": element_of(value),
                "length": len(value),
                "num_objects": num_objects,
                "bytes": size,
            }


def estimate(container: Any) -> tuple[int, int]:
    """Return the bytes of the objects in a container, and how many they are."""
    looked_at, seen, size, num = 0, set[int](), 0, 0
    for element in some_of(container):
        looked_at += 1
        for part in walk(element, MAX_DEPTH):
            if id(part) in seen or is_shared(part):
                continue
            seen.add(id(part))
            size += size_of(part)
            num += 1
    factor = len(container) / max(1, looked_at)
    return round(size * factor), round(num * factor)


def some_of(container: Any) -> Iterable[Any]:
    """Return elements from all over a container; of a dict keys and values, as pairs."""
    if type(container) is dict:
        return list(islice(container.items(), NUM_LOOKED_AT))
    if type(container) in (set, frozenset):
        return list(islice(container, NUM_LOOKED_AT))
    every = max(1, len(container) // NUM_LOOKED_AT)
    return list(islice(container, 0, every * NUM_LOOKED_AT, every))


def walk(thing: Any, depth: int) -> Iterator[Any]:
    """Yield a thing and what it holds, as far as plain containers and attributes show it."""
    yield thing
    kind = type(thing)
    if depth <= 0 or kind in _PLAIN:
        return
    if kind is dict:
        parts: Iterable[Any] = [*islice(thing.values(), NUM_LOOKED_AT)]  # names of keys are shared
    elif kind in _CONTAINERS:
        parts = [*islice(thing, NUM_LOOKED_AT)]
    else:
        parts = [*islice(values_of(thing).values(), NUM_LOOKED_AT)]
    for part in parts:
        yield from walk(part, depth - 1)


def is_shared(part: Any) -> bool:
    """Return whether a value exists once for all, so that no element holds it."""
    if part is None or type(part) in (bool, type, FunctionType):
        return True
    return type(part) is int and -5 <= part <= SMALL_INT


def size_of(part: Any) -> int:
    """Return the bytes of an object itself; the numbers of an array are not among them."""
    if type(part) in _CONTAINERS or type(part) in _PLAIN:
        return sys.getsizeof(part)
    try:
        return object.__sizeof__(part) + sys.getsizeof(values_of(part))
    except (TypeError, ValueError):
        return 64


def element_of(container: Any) -> str:
    """Return the name of the class of the first element; of a dict, that of its values."""
    values = container.values() if type(container) is dict else container
    return next((type(value).__name__ for value in values), "")


def file_of(cls: type) -> str | None:
    """Return the file in which a class is defined; None where no module says."""
    module = sys.modules.get(cls.__module__)
    file = None if module is None else vars(module).get("__file__")
    return file if type(file) is str else None
