"""What a process has started, as the kernel tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from steptime.record.live import process_identity
from steptime.record.live.process_identity import children, descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# Prints its own id and that of what it has started, then waits for the end of its input.
SCRIPT = "sleep 60 <&- >&- & echo $$ $!; read line; kill $!"


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A child of this process, and what that has started."""
    words = ("sh", "-c", SCRIPT)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        pid, below = map(int, child.stdout.readline().split())
        yield pid, below
        child.communicate(b"\n")


def test_children_are_those_that_a_process_has_started_itself(family: tuple[int, int]) -> None:
    pid, below = family
    assert pid in children(os.getpid())
    assert below not in children(os.getpid())
    assert children(pid) == [below]
    assert children(below) == []


def test_descendants_are_all_below_the_nearest_first(family: tuple[int, int]) -> None:
    pid, below = family
    found = descendants(os.getpid())
    assert found.index(pid) < found.index(below)
    assert os.getpid() not in found
    assert descendants(pid) == [below]


def test_a_kernel_without_lists_of_children_is_asked_for_all_processes(
    family: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, below = family

    def refuse(path: str) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(process_identity, "_read_whole", refuse)
    assert children(pid) == [below]


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen(("true",)) as child:
        child.wait()
    assert children(child.pid) == []
    assert descendants(child.pid) == []
