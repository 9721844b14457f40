"""Where in the source the things that levers change are made and called; in a trial only.

In: what the hooks of the observing trial see. Out: rows for the line `facts`: optimizers and
loaders that trained, by the call that made them, and the outermost calls of models. A place is a
list of file, first line, last line, first column and last column; columns count bytes of UTF-8, and
before Python 3.11 they are None.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import FrameType
from typing import Any

from ...hooks.module_tree import modules_of
from ...hooks.patching import drop_frame, replace
from ...sites.file_owners import LIBRARYS, NOBODYS, TYPED, FileOwners
from ..samples import find_tensor
from ..trial_plan import lever_tool

Place = tuple[str, int, "int | None", "int | None", "int | None"]

MAX_CALLERS = 12
"""Callers of a call that are noted: enough to find where a function got its model from."""

MAX_CALLS = 64
"""Calls of models whose frames are walked: a walk takes some 10 µs, and the places repeat."""

NOTEBOOK = f"{os.sep}ipykernel_"
"""In the made-up names of files that a notebook's kernel compiles its cells under."""


class SiteNotes:
    """Notes places while the script trains.

    Args:
        torch: the module.
        fail: counts a failure of ours by place.
    """

    def __init__(self, torch: Any, fail: Callable[[str], None]) -> None:
        self.torch = torch
        self.fail = fail
        self.owners = FileOwners(torch)
        self.made: dict[int, tuple[weakref.ref[Any], list[Place]]] = {}
        self.calls: dict[Place, dict[str, Any]] = {}
        self.told: dict[Place, dict[str, Any]] = {}
        self.num_calls = 0

    # -- what the hooks report

    def hook(self) -> None:
        """Note who makes an optimizer or a loader."""
        self._hook_init(self.torch.optim.Optimizer)
        self._hook_init(self.torch.utils.data.DataLoader)

    def _hook_init(self, owner: Any) -> None:
        original = owner.__init__

        def __init__(made: Any, *args: Any, **kwargs: Any) -> None:
            try:
                original(made, *args, **kwargs)
            except BaseException as error:
                drop_frame(error)
                raise
            self.see_made(made, sys._getframe(1))

        replace(owner, "__init__", __init__)

    def see_made(self, made: Any, frame: FrameType | None) -> None:
        """Note the functions that made an object."""
        try:
            self.made[id(made)] = (weakref.ref(made), self.walk(frame))
        except BaseException:
            self.fail("sites")

    def see_call(
        self, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[Any], None] | None:
        """Note an outermost call of a model; return what takes its result, if it is a new one."""
        if self.num_calls >= MAX_CALLS:
            return None
        self.num_calls += 1
        places = self.walk(sys._getframe(1))
        if not places or places[0] in self.calls:
            return None
        images = find_images(self.torch, args, kwargs)
        traits = [*(f"image:{name}" for name in images), *self._describe_blocks(model)]
        row = self.row("model_call", model, places, traits)
        row["callers"] = [list(place) for place in places[1:]]
        self.calls[places[0]] = row

        def take(result: Any) -> None:
            try:
                row["traits"].append(f"output:{describe_output(self.torch, result)}")
            except BaseException:
                self.fail("sites")

        return take

    def _describe_blocks(self, model: Any) -> list[str]:
        try:
            return describe_blocks(self.torch, model)
        except BaseException:
            self.fail("sites")
            return []

    # -- what comes of it

    def describe(self, optimizers: Iterable[Any], loaders: Iterable[tuple[Any, Any]]) -> list[Any]:
        """Return the rows, also those of earlier calls.

        Args:
            optimizers: those that have stepped.
            loaders: those that fed training, with their `LoaderFacts`.
        """
        try:
            return self._describe(list(optimizers), list(loaders))
        except BaseException:
            self.fail("sites")
            return []

    def _describe(self, optimizers: list[Any], trained: list[tuple[Any, Any]]) -> list[Any]:
        rows = [
            self.row("optimizer", one, places, [])
            for one in optimizers
            if (places := self._places_of(one))
        ]
        for loader, facts in trained:
            places = self._places_of(loader)
            if places:
                traits = self._describe_loader(loader, facts, places, [one for one, _ in trained])
                rows.append(self.row("loader", loader, places, traits))
        # What was told before stays: a function that has returned took its optimizer with it.
        self.told |= {tuple(row["place"]): row for row in rows}
        return [*self.told.values(), *self.calls.values()]

    def _places_of(self, made: Any) -> list[Place]:
        reference, places = self.made.get(id(made), (None, []))
        return places if reference is not None and reference() is made else []

    def _describe_loader(
        self, loader: Any, facts: Mapping[str, Any], places: list[Place], trained: list[Any]
    ) -> list[str]:
        traits = [f"dataset:{facts['dataset']}"]
        traits += [f"workers:{loader.num_workers}"] * bool(loader.num_workers)
        traits += ["tensor_dataset"] * bool(facts.get("is_tensor_dataset"))
        traits += ["in_memory"] * bool(facts.get("is_in_memory"))
        traits += ["iterable"] * bool(facts.get("is_iterable"))
        traits += ["own_collate"] * (loader.collate_fn is not self.torch.utils.data.default_collate)
        trains = {id(one) for one in trained}
        shared = any(
            there[0] == places[0] and there[1:] != places[1:] and key not in trains
            for key, (_, there) in self.made.items()
            if there
        )
        return [*traits, *["shared"] * shared]

    def row(self, what: str, one: Any, places: list[Place], traits: list[str]) -> dict[str, Any]:
        """Return one row; `traits` are words that an edit needs."""
        return {
            "what": what,
            "name": type(one).__name__,
            "place": list(places[0]),
            "callers": [],
            "traits": [*self._describe_file(places[0][0]), *traits],
        }

    def _describe_file(self, file: str) -> list[str]:
        if file.startswith(TYPED) or NOTEBOOK in file:
            return ["notebook"]
        if file.startswith("<"):
            return ["generated"]
        return ["library"] * (self.owners.owner(file) == LIBRARYS)

    def walk(self, frame: FrameType | None) -> list[Place]:
        """Return where the functions outside torch, Python and the guest are, innermost first."""
        found: list[Place] = []
        while frame is not None and len(found) <= MAX_CALLERS:
            file = frame.f_code.co_filename
            is_made = file.startswith("<") and not file.startswith("<frozen ")
            if is_made or (file[:1] != "<" and self.owners.owner(file) != NOBODYS):
                found.append(place_of(frame))
            frame = frame.f_back
        return found


def place_of(frame: FrameType) -> Place:
    """Return the place of the call at which a frame is."""
    code = frame.f_code
    file = code.co_filename
    file = file if file.startswith("<") else os.path.abspath(file)
    line = frame.f_lineno or code.co_firstlineno
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        found = next(islice(positions(), frame.f_lasti // 2, None), None)
        if found is not None and None not in found:
            first, last, begin, end = found
            return file, first, last, begin, end
    return file, line, None, None, None


def find_images(torch: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return positions and names of arguments that are float tensors of four dimensions.

    One that is inside another argument is named `inside`.
    """
    found: list[str] = []
    for name, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, torch.Tensor):
            if value.dim() == 4 and value.is_floating_point():
                found.append(str(name))
        else:
            inner = find_tensor(torch.Tensor, value)
            if inner is not None and inner.dim() == 4 and inner.is_floating_point():
                found.append("inside")
    return found


def describe_blocks(torch: Any, model: Any) -> list[str]:
    """Return by which classes the repeated blocks of a model are found among its modules.

    `block:Layer` for each class, by its name; `no_blocks`; or `unnamed_blocks`, where another
    module has the name of such a class, or `hooked_blocks`, which a compiled call would not call
    as they are.
    """
    groups = lever_tool("tools/blocks").find_blocks(torch, model)
    blocks = [one for group in groups for one in group]
    if not blocks:
        return ["no_blocks"]
    hooks_in = lever_tool("compiling/compiled").hooks_in
    if any(any(hooks_in(one)) for one in blocks):
        return ["hooked_blocks"]
    names = sorted({type(one).__name__ for one in blocks})
    named = {id(one) for _, one in modules_of(model) if type(one).__name__ in names}
    if named != {id(one) for one in blocks}:
        return ["unnamed_blocks"]
    return [f"block:{name}" for name in names]


def describe_output(torch: Any, result: Any) -> str:
    """Return in a word what a model returns: `float`, `mapping`, `float,floats`, `nested`, ….

    A word for each part of a tuple; `floats` is a tuple of float tensors in it.
    """
    if isinstance(result, torch.Tensor):
        return "float" if result.is_floating_point() else "other"
    if isinstance(result, Mapping):
        return "mapping" if isinstance(result.get("loss"), torch.Tensor) else "nested"
    if type(result) is tuple and len(result) > 1:
        parts = [describe_part(torch, part) for part in result]
        return "nested" if {"nested", "mapping"} & set(parts) else ",".join(parts)
    return "other" if result is None or isinstance(result, (bool, int, float, str)) else "nested"


def describe_part(torch: Any, part: Any) -> str:
    """Return the word of a part of a tuple."""
    if type(part) is not tuple:
        return describe_output(torch, part)
    words = {describe_output(torch, one) for one in part}
    return "floats" if words == {"float"} else "nested"
