"""Steptime: make training faster, and prove it.

From Python: `observe` a command, `load` a run that was made before, `compare` runs, `tune` a
command, `fit` it into memory, `sweep` its parameters, `verify_training` over seeds, `verify_model`
by predictions, `quantize_model` for devices without floats, `patch` files; `attach` to a run while
it trains; `count` the work of a model; ask the `doctor` about this machine. Whatever goes wrong is
a `SteptimeError`.
"""

from __future__ import annotations

import sys
import typing
from types import ModuleType
from typing import Any

if typing.TYPE_CHECKING:
    from steptime.app.fit.fit import FittedCommand
    from steptime.app.quantize.quantize_model import quantize_model
    from steptime.app.run.attach import attach
    from steptime.app.run.observe import observe
    from steptime.app.run.observed_run import ObservedRun
    from steptime.app.stored.compare import RunComparison, compare
    from steptime.app.stored.load import load
    from steptime.app.study.patch import patch
    from steptime.app.study.tune import TunedCommand, tune
    from steptime.app.surface import doctor, fit, sweep, verify_training
    from steptime.app.verify.verify_model import verify_model
    from steptime.counting.count_model import count
    from steptime.errors import SteptimeError
    from steptime.report.blocks.run.answer_report import RunAnswer

    __version__: str

__all__ = [
    "FittedCommand",
    "ObservedRun",
    "RunAnswer",
    "RunComparison",
    "SteptimeError",
    "TunedCommand",
    "__version__",
    "attach",
    "compare",
    "count",
    "doctor",
    "fit",
    "load",
    "observe",
    "patch",
    "quantize_model",
    "sweep",
    "tune",
    "verify_model",
    "verify_training",
]

# Each is imported when somebody asks for it: `import steptime` stays light.
_PLACES = {
    "FittedCommand": "app.fit.fit",
    "ObservedRun": "app.run.observed_run",
    "RunAnswer": "report.blocks.run.answer_report",
    "RunComparison": "app.stored.compare",
    "SteptimeError": "errors",
    "TunedCommand": "app.study.tune",
    "attach": "app.run.attach",
    "compare": "app.stored.compare",
    "count": "counting.count_model",
    "doctor": "app.surface",
    "fit": "app.surface",
    "load": "app.stored.load",
    "load_ipython_extension": "notebook.magics",  # IPython asks for it: `%load_ext steptime`
    "observe": "app.run.observe",
    "patch": "app.study.patch",
    "quantize_model": "app.quantize.quantize_model",
    "sweep": "app.surface",
    "tune": "app.study.tune",
    "verify_model": "app.verify.verify_model",
    "verify_training": "app.surface",
    "unload_ipython_extension": "notebook.magics",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return import_module("steptime.core.version").installed_version()
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"steptime.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `compare`, `patch` and `tune` the functions, though rooms bear these names.

    The import system puts each submodule on its package as an attribute, over whatever is there.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
