"""A reader in a process of its own that may die: some libraries crash on damaged files, or hang.

In: the class of a reader, a path, and options. Out: a `FormatReader` that asks the child, and one
error where the child dies. Each process has its own child, which starts again after a death.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from steptime.data.source import Column, Values
from steptime.data.sources.checked_source import FAILURES, sentence
from steptime.data.stored_bytes import DamagedBytesError
from steptime.data.tiers.fork_safe import ForkSafeLock
from steptime.errors import SteptimeError

PROCESSOR_S = 120
"""What one answer may take of a processor [s]: a batch takes a moment, a list of keys more."""
SPARE_BYTES = 8 << 30
"""Memory that the child may take beside a map of the file; a batch has 4 GiB at most."""

BOOT = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from steptime.data.sources.reader_child import serve; serve()"
)


class ReaderInChild:
    """See the module."""

    def __init__(self, kind: Callable[..., Any], path: str, *options: object) -> None:
        self._made_of = kind, path, options, PROCESSOR_S
        self._lock = ForkSafeLock()
        self._child: subprocess.Popen[bytes] | None = None
        self._process = 0
        head: tuple[str, tuple[Column, ...], int, int] = self._ask("head")
        self.name, self.columns, self.num_bytes, self._count = head

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._count

    def read(self, indices: NDArray[np.int64]) -> dict[str, Values]:
        """Return what the child reads."""
        found: dict[str, Values] = self._ask("read", indices)
        return found

    def place_of(self, index: int) -> str:
        """Return the file, and what the child knows of the sample."""
        return str(self._ask("place_of", index))

    def index(self) -> None:
        """The file has its own."""

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _ask(self, what: str, argument: object = None) -> Any:
        with self._lock:
            child = self._running()
            try:
                _send(child.stdin, (what, argument))
                answer = pickle.load(child.stdout)
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                raise DamagedBytesError(_last_word(self._end())) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _running(self) -> Any:
        if self._child is None or self._process != os.getpid():
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._process = os.getpid()
            weakref.finalize(self, _end, self._child, self._process)
            with suppress(OSError):  # it is dead already, which the answer tells
                _send(self._child.stdin, [place for place in sys.path if place])
                _send(self._child.stdin, self._made_of)
        return self._child

    def _end(self) -> int:
        code = 0 if self._child is None else _end(self._child, self._process)
        self._child = None
        return code


def _send(file: IO[bytes] | None, value: object) -> None:
    assert file is not None
    pickle.dump(value, file)
    file.flush()


def _end(child: subprocess.Popen[bytes], process: int) -> int:
    """End a child, if it is one of this process; return how it ended."""
    if process != os.getpid():
        return 0
    with suppress(subprocess.TimeoutExpired):  # one that closed its pipe is about to end
        child.wait(0.1 if child.poll() is None else 0)
    child.kill()
    with suppress(OSError, ValueError):
        child.communicate()
    return child.wait()


def _last_word(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"it is damaged: its library took more than {PROCESSOR_S} s of a processor for it"
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    return f"it is damaged: the process that read it by its library ended with {how}"


def serve() -> None:
    """Answer what is asked, until nothing more is: the life of the child."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    kind, path, options, most_s = pickle.load(requests)
    _limit(resource.RLIMIT_AS, os.path.getsize(path) + SPARE_BYTES)
    reader: Any = None
    with suppress(EOFError):
        while True:
            what, argument = pickle.load(requests)
            used = resource.getrusage(resource.RUSAGE_SELF)
            _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + most_s)
            try:
                reader = reader or kind(path, *options)
                answer = _answer(reader, what, argument)
            except (SteptimeError, DamagedBytesError) as error:
                answer = error
            except ImportError as error:
                answer = ImportError(sentence(error))
            except FAILURES as error:
                answer = DamagedBytesError(sentence(error))
            _send(answers, answer)


def _answer(reader: Any, what: str, argument: Any) -> Any:
    if what == "head":
        return reader.name, reader.columns, reader.num_bytes, len(reader)
    return getattr(reader, what)(argument)


def _limit(what: int, most: int) -> None:
    with suppress(OSError, ValueError):  # not everywhere
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
