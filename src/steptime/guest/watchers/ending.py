"""The exception that ended the process, as words and numbers.

It is read at the exit from `sys.last_value`, which Python sets before it prints a traceback;
`sys.excepthook` is left to the script. No reference to the exception or to a frame is kept.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from ..frameworks.torch.distributed import COLLECTIVES
from ..sites.file_owners import FileOwners

MAX_TEXT = 300
MAX_CAUSES = 10
"""Exceptions may be chained in a circle, so the search must end."""

MEMORY_TYPES = ("OutOfMemoryError",)
MEMORY_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "defaultcpuallocator",
    "status_alloc_failed",  # cuBLAS and cuDNN
)
_REQUEST = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?(bytes|[KMGTP]iB)", re.IGNORECASE)
_UNITS = {"bytes": 0, "kib": 1, "mib": 2, "gib": 3, "tib": 4, "pib": 5}
_FRAME_IN_TEXT = re.compile(r'^ *File "([^"]+)", line (\d+), in (.*)$', re.MULTILINE)

MODULE_CALL = "nn/modules/module.py"
_PHASES = (
    ("utils/data/", None, "input_wait"),
    ("autograd/__init__.py", ("backward", "grad"), "backward"),
    ("_tensor.py", ("backward",), "backward"),
    ("optim/", None, "optimizer"),
    ("nn/modules/loss.py", None, "loss"),
    ("nn/utils/clip_grad.py", None, "gradient_processing"),
    ("distributed/distributed_c10d.py", COLLECTIVES, "communication"),
    ("serialization.py", ("save",), "checkpoint"),
)
"""A file below torch's folder, functions in it (None: any), and the phase that they mean."""


class TracebackEntry(NamedTuple):
    """One entry of a traceback."""

    file: str
    line: int
    name: str


def tell_error(torch: Any, error: BaseException | None) -> dict[str, Any]:
    """Return the `error` of the exit line; nothing where no exception ended the process."""
    if error is None:
        return {}
    error = find_cause(error)
    text = str(error)
    frames = list(read_frames(error.__traceback__, text))
    places = FileOwners(torch)
    where = places.innermost((frame.file, frame.line) for frame in frames)
    return {
        "error": {
            "type": type(error).__name__,
            "text": shorten(text),
            "file": where[0] if where else None,
            "line": where[1] if where else None,
            "phase": find_phase(frames, places.torch_folder) if frames else None,
            "is_memory": is_memory(error),
            "requested_bytes": read_request(text),
        }
    }


def find_error() -> BaseException | None:
    """Return the exception that ends the process, unless the process ends by plan.

    A child of multiprocessing writes its last lines while its exception propagates; the exception
    that its starter caught is the context of the exit that followed.
    """
    error: Any = getattr(sys, "last_value", None)
    if error is None:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit) and error.code:
            error = error.__context__
    if not isinstance(error, BaseException) or isinstance(error, SystemExit):
        return None
    return error


def find_cause(error: BaseException) -> BaseException:
    """Return the out-of-memory error that it was raised from, if any; otherwise itself."""
    cause: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if cause is None:
            break
        if is_memory(cause):
            return cause
        cause = cause.__cause__
    return error


def is_memory(error: BaseException) -> bool:
    """Return whether it says that memory ran out."""
    if isinstance(error, KeyboardInterrupt):
        return False
    if isinstance(error, MemoryError) or type(error).__name__ in MEMORY_TYPES:
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return any(words in text for words in MEMORY_TEXTS)


def read_request(text: str) -> int | None:
    """Return how many bytes could not be allocated, if the message says so."""
    found = _REQUEST.search(text)
    if found is None:
        return None
    return to_bytes(*found.groups())


def to_bytes(number: str, unit: str) -> int:
    """Return a size in bytes from torch's words for it: `2.00` and `GiB`."""
    return round(float(number.rstrip(".")) * (1 << 10 * _UNITS[unit.lower()]))


def shorten(text: str) -> str:
    """The message, cut; of a worker's traceback the first and the last line."""
    if "Original Traceback" in text:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        text = f"{lines[0]} {lines[-1]}"
    return text[:MAX_TEXT]


def read_frames(traceback: TracebackType | None, text: str) -> Iterator[TracebackEntry]:
    """The frames, outermost first; those of a worker stand in the message."""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield TracebackEntry(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    if "Original Traceback" in text:
        for file, line, name in _FRAME_IN_TEXT.findall(text):
            yield TracebackEntry(file, int(line), name)


def find_phase(frames: list[TracebackEntry], torch_folder: str) -> str:
    """Return the phase of the outermost frame of torch's that means one.

    Inside an optimizer's step, what its closure calls takes precedence.
    """
    inside_optimizer = False
    for number, frame in enumerate(frames):
        if not frame.file.startswith(torch_folder):
            continue
        path = below(frame, torch_folder)
        phase = phase_in(path, frame.name)
        if path == MODULE_CALL:
            called = (below(later, torch_folder) for later in frames[number + 1 :])
            path = next((path for path in called if path != MODULE_CALL), "")
            phase = phase_in(path, "") if path == "nn/modules/loss.py" else "forward"
        if phase == "optimizer":
            inside_optimizer = True
        elif phase is not None:
            return phase
    return "optimizer" if inside_optimizer else "other"


def below(frame: TracebackEntry, torch_folder: str) -> str:
    """Return the file's name in torch's folder, with slashes; meaningless for other files."""
    return frame.file[len(torch_folder) :].replace(os.sep, "/")


def phase_in(path: str, name: str) -> str | None:
    """Return the phase that a function of torch's means."""
    if path == "nn/functional.py":
        is_loss = name.endswith("_loss") or "entropy" in name or name == "kl_div"
        return "loss" if is_loss else None
    for start, names, phase in _PHASES:
        if path.startswith(start) and (names is None or name in names):
            return phase
    return None
