"""Lets the guest into a process that has been running for a while, and takes it out again.

It is for the cells of a notebook (`steptime.notebook`): torch may have been imported long ago, or
the cell imports it. Everything that was put in is taken out at the end, hooks, callbacks and
wrappers, whatever the cell did. What a name of the user's still holds by then, such as a
`clip_grad_norm_` that the cell imported, calls torch's own function and notes nothing.

Two things remain: our modules, and one function that Python calls in forked children, which then
does nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ..record import kinds
from ..record.files import PROCESSES
from ..record.hidden_words import hide_words
from .bootstrap import enter, finish, wake
from .frameworks.torch.torch_context import TorchContext
from .frameworks.torch.torch_install import install_profile
from .hooks.patching import put_back
from .late_finder import LateFinder
from .modes.mode import GuestMode
from .timeline.recorder import announce
from .watchers.compile_books import CompileWatcher

_MAX_WORDS = 20


class Visiting(GuestMode):
    """Observe a while; nobody asks, and nobody is there to remove what a call record leaves."""

    answers = records_calls = False


class Visit:
    """One stay of the guest in this process.

    Args:
        run: the run's folder, which is there.
        profile: what the profiler is asked for, as in STEPTIME_PROFILE; None for no profile.
    """

    def __init__(self, run: str, *, profile: str | None = None) -> None:
        self.run = run
        self.profile = profile
        self.finder = LateFinder()
        self.context: TorchContext | None = None

    def begin(self) -> None:
        """Enter now, or when the cell has imported torch."""
        _announce_start(self.run)
        self.finder.targets["torch"] = self._enter
        sys.meta_path.insert(0, self.finder)
        self._call_for_known()

    def _enter(self, torch: Any) -> None:
        try:
            self.context = context = enter(
                torch, self.run, Visiting(), self.finder.targets, is_late=True
            )
            if context is None:
                return
            for watcher in context.recorder.watchers:
                if isinstance(watcher, CompileWatcher):
                    context.guarded("compiled", watcher.skip_past)
            if self.profile is not None:
                context.guarded("install:profile", install_profile, context, self.profile)
            self._call_for_known()
        except Exception as error:  # ours must not become the cell's
            announce(self.run, kinds.TORCH, {"failed": repr(error)[:200]})

    def _call_for_known(self) -> None:
        """Tell whoever waits for a module that was imported before."""
        for name in list(self.finder.targets):
            module = sys.modules.get(name)
            if module is not None and not _is_being_imported(module):
                self.finder.call(name, module)

    def end(self, error: BaseException | None = None) -> None:
        """Write the last lines and take everything out; `error` is what ended the cell.

        A second interrupt, from somebody who cannot wait, comes through when all is out.
        """
        try:
            self._end(error)
        except BaseException:
            self._end(error)
            raise

    def _end(self, error: BaseException | None) -> None:
        sys.meta_path[:] = [one for one in sys.meta_path if one is not self.finder]
        self.finder.targets.clear()
        context = self.context
        if context is not None:
            context.guarded("rest", wake, context)
        put_back()
        if context is None:
            return
        while context.undo:
            context.guarded("undo", context.undo[-1])
            context.undo.pop()
        finish(context, lambda: error)
        mute(context)
        self.context = None


def mute(context: TorchContext) -> None:
    """Let wrappers that somebody still holds call the original and note nothing."""
    context.anatomy = context.autopsy = context.trial = context.lent_probe = None
    context.kinds.clear()
    for watcher in context.recorder.watchers:
        context.guarded(watcher.place, watcher.reset)
    context.journals.mute()


def _is_being_imported(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _announce_start(run: str) -> None:
    """Write the line with which a process begins, into a file that may be new."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    os.close(os.open(os.path.join(run, PROCESSES), flags, 0o644))
    words = hide_words(getattr(sys, "orig_argv", [])[:_MAX_WORDS])
    version = "{}.{}.{}".format(*sys.version_info[:3])
    announce(run, kinds.START, {"ppid": os.getppid(), "python": version, "argv": words})
