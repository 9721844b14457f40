"""What feeds the steps: the loaders that training reads from, and the shapes of models' inputs.

They are written so that two runs can be compared: a step on another batch is other work. Only plain
values of torch's own loader and of plain tensors are read; nothing of the user's is called or kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from json import dumps
from time import time
from types import FunctionType
from typing import Any

from ...record import kinds
from ..timeline.interrupts import let_through
from ..timeline.recorder import Recorder
from .held_objects import file_of, find_held, inside, list_of, values_of

MAX_LOADERS = 20
"""Some scripts make a loader for each epoch; the first ones are enough."""

MAX_TRANSFORMS = 12
"""Transforms of a data set that are named."""

MAX_WORDS = 40
"""Attributes of a data set that are told."""

MAX_CALLS = 8
"""Calls of models in one update; further ones add nothing."""

MAX_VERSIONS = 60
"""Libraries in use besides torch; a script that imports more does not compute with all of them."""


class LoaderBook:
    """The loaders whose batches were trained on, by data set; writes an `i` line for new ones.

    `trained` are the ids of the data sets that were trained on.
    """

    place = "inputs"

    def __init__(self, recorder: Recorder, trained: set[int]) -> None:
        self.recorder = recorder
        self.trained = trained
        self.reset()

    def reset(self) -> None:
        """Forget what was written: this is a new process."""
        self.seen: dict[int, dict[str, Any]] = {}
        self.told: list[dict[str, Any]] = []

    def see(self, loader: Any) -> None:
        """Note that an epoch of a loader begins; what costs more is looked at in the first."""
        key = id(loader.dataset)
        known = self.seen.get(key)
        if known is not None:
            self.seen[key] = known | describe(loader)
        elif len(self.seen) < MAX_LOADERS:
            self.seen[key] = describe(loader) | self.look_into(loader)

    def look_into(self, loader: Any) -> dict[str, Any]:
        """Return what the first epoch of a loader shows of its data set."""
        found: dict[str, Any] = {"began_unix_s": round(time(), 4)}
        try:
            found |= look_into(loader)
        except BaseException:
            self.recorder.fail("data_set")
        return found

    def poll(self, bucket: int, *, is_last: bool) -> str:
        """Return a line if there is something new."""
        if len(self.told) >= len(self.seen):
            return ""
        images = {"opens_images": True} if "PIL.JpegImagePlugin" in sys.modules else {}
        found = [facts | images for key, facts in list(self.seen.items()) if key in self.trained]
        if not found or found == self.told:
            return ""
        self.told = found
        return dumps({"k": kinds.LOADERS, "n": self.recorder.num_updates, "loaders": found}) + "\n"


def batch_size_of(loader: Any) -> int | None:
    """Return the batch size of the loader, or else of its batch sampler."""
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if type(size) is int else None


def describe(loader: Any) -> dict[str, Any]:
    """Return how a loader reads."""
    return {
        "dataset": type(loader.dataset).__name__,
        "batch_size": batch_size_of(loader),
        "num_workers": int(loader.num_workers),
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "prefetch_factor": loader.prefetch_factor,
    }


def look_into(loader: Any) -> dict[str, Any]:
    """Return the class and transforms of a data set, and what its workers will copy."""
    held, num_workers = inside(loader.dataset), int(loader.num_workers)
    found: dict[str, Any] = {
        "module": type(held[-1]).__module__,
        "transforms": transforms_of(values_of(held[-1])),
        "classes": [describe_class(one) for one in held],
        "num_cores": num_cores(),
    }
    if num_workers:
        context = loader.multiprocessing_context
        found["start_method"] = start_method(context)
        found["objects"] = find_held(loader.dataset)
    return found


def describe_class(one: Any) -> dict[str, Any]:
    """Return where the class of a data set is, and what its methods may ask of its attributes.

    Of attributes with strings only those are told that a method of the class names itself.
    """
    asked = {
        constant
        for name, method in list(vars(type(one)).items())
        if type(method) is FunctionType and name != "__init__"
        for constant in constants_of(method.__code__.co_consts)
    }
    words = {
        name: value
        for name, value in list(values_of(one).items())
        if type(value) in (bool, int, type(None)) or (type(value) is str and value in asked)
    }
    return {
        "name": type(one).__name__,
        "file": file_of(type(one)),
        "words": dict(list(words.items())[:MAX_WORDS]),
    }


def constants_of(values: Any) -> Iterator[str]:
    """Yield the strings among constants of code, also those in tuples and sets."""
    for value in values:
        if type(value) is str:
            yield value
        elif type(value) in (tuple, frozenset):
            yield from constants_of(value)


def transforms_of(values: dict[str, Any]) -> list[str]:
    """Return the classes of the transforms that a data set keeps, in their order."""
    kept = values.get("transform")
    kept = values.get("transforms") if kept is None else kept
    inner = values_of(kept)
    if inner.get("transform") is not None:  # torchvision's StandardTransform
        kept = inner["transform"]
        inner = values_of(kept)
    chain = list_of(inner.get("transforms")) or ([] if kept is None else [kept])
    return [type(one).__name__ for one in chain[:MAX_TRANSFORMS]]


def start_method(context: Any) -> str:
    """Return how worker processes are started: `fork`, `spawn` or `forkserver`.

    The default is not asked for: asking would fix it, and a script could no longer set it.
    """
    multiprocessing = sys.modules["multiprocessing"]  # torch imported it
    if context is not None:
        return str(context.get_start_method())
    known = multiprocessing.get_start_method(allow_none=True)
    return str(known or multiprocessing.get_all_start_methods()[0])


def num_cores() -> int:
    """Return the number of cores that this process may use; a quota is not looked at."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Shapes:
    """The shapes of the first tensors that models are called with, in two updates.

    Where the two agree, steps have the same shapes; with sequences of varying length they do not.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.updates: tuple[list[str], list[str]] = ([], [])
        self.has_tokens: bool | None = None  # every one of them held tokens

    def see(self, values: Iterable[Any], *, is_second: bool) -> None:
        """Note an outermost call of a model, in the first or second of the two updates."""
        seen = self.updates[is_second]
        if len(seen) >= MAX_CALLS or self.torch._C._len_torch_function_stack():
            return
        for tensor in plain_tensors(self.torch.Tensor, values, 3):
            size = "x".join(map(str, tensor.shape)) or "1"
            seen.append(f"{size} {str(tensor.dtype).removeprefix('torch.')}")
            self.has_tokens = self.has_tokens is not False and holds_tokens(tensor)
            return

    def line(self, num_updates: int) -> str:
        """Return a line with the shapes if both updates agree, and whether they are of tokens."""
        first, second = map(sorted, map(set, self.updates))
        shapes = first if first == second else []
        if not shapes and not self.has_tokens:
            return ""
        facts = {"k": kinds.SHAPES, "n": num_updates, "shapes": shapes}
        return dumps(facts | ({"has_tokens": True} if self.has_tokens else {})) + "\n"


def holds_tokens(tensor: Any) -> bool:
    """Return whether a tensor holds tokens: two dimensions of whole numbers."""
    return len(tensor.shape) == 2 and str(tensor.dtype).startswith("torch.int")


def plain_tensors(tensor_class: Any, values: Iterable[Any], depth: int) -> Iterator[Any]:
    """Yield tensors of torch's own class in plain containers; other classes run their own code."""
    for value in values:
        if type(value) is tensor_class:
            if not value.is_nested:  # it has no shape
                yield value
        elif depth and type(value) in (list, tuple):
            yield from plain_tensors(tensor_class, value, depth - 1)
        elif depth and type(value) is dict:
            yield from plain_tensors(tensor_class, value.values(), depth - 1)


def find_versions() -> dict[str, str]:
    """Return the versions that imported libraries state; nothing is imported or searched."""
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names:
            continue
        try:
            version = vars(module).get("__version__")
        except BaseException as error:
            let_through(error)
            continue  # a library put something that is no module there
        if type(version) is str and name not in ("torch", "__main__"):
            found[name] = version[:40]
    return dict(sorted(found.items())[:MAX_VERSIONS])
