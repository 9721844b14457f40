"""Calls back once a module was imported, in a process that Steptime's first finder did not see."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from typing import Any


class LateFinder:
    """Calls back after a module has been executed; finds nothing by itself.

    As in `inject/site/sitecustomize.py`, which another Python must be able to read: libraries look
    for a module with `find_spec` long before they import it, so it stays until it is taken out.
    """

    def __init__(self) -> None:
        self.targets: dict[str, Callable[[Any], None]] = {}
        self.looking: set[tuple[str, int]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return what the other finders find, with a loader that calls back."""
        key = (name, get_ident())
        if name not in self.targets or key in self.looking:
            return None
        self.looking.add(key)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self.looking.discard(key)
        if spec is not None and spec.loader is not None:
            self._call_after(name, spec.loader)
        return spec

    def _ask_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _call_after(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            try:
                execute(module)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next  # less this frame
                raise
            del loader.exec_module
            self.call(name, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # an unusual loader: this module is not observed

    def call(self, name: str, module: Any) -> None:
        """Tell whoever waits for a module that it is there."""
        tell = self.targets.pop(name, None)
        if tell is not None:
            tell(module)
