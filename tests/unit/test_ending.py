"""What is told of the exception that ended a process."""

from __future__ import annotations

import errno
import gc
import sys
import weakref
from types import SimpleNamespace

import pytest

from steptime.guest.watchers.ending import (
    TracebackEntry,
    find_error,
    find_phase,
    read_request,
    shorten,
    tell_error,
)

FOLDER = "/packages/torch/"
TORCH = SimpleNamespace(__file__=f"{FOLDER}__init__.py")
GIB = 1 << 30

CPU_TEXT = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)"
)
CUDA_TEXT = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.25 GiB is free."
)
WORKER_TEXT = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/project/data.py", line 27, in __getitem__
    raise ValueError("a bad row")
ValueError: a bad row
"""


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.fixture
def end_by(monkeypatch: pytest.MonkeyPatch):
    """Ends the process by an exception, as far as the interpreter's notes go."""

    def end(error: BaseException, *, cause: BaseException | None = None):
        try:
            raise error from cause
        except BaseException as raised:
            monkeypatch.setattr(sys, "last_value", raised, raising=False)
        return tell_error(TORCH, find_error()).get("error")

    return end


# -- what it was


def test_an_exception_is_told_with_its_place(end_by) -> None:
    found = end_by(ValueError("no such thing"))
    assert (found["type"], found["text"]) == ("ValueError", "no such thing")
    assert found["file"] == __file__
    assert found["line"] > 1
    assert found["phase"] == "other"
    assert (found["is_memory"], found["requested_bytes"]) == (False, None)


def test_a_process_that_ends_in_order_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    assert tell_error(TORCH, find_error()) == {}


def test_an_exit_by_plan_is_no_error(end_by) -> None:
    assert end_by(SystemExit(3)) is None


def test_an_interrupt_is_told_and_is_no_want_of_memory(end_by) -> None:
    found = end_by(KeyboardInterrupt("out of memory"))
    assert (found["type"], found["is_memory"]) == ("KeyboardInterrupt", False)


def test_what_a_child_of_multiprocessing_dies_of_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    found = {}
    try:
        try:
            raise ValueError("in a child")
        finally:
            found = tell_error(TORCH, find_error())
    except ValueError:
        pass
    assert found["error"]["text"] == "in a child"


def test_what_its_starter_caught_shows_behind_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    found = {}
    try:
        try:
            raise ValueError("in a child")
        except ValueError:
            try:
                sys.exit(1)
            finally:
                found = tell_error(TORCH, find_error())
    except SystemExit:
        pass
    assert found["error"]["text"] == "in a child"


def test_an_exit_with_success_inside_a_handler_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    found = None
    try:
        raise ValueError("handled")
    except ValueError:
        try:
            sys.exit(0)
        except SystemExit:
            found = tell_error(TORCH, find_error())
    assert found == {}


def test_a_long_message_is_cut(end_by) -> None:
    assert len(end_by(ValueError("x" * 10_000))["text"]) == 300


def test_no_reference_to_the_exception_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class TracedError(Exception):
        """Can be weakly referenced."""

    def end() -> weakref.ref[TracedError]:
        error = TracedError("gone")
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        tell_error(TORCH, find_error())
        monkeypatch.setattr(sys, "last_value", None)
        return weakref.ref(error)

    found = end()
    gc.collect()
    monkeypatch.undo()
    assert found() is None


# -- memory


@pytest.mark.parametrize(
    ("error", "requested"),
    [
        (RuntimeError(CPU_TEXT), 4503599627370496),
        (OutOfMemoryError(CUDA_TEXT), round(2.5 * GIB)),
        (RuntimeError("CUDA error: out of memory"), None),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), None),
        (MemoryError("Unable to allocate 8.00 GiB for an array with shape (1,)"), 8 * GIB),
        (MemoryError(), None),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_want_of_memory_is_told_with_what_was_asked_for(end_by, error, requested) -> None:
    found = end_by(error)
    assert found["is_memory"]
    assert found["requested_bytes"] == requested


def test_another_error_is_no_want_of_memory(end_by) -> None:
    assert not end_by(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))["is_memory"]
    assert not end_by(OSError(errno.ENOENT, "No such file"))["is_memory"]


def test_the_want_of_memory_behind_another_error_is_the_one_to_tell(end_by) -> None:
    found = end_by(RuntimeError("training failed"), cause=OutOfMemoryError(CUDA_TEXT))
    assert (found["type"], found["is_memory"]) == ("OutOfMemoryError", True)


def test_causes_in_a_circle_come_to_an_end(end_by) -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__ = second
    assert end_by(second, cause=first)["text"] == "second"


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        ("Tried to allocate 20.00 MiB (GPU 0; ...)", 20 << 20),
        ("Tried to allocate 512 bytes.", 512),
        ("you tried to allocate 12 bytes.", 12),
        ("nothing of the kind", None),
    ],
)
def test_a_message_says_how_much_was_asked_for(text: str, requested: int | None) -> None:
    assert read_request(text) == requested


# -- workers


def test_of_a_workers_traceback_the_first_and_last_line_stay() -> None:
    assert shorten(WORKER_TEXT) == (
        "Caught ValueError in DataLoader worker process 0. ValueError: a bad row"
    )


def test_an_exception_of_a_worker_is_told_with_the_workers_place(end_by) -> None:
    found = end_by(ValueError(WORKER_TEXT))
    assert (found["file"], found["line"]) == ("/home/me/project/data.py", 27)
    assert found["phase"] == "input_wait"


# -- phases

CALL = ("nn/modules/module.py", "_call_impl")
STEP = ("optim/optimizer.py", "wrapper")


@pytest.mark.parametrize(
    ("inner", "phase"),
    [
        ([], "other"),
        ([CALL, CALL, "model.py"], "forward"),
        ([CALL, "model.py", CALL, ("nn/modules/linear.py", "forward")], "forward"),
        ([CALL, CALL, ("nn/modules/loss.py", "forward")], "loss"),
        ([CALL, "model.py", CALL, ("nn/modules/loss.py", "forward")], "forward"),
        ([("nn/functional.py", "cross_entropy")], "loss"),
        ([("nn/functional.py", "mse_loss")], "loss"),
        ([("nn/functional.py", "linear")], "other"),
        ([("_tensor.py", "backward"), ("autograd/__init__.py", "backward")], "backward"),
        ([("autograd/__init__.py", "backward"), "model.py", CALL], "backward"),
        ([("autograd/function.py", "apply"), "model.py"], "other"),
        ([STEP, ("utils/_contextlib.py", "decorate_context"), "lion.py"], "optimizer"),
        ([STEP, ("optim/lbfgs.py", "step"), "train.py", CALL, "model.py"], "forward"),
        ([("utils/data/dataloader.py", "__next__"), "data.py"], "input_wait"),
        ([("nn/utils/clip_grad.py", "clip_grad_norm_")], "gradient_processing"),
        ([("distributed/distributed_c10d.py", "all_reduce")], "communication"),
        ([("distributed/distributed_c10d.py", "init_process_group")], "other"),
        ([("serialization.py", "save")], "checkpoint"),
        ([("serialization.py", "load")], "other"),
    ],
)
def test_the_phase_is_read_from_torchs_frames(inner, phase: str) -> None:
    frames = [TracebackEntry("/home/me/train.py", 1, "main")]
    for one in inner:
        path, name = (f"/home/me/{one}", "f") if isinstance(one, str) else (FOLDER + one[0], one[1])
        frames.append(TracebackEntry(path, 1, name))
    assert find_phase(frames, FOLDER) == phase
