"""A clock from outside: when each optimizer step of a command ended, without Steptime.

On the path of a process (`PYTHONPATH`) with `CLOCK_OUT` set it notes the time after each step, and
writes them when `CLOCK_SECONDS` of steps are over, or the process ends.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.util
import json
import os
import sys
import time
from typing import Any

OUT = os.environ.get("CLOCK_OUT")
SECONDS = float(os.environ.get("CLOCK_SECONDS", "inf"))
OPTIMIZERS = "torch.optim.optimizer"
began, stamps = time.perf_counter(), []
own: dict[str, Any] = {}


def write() -> None:
    """Write the stamps once, from the process that made them."""
    if own.pop("pid", None) != os.getpid():
        return
    path = f"{OUT}.part"
    with open(path, "w") as file:
        json.dump({"start_s": stamps[0] - began, "stamps": [it - stamps[0] for it in stamps]}, file)
    os.rename(path, str(OUT))


def after_step(*_: object) -> None:
    """Note that a step ended."""
    now = time.perf_counter()
    if not stamps:
        own["pid"] = os.getpid()
        atexit.register(write)
    stamps.append(now)
    if now - stamps[0] > SECONDS:
        write()


class Finder(importlib.abc.MetaPathFinder):
    """Hooks into torch's optimizers once they are imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != OPTIMIZERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            module.register_optimizer_step_post_hook(after_step)

        loader.exec_module = exec_module
        return spec


if OUT:
    sys.meta_path.insert(0, Finder())
