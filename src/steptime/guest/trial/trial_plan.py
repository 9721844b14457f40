"""What the parent asks of the guest: its plan, and the lever files that it names.

Levers are loaded under private names, so nothing of ours shadows a module of the user's or is
shadowed by one: `base.py` as `_steptime_levers.base`, a lever's file beside it. A lever may import
the contract as `.base` or as `steptime.levers.base`; both find the private module, whether or not
Steptime is installed in the script's Python.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import loads
from types import ModuleType
from typing import Any

from ...record.regular_file import read_regular

PACKAGE = "_steptime_levers"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(_PACKAGE, "levers")
PUBLIC = ("steptime", "steptime.levers", "steptime.levers.base")
"""While it is loaded, a lever's file finds the private package under these names."""

SCHEMA = 1


@dataclass(frozen=True)
class Wanted:
    """One lever with its settings, and the file that holds it."""

    name: str
    settings: Mapping[str, Any]
    file: str


@dataclass(frozen=True)
class TrialPlan:
    """What a plan holds (docs/internals/study-folder.md).

    Experiments come at `shown`, an address in memory, or in `live.json` of the folder `shown`.
    """

    is_recipe: bool
    levers: tuple[Wanted, ...]
    is_live: bool
    quality: Mapping[str, Any] | None
    is_probing: bool
    is_counting: bool = False
    only: Mapping[str, Any] | None = None
    bench: Mapping[str, Any] | None = None
    worker_search_s: float | None = None
    order: Mapping[str, Any] | None = None
    sees_products: bool = False
    hands_out_largest: bool = False
    forecast: Mapping[str, Any] | None = None
    device_bytes: int | None = None
    shown: int | str = ""


def read_plan(told: str, shown: int | str = "") -> TrialPlan:
    """Return the plan in a text, or in a file at a path; raise whatever is wrong with it."""
    is_text = told.startswith("{")
    values = take_json(told.encode() if is_text else read_regular(told))
    return TrialPlan(
        shown=shown if is_text else os.path.dirname(told),
        is_recipe=values["mode"] == "recipe",
        levers=take_levers(values["levers"]),
        is_live=bool(values.get("is_live")),
        quality=values.get("quality"),
        is_probing=bool(values.get("probe")),
        is_counting=values["mode"] == "count",
        only=values.get("only"),
        bench=values.get("bench"),
        worker_search_s=values.get("worker_search_s"),
        order=values.get("order"),
        sees_products=bool(values.get("products")),
        hands_out_largest=bool(values.get("largest")),
        forecast=values.get("forecast"),
        device_bytes=values.get("device_bytes"),
    )


def take_json(text: bytes) -> dict[str, Any]:
    """Return the object in a text of our schema."""
    values: dict[str, Any] = loads(text)
    if values["schema"] != SCHEMA:
        raise ValueError(f"`schema` must be {SCHEMA}, got {values['schema']!r}")
    return values


def take_levers(values: Any) -> tuple[Wanted, ...]:
    """Return a state from the values in a file."""
    return tuple(Wanted(one["name"], dict(one["settings"]), one["file"]) for one in values)


# -- lever files


def load_lever(wanted: Wanted) -> Any:
    """Return the `LEVER` in the file of a wanted lever; raise whatever goes wrong."""
    lever = load_file(wanted.file).LEVER
    if lever.apply is None:
        raise ValueError(f"the lever {wanted.name!r} has no `apply`, so the guest can do nothing")
    return lever


def lever_tool(name: str) -> ModuleType:
    """Return a module of the levers' folder by its room and name: `input/datasets`."""
    return load_file(os.path.join(FOLDER, f"{name}.py"))


def load_file(file: str) -> ModuleType:
    """Return the module of a lever's file, loaded once."""
    package = _package()
    file = os.path.abspath(file)
    inside, _ = os.path.splitext(os.path.relpath(file, FOLDER))
    name = f"{PACKAGE}.{inside.replace(os.sep, '.')}"
    is_ours = not inside.startswith(os.pardir)
    if not is_ours:  # its name may equal one of ours
        name = f"{PACKAGE}.outside_{zlib.crc32(file.encode()):08x}_{os.path.basename(inside)}"
    if name in sys.modules:
        return sys.modules[name]
    with _found_as(package):
        return importlib.import_module(name) if is_ours else _load(name, file)


def _package() -> ModuleType:
    """Return the private package, with the contract in it."""
    package = sys.modules.get(PACKAGE)
    if package is None:
        package = ModuleType(PACKAGE)
        package.__path__ = [FOLDER]  # so that a spawned worker finds a pickled class
        package.__spec__ = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
        sys.modules[PACKAGE] = package
        package.base = _load(f"{PACKAGE}.base", os.path.join(FOLDER, "base.py"))  # type: ignore[attr-defined]
    return package


def _load(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _found_as(package: ModuleType) -> Iterator[None]:
    """Let the public names lead to the private modules while a lever's file is executed."""
    root = ModuleType("steptime")
    root.levers = package  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in PUBLIC}
    sys.modules.update(zip(PUBLIC, (root, package, sys.modules[f"{PACKAGE}.base"])))
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
