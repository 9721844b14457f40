"""The random generators that reading a data set may move: the shared ones, and those it holds."""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from collections.abc import Callable
from itertools import islice
from types import FunctionType
from typing import Any

MAX_OBJECTS = 2_000
MAX_ITEMS = 256
"""Of a container and of all containers: a data set holds few generators, and not deep in it."""


def generators_of(torch: Any, roots: list[Any]) -> list[Any]:
    """Return the random generators that objects hold, and those beside the code of their classes.

    It looks into functions, as a transform may be one: their closures and their globals.
    """
    numpy = sys.modules.get("numpy")
    kinds: tuple[Any, ...] = (random.Random, torch.Generator)
    if numpy is not None:
        kinds += (numpy.random.Generator, numpy.random.RandomState)
    found, seen, waiting = [], set[int](), list(roots)
    while waiting and len(seen) < MAX_OBJECTS:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float)):
            continue
        seen.add(id(one))
        if isinstance(one, kinds):
            found.append(one)
        elif isinstance(one, FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or () if _is_full(cell)]
            waiting += [v for v in one.__globals__.values() if isinstance(v, kinds)]
        elif type(one) in (list, tuple, set, frozenset):
            waiting += islice(one, MAX_ITEMS)
        elif type(one) is dict:
            waiting += islice(one.values(), MAX_ITEMS)
        elif isinstance(one, type):
            continue
        elif type(own := getattr(one, "__dict__", None)) is dict:
            module = vars(sys.modules.get(type(one).__module__, sys))
            waiting += own.values()
            waiting += [value for value in module.values() if isinstance(value, kinds)]
    return found


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False  # its name is not bound yet


def state_of(generator: Any) -> Any:
    """Return a generator's state, as something that pickle writes alike each time."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    state = generator.get_state()
    return state.numpy().copy() if hasattr(state, "numpy") else state


def put_back(torch: Any, generator: Any, state: Any) -> None:
    """Give a generator a state that `state_of` returned."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    elif isinstance(generator, torch.Generator):
        generator.set_state(torch.from_numpy(state))
    else:
        generator.set_state(state)


def random_states(torch: Any) -> bytes:
    """Return the states of the generators that everybody shares."""
    numpy = sys.modules.get("numpy")
    known = numpy.random.get_state() if numpy else None
    state = torch.get_rng_state()
    bits = ctypes.string_at(state.data_ptr(), state.nbytes)
    return pickle.dumps((random.getstate(), bits, known))


def keep_random_states(torch: Any) -> Callable[[], None]:
    """Save the states of the generators that everybody shares; return what restores them."""
    numpy = sys.modules.get("numpy")
    mine, torch_state = random.getstate(), torch.get_rng_state()
    numpy_state = numpy.random.get_state() if numpy else None
    device_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def put_back_shared() -> None:
        random.setstate(mine)
        torch.set_rng_state(torch_state)
        if numpy:
            numpy.random.set_state(numpy_state)
        if device_states is not None:
            torch.cuda.set_rng_state_all(device_states)

    return put_back_shared


class Generators:
    """The shared generators, and those that some objects hold."""

    def __init__(self, torch: Any, roots: list[Any]) -> None:
        self.torch, self.own = torch, generators_of(torch, roots)

    def states(self) -> bytes:
        """Return what shows whether any of them was moved."""
        return random_states(self.torch) + pickle.dumps([state_of(one) for one in self.own])

    def keep(self) -> Callable[[], None]:
        """Save all states; return what restores them."""
        put_back_shared = keep_random_states(self.torch)
        own = [(one, state_of(one)) for one in self.own]

        def put_back_all() -> None:
            put_back_shared()
            for one, state in own:
                put_back(self.torch, one, state)

        return put_back_all
