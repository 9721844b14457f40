"""Starts commands through the fork server: one for each process that runs tests."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from json import dumps
from pathlib import Path

from end_to_end.fork_server import script_in, settled

SERVER = Path(__file__).parent / "fork_server.py"
START_LIMIT_S = 120


def can_fork(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> bool:
    """Whether the server can stand in for a new interpreter.

    The command must be `python script.py [words]`, or the same with torchrun, and the environment
    must not ask for something that is settled when an interpreter, or torch, is loaded.
    """
    script = script_in(command)
    if command[0] not in ("python", "torchrun", sys.executable) or script is None:
        return False
    return (cwd / command[script]).is_file() and can_ask(environment)


def can_ask(environment: Mapping[str, str]) -> bool:
    """Whether the server can stand in for an interpreter with this environment."""
    if sys.platform != "linux" or find_spec("torch") is None:
        return False
    return settled(environment) == settled(server_environment())


def server_environment() -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    return own | {"OMP_NUM_THREADS": "1"}


class ForkedJob:
    """A command that the server started; `pid` leads a session of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        *,
        is_observed: bool,
        forks_script: bool = True,
    ) -> None:
        request = {
            "forks_script": forks_script,
            "argv": list(command),
            "environment": dict(environment),
            "cwd": str(cwd),
            "is_observed": is_observed,
        }
        readers, writers = zip(os.pipe(), os.pipe(), strict=True)
        with open(os.devnull, "rb") as nothing:
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.connect(_server())
            streams = [nothing.fileno(), *writers]
            socket.send_fds(self._connection, [dumps(request).encode()], streams)
        for writer in writers:
            os.close(writer)
        self._answers = self._connection.makefile("r")
        self.pid = int(self._answers.readline())
        self._outputs: list[bytes] = [b"", b""]
        self.cpu_s = 0.0
        self._threads = [
            threading.Thread(target=self._read, args=(i, fd), daemon=True)
            for i, fd in enumerate(readers)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, index: int, descriptor: int) -> None:
        with open(descriptor, "rb") as file:
            self._outputs[index] = file.read()

    def communicate(self, limit_s: float) -> tuple[int, bytes, bytes]:
        """Exit code (minus the signal, where it was killed), stdout and stderr."""
        until = time.monotonic() + limit_s
        self._connection.settimeout(limit_s)
        try:
            code, cpu_s = self._answers.readline().split()
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))
                if thread.is_alive():
                    raise TimeoutError("its output is still open")
        finally:
            self.close()
        self.cpu_s = float(cpu_s)
        return int(code), *self._outputs

    def close(self) -> None:
        """Kill what is left of it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._answers.close()
        self._connection.close()


@cache
def _server() -> str:
    """The address of this process's server, which is started when first asked for."""
    folder = Path(tempfile.mkdtemp(prefix="st."))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(folder / "socket")],
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    atexit.register(_stop, process, folder, os.getpid())
    until = time.monotonic() + START_LIMIT_S
    while not (folder / "socket").exists():
        has_failed = process.poll() is not None or time.monotonic() > until
        assert not has_failed, (folder / "log").read_text()
        time.sleep(0.02)
    return str(folder / "socket")


def _stop(process: subprocess.Popen[bytes], folder: Path, started_by: int) -> None:
    if os.getpid() != started_by:
        return  # a test's own fork ends
    _server.cache_clear()  # a test may run these functions before the end
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
