"""Runs what is in `child` in a process of the user's Python, and reads its lines.

In: the interpreter and a request. Out: each line of JSON as it comes, and how the process ended.
The process has a group of its own, and nothing of it is left at the end, whatever ends us.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

FOLDER = Path(__file__).resolve().parent / "child"

# No name of ours, and no name in the current folder, can shadow one of the user's.
BOOT = """\
import sys
sys.path[:] = [place for place in sys.path if place]
if sys.version_info < (3, 10):
    print('{"k": "missing", "missing": "old_python", "detail": "%d.%d"}' % sys.version_info[:2])
    sys.exit()
import importlib, importlib.util, json
folder, name = sys.argv[1], "_steptime_machine"
kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
spec = importlib.util.spec_from_file_location(
    name, folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])
bench = importlib.import_module(name + ".ceiling_bench")
sys.dont_write_bytecode = kept
bench.main(json.loads(sys.argv[2]), [sys.executable] + sys.orig_argv[1:-1])
"""

_TICK_S = 0.25
_MAX_WORDS = 2000

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How it ended: exit code (negative: a signal), whether its time was up, and last words."""

    exit_code: int | None
    is_late: bool
    last_words: str


def run_child(
    python: str,
    request: Mapping[str, Any],
    *,
    folder: Path,
    environment: Mapping[str, str],
    limit_s: float,
    on_line: Callable[[Line], None],
    tick: Callable[[], None] = lambda: None,
) -> ChildEnd:
    """Run it to its end or to the limit.

    Args:
        python: the interpreter.
        request: for `child.ceiling_bench.main`.
        folder: a folder of ours only, where its standard error is kept.
        environment: of the process.
        limit_s: the time after which it is killed.
        on_line: gets each line.
        tick: called a few times a second.
    """
    words = [python, "-c", BOOT, str(FOLDER), json.dumps(request)]
    with (folder / "stderr").open("w+b") as stderr:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            is_late = _listen(child, limit_s, on_line, tick)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return ChildEnd(exit_code=child.returncode, is_late=is_late, last_words=_last_words(stderr))


def _listen(
    child: subprocess.Popen[bytes],
    limit_s: float,
    on_line: Callable[[Line], None],
    tick: Callable[[], None],
) -> bool:
    """Read all lines; return whether the limit came first."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    assert child.stdout is not None
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        tick()
        with suppress(queue.Empty):
            text = lines.get(timeout=_TICK_S)
            if text is None:
                # It closed its output at its end; what is left to do is short.
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=max(_TICK_S, until_s - time.monotonic()))
                return child.poll() is None
            with suppress(ValueError):  # a line that is cut short
                line = json.loads(text)
                if isinstance(line, dict):
                    on_line(line)
    return True


def _read(stdout: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with suppress(OSError, ValueError), stdout:
        for line in stdout:
            lines.put(line)
    lines.put(None)


def _last_words(stderr: IO[bytes]) -> str:
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _MAX_WORDS))
    lines = stderr.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
