"""Hears warnings and log records where Python makes the object that tells of one.

`warnings` and `logging` look up the stack for the line to name before they make it, and show it
afterwards: a wrapper around its constructor is on the stack at neither moment, so nothing that is
printed names another line.
"""

from __future__ import annotations

import linecache
import logging
import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..hooks.patching import drop_frame, replace
from .said_watcher import SaidWatcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..frameworks.torch.torch_context import TorchContext

    Take = Callable[[Any, FrameType], None]

MAX_OF_TEMPLATE = 200
"""Records of one call of a logger whose arguments are put into the text; dynamo's name functions.
Those after it count as the last one."""

_HIDING = "torch._logging._internal"
"""The module whose `hide_warnings` shows nothing while dynamo looks at tensors."""

_OF_WARNINGS = "py.warnings"
"""The logger to which `logging.captureWarnings` sends warnings, which are heard already."""


def hear_libraries(context: TorchContext) -> None:
    """Hear warnings and log records of this process from now on."""
    watcher = SaidWatcher(context)
    context.recorder.watchers.append(watcher)
    _hook_warnings(context, watcher)
    _hook_logging(context, watcher)
    watcher.read_registries()


def _hook_warnings(context: TorchContext, watcher: SaidWatcher) -> None:
    shows = getattr(warnings, "_showwarnmsg_impl", None)

    def take(message: Any, frame: FrameType) -> None:
        if getattr(warnings, "_showwarnmsg_impl", None) is not shows:
            return  # `catch_warnings(record=True)`: it is kept, and not shown
        if getattr(warnings.showwarning, "__module__", None) == _HIDING:
            return
        if _formats(frame) or _is_scripts(watcher, frame):
            return
        who, file = message.category.__name__, frame.f_code.co_filename
        watcher.hear("warning", who, str(message.message), file, frame)

    _hook_making(context, warnings.WarningMessage, take)


def _hook_making(context: TorchContext, kind: type, take: Take) -> None:
    """Hand each new object of a class to `take`, with the frame that made it."""
    made, guarded = vars(kind)["__init__"], context.guarded

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            made(self, *args, **kwargs)
        except BaseException as error:
            drop_frame(error)
            raise
        guarded("said", take, self, sys._getframe(1))

    replace(kind, "__init__", __init__)


def _formats(frame: FrameType) -> bool:
    """Return whether a warning is only put into words here, or shown once more."""
    code = frame.f_code
    return code.co_filename == warnings.__file__ and code.co_name in (
        "formatwarning",
        "showwarning",
    )


def _is_scripts(watcher: SaidWatcher, frame: FrameType) -> bool:
    """Return whether the script itself warns; what is in C warns in the name of its caller."""
    code = frame.f_code
    if not watcher.is_users(code.co_filename):
        return False
    is_able = "warn" in code.co_names or "warn_explicit" in code.co_names
    return is_able and "warn" in linecache.getline(code.co_filename, frame.f_lineno or 0)


def _hook_logging(context: TorchContext, watcher: SaidWatcher) -> None:
    num_said: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], str] = {}

    def take(record: Any, frame: FrameType) -> None:
        level = record.levelno
        if type(level) is not int or level < logging.WARNING:
            return
        if record.name == _OF_WARNINGS or watcher.is_users(record.pathname):
            return
        place = record.pathname, record.lineno
        num = num_said[place] = num_said.get(place, 0) + 1
        if num <= MAX_OF_TEMPLATE:  # later, an argument may be a tensor in each step
            last[place] = record.getMessage()
        watcher.hear("log", record.name, last[place], record.pathname, frame)

    _hook_making(context, logging.LogRecord, take)
