"""Waits for other processes: what is timed, and who is found behind a pipe or a socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptime.guest.hooks.wait_hooks import of_descriptor, of_poll, of_socket, waiting
from steptime.guest.timeline.journal import Journal
from steptime.guest.timeline.recorder import Recorder
from steptime.guest.watchers.awaited_processes import (
    LOOKED_UP_NS,
    MAX_KNOWN,
    WRITTEN_EVERY_S,
    AwaitedProcesses,
    describe,
    peers_of,
)
from steptime.record.buckets import BUCKETS, FORWARD, OTHER, PROCESS_WAIT

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


# -- what is timed


class Script:
    """A process whose calls that wait are made up, on a clock advanced by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = 0
        self.recorder = Recorder(str(folder), lambda: {"rank": 0})
        self.journal = Journal(self.recorder, clock=lambda: self.now, cpu_clock=lambda: 0)
        self.context: Any = SimpleNamespace(
            recorder=self.recorder,
            is_worker=False,
            local=SimpleNamespace(journal=self.journal),
            guarded=lambda place, act, *args: act(*args),
        )
        self.book = AwaitedProcesses(self.recorder)

    def receive(self, blocks: bool = True) -> int:  # noqa: FBT001, FBT002
        self.now += 50
        return self.journal.top

    def hooked(self, awaited: Any = None) -> Any:
        answer = ("queue", list)
        return waiting(
            self.context, self.book, self.receive, awaited or (lambda args, kwargs: answer)
        )

    def found(self) -> dict[str, int]:
        self.journal.replay()
        return {n: ns for n, ns in zip(BUCKETS, self.journal.timeline.wall, strict=False) if ns}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_a_call_that_waits_is_timed_and_booked(script: Script) -> None:
    assert script.hooked()() == PROCESS_WAIT
    assert script.journal.top == OTHER
    assert script.found() == {"process_wait": 50}
    assert script.book.waits["queue"].num == 1


def test_a_call_inside_another_marker_belongs_to_it(script: Script) -> None:
    script.journal.note(FORWARD, FORWARD)

    assert script.hooked()() == FORWARD
    assert not script.book.waits


def test_a_call_that_does_not_block_is_left_alone(script: Script) -> None:
    assert script.hooked(lambda args, kwargs: None)() == OTHER
    assert script.found() == {}


def test_a_call_after_the_last_lines_is_left_alone(script: Script) -> None:
    script.recorder.is_closed = True

    assert script.hooked()() == OTHER


def test_other_threads_wait_beside_the_training(script: Script) -> None:
    tops: list[int] = []
    thread = threading.Thread(target=lambda: tops.append(script.hooked()()))
    thread.start()
    thread.join()

    assert tops == [OTHER]
    assert script.found() == {}


def test_what_a_call_raises_passes_and_is_timed(script: Script) -> None:
    def receive() -> None:
        script.now += 50
        raise EOFError

    wait = waiting(script.context, script.book, receive, lambda args, kwargs: ("queue", list))
    with pytest.raises(EOFError):
        wait()

    assert script.found() == {"process_wait": 50}


def test_a_closed_descriptor_is_the_calls_own_affair(script: Script) -> None:
    closed, _ = os.pipe()
    os.close(closed)
    os.close(_)

    assert script.hooked(lambda args, kwargs: of_descriptor(closed))() == OTHER
    assert script.recorder.failures == {}


@pytest.mark.parametrize(
    ("timeout", "expected"), [((), False), ((0,), False), ((0.5,), True), ((None,), True)]
)
def test_a_look_waits_if_it_has_time(
    timeout: tuple[float | None, ...],
    expected: bool,  # noqa: FBT001
) -> None:
    reader, writer = os.pipe()
    try:
        found = of_poll((SimpleNamespace(_handle=reader), *timeout), {})
    finally:
        os.close(reader)
        os.close(writer)

    assert (found is not None) is expected


def test_a_socket_that_does_not_block_is_left_alone() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert of_socket((here,), {}) is not None
        here.setblocking(False)
        assert of_socket((here,), {}) is None


# -- what is written


def test_who_is_behind_is_looked_up_once_and_late(tmp_path: Path) -> None:
    now = [0.0]
    book = AwaitedProcesses(Recorder(str(tmp_path), dict), clock=lambda: now[0])
    looks: list[int] = []

    def look_up() -> list[dict[str, Any]]:
        looks.append(1)
        return [{"pid": 7, "command": "python actor.py", "name": None}]

    book.add(3, LOOKED_UP_NS // 2, look_up)
    assert book.poll(OTHER, is_last=False) == ""
    book.add(3, LOOKED_UP_NS, look_up)
    book.add(3, LOOKED_UP_NS, look_up)
    line = json.loads(book.poll(OTHER, is_last=False))

    assert len(looks) == 1
    assert line["k"] == "pw"
    assert line["processes"] == [
        {"pid": 7, "command": "python actor.py", "name": None, "num": 3, "total_s": 0.125}
    ]
    book.add(3, 1, look_up)
    assert book.poll(OTHER, is_last=False) == ""
    now[0] = WRITTEN_EVERY_S
    assert json.loads(book.poll(OTHER, is_last=False))["processes"][0]["num"] == 4
    assert book.poll(OTHER, is_last=True) == ""


def test_a_process_is_one_however_little_a_later_wait_knows_of_it(tmp_path: Path) -> None:
    book = AwaitedProcesses(Recorder(str(tmp_path), dict))
    feeder = {"pid": 7, "command": "python actor.py", "name": "feeder"}

    book.add(3, LOOKED_UP_NS, lambda: [feeder])
    book.add(4, LOOKED_UP_NS, lambda: [{**feeder, "command": None}])  # it ends, and is waited for
    (found,) = json.loads(book.poll(OTHER, is_last=True))["processes"]

    assert found == {**feeder, "num": 2, "total_s": 0.1}


def test_memory_is_bounded(tmp_path: Path) -> None:
    book = AwaitedProcesses(Recorder(str(tmp_path), dict))
    for key in range(2 * MAX_KNOWN):
        book.add(key, 1, list)

    assert len(book.waits) == MAX_KNOWN


# -- who is behind


@pytest.fixture
def holder() -> Iterator[Any]:
    """Starts a process that holds a descriptor."""
    started: list[subprocess.Popen[bytes]] = []

    def start(fd: int) -> int:
        process = subprocess.Popen(["sleep", "60"], pass_fds=[fd])
        started.append(process)
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


@needs_proc
def test_a_pipes_writer_is_found_and_its_readers_are_not(holder: Any) -> None:
    reader, writer = os.pipe()
    pid, _ = holder(writer), holder(reader)
    os.close(writer)
    (found,) = peers_of(reader)
    os.close(reader)

    assert found == {"pid": pid, "command": "sleep 60", "name": None}


@needs_proc
def test_the_process_at_the_other_end_of_a_connection_is_found(holder: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    pid = holder(accepted.fileno())
    accepted.close()
    (found,) = peers_of(client.fileno())
    client.close()

    assert found["pid"] == pid


@needs_proc
def test_of_a_connection_that_nobody_seems_to_hold_the_address_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            (found,) = peers_of(client.fileno())

    assert found["pid"] is None
    assert found["address"].startswith("127.0.0.1:")


@needs_proc
def test_a_local_socket_says_who_made_it(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    code = f"""
import socket
server = socket.create_server({path!r}, family=socket.AF_UNIX)
print(flush=True)
server.accept()[0].recv(1)
"""
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            (found,) = peers_of(client.fileno())

    assert found["pid"] == process.pid


def test_a_process_that_has_ended_has_no_command() -> None:
    assert describe(1 << 30) == {"pid": 1 << 30, "command": None, "name": None}
