"""Stacks from outside: what py-spy writes, why there may be none, and what the kernel says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from steptime.launch.user_command import GUEST
from steptime.watch.stalls import process_stacks
from steptime.watch.stalls.process_stacks import (
    KernelState,
    describe_kernel,
    explain_refusal,
    name_syscall,
    probe_process,
    read_kernel,
    read_threads,
)

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="/proc as on Linux")


def make_thread(number: int, *files: str, name: str = "MainThread") -> dict[str, Any]:
    frames = [{"name": "f", "filename": file, "line": 7} for file in files]
    return {
        "pid": 10,
        "thread_id": 1,
        "thread_name": name,
        "os_thread_id": number,
        "active": False,
        "frames": frames,
    }


def test_the_main_thread_comes_first_and_frames_of_ours_are_left_out() -> None:
    ours = f"{GUEST}{os.sep}hooks.py"
    document = {"threads": [make_thread(12, "/a/b.py", name="x"), make_thread(10, ours, "/a/t.py")]}

    main, other = read_threads(document, 10)

    assert (main.is_main, main.is_active, other.is_main) == (True, False, False)
    assert [frame.file for frame in main.frames] == ["/a/t.py"]
    assert other.thread == "x"


def test_a_document_of_another_shape_is_no_stack_and_no_failure() -> None:
    (found,) = read_threads({"threads": [None, {"frames": [3]}, {}]}, 10)

    assert found.missing is not None
    assert "no thread" in found.missing


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Permission Denied: Try running again with elevated permissions", "not permitted"),
        ("Error: Failed\n\nCaused by:\n  Operation not permitted (os error 1)", "not permitted"),
        ("\nError: Unsupported version of Python: 3.99\nStack", "py-spy: Error: Unsupported"),
        ("", "no reason given"),
    ],
)
def test_why_there_is_no_stack_is_a_sentence(text: str, says: str) -> None:
    found = explain_refusal(text)

    assert says in found
    assert "\n" not in found


def test_a_limit_of_the_kernel_on_tracing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_stacks, "_read_text", lambda _: "1")

    assert "kernel.yama.ptrace_scope is 1" in explain_refusal("permission denied")


@needs_proc
def test_without_py_spy_there_is_the_reason_and_what_the_kernel_says() -> None:
    probe = probe_process(os.getpid(), run=lambda _: process_stacks.NOT_INSTALLED)

    (stack,) = probe.threads
    assert probe.main is None
    assert not probe.is_gone
    assert stack.missing is not None
    assert "pip install py-spy" in stack.missing
    assert "the kernel says it is running" in stack.missing
    assert probe.cpu_s > 0


@needs_proc
def test_a_process_that_has_ended_says_so_and_is_not_asked() -> None:
    def fail(_: int) -> str:
        raise AssertionError("asked")

    probe = probe_process(2**22 + 1, run=fail)

    assert probe.is_gone
    assert probe.threads[0].missing == "the process has ended"


@needs_proc
def test_a_file_is_told_from_a_pipe(tmp_path: Path) -> None:
    file = (tmp_path / "x").open("w")
    reader, writer = os.pipe()
    try:
        assert process_stacks._is_file(os.getpid(), hex(file.fileno()))
        assert not process_stacks._is_file(os.getpid(), hex(reader))
        assert not process_stacks._is_file(os.getpid(), "rubbish")
    finally:
        file.close()
        os.close(reader)
        os.close(writer)


@needs_proc
def test_the_kernel_tells_of_our_own_main_thread() -> None:
    assert read_kernel(os.getpid()).state == "R"
    assert read_kernel(2**22 + 1) == KernelState()


def test_system_calls_have_names_where_they_are_known() -> None:
    assert name_syscall("230", "x86_64") == "clock_nanosleep"
    assert name_syscall("98", "aarch64") == "futex"
    assert name_syscall("12345", "x86_64") == "system call 12345"
    assert name_syscall("running", "x86_64") is None
    assert name_syscall("-1", "x86_64") is None


def test_the_kernels_word_is_a_sentence() -> None:
    kernel = KernelState(state="S", wchan="futex_wait_queue", syscall="futex")

    assert describe_kernel(kernel) == "the kernel says it is asleep in futex (futex_wait_queue)"


def test_py_spy_is_found_beside_the_package_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> Any:
        raise process_stacks.PackageNotFoundError

    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(process_stacks, "distribution", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process_stacks.find_py_spy() == str(program)
    monkeypatch.setenv("PATH", "")
    assert process_stacks.find_py_spy() is None
    assert process_stacks._dump(1) == process_stacks.NOT_INSTALLED
