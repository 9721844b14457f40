"""Starts the user's command for the tests of trials: a plain child, contained by nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from steptime.core.process_end import ProcessEnd, RunState
from steptime.core.store import write_text


class PlainChild:
    """A child in a session of its own."""

    left: tuple[tuple[int, str], ...] = ()

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def show(self, text: str) -> None:
        """Nothing hides it here."""
        write_text(self._folder / "live.json", text)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> ProcessEnd | None:
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            return ProcessEnd(state=RunState.KILLED, signal=-code)
        return ProcessEnd(state=RunState.FAILED if code else RunState.FINISHED, exit_code=code)

    def hold(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends all that it started: torchrun's ranks are in sessions of their own."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for one in (*root.children(recursive=True), root):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        self._process.wait()


class PlainStart:
    """Starts a command in a folder; a `Start` of `tune.trials.trial_process`."""

    def __init__(self, argv: tuple[str, ...], cwd: Path) -> None:
        self.argv = argv
        self.cwd = cwd

    def __call__(
        self, environment: Mapping[str, str], *, folder: Path, stdin: Path | None
    ) -> PlainChild:
        with (
            (folder / "stdout").open("wb") as out,
            (folder / "stderr").open("wb") as err,
            Path(stdin or os.devnull).open("rb") as given,
        ):
            return PlainChild(
                subprocess.Popen(
                    self.argv,
                    cwd=self.cwd,
                    env=environment,
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                ),
                folder,
            )
