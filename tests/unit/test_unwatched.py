"""Pythons in which no guest was seen, with processes of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steptime.watch.host.unwatched import Unwatched, UnwatchedFinder


class FakeProcesses:
    """A run folder and a /proc with what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.run, self.proc = folder / "run", folder / "proc"
        self.run.mkdir()
        self.layouts: dict[int, int] = {}
        self.finder = UnwatchedFinder(self.run, proc=self.proc)

    def add(
        self,
        pid: int,
        *command: str,
        name: str = "python3.11",
        layout: int = 0,
        run: Path | None = None,
        inner: str = "",
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(parents=True)
        (folder / "exe").symlink_to(f"/usr/bin/{name}")
        (folder / "cmdline").write_bytes(b"".join(w.encode() + b"\0" for w in command))
        environ = b"A=1\0" + (b"" if run is None else f"STEPTIME_RUN={run}\0".encode())
        (folder / "environ").write_bytes(environ)
        (folder / "status").write_text(f"Name:\tpython\nNSpid:\t{pid} {inner}\n")
        self.layouts[pid] = layout

    def announce(self, pid: int, *argv: str, kind: str = "start") -> None:
        with (self.run / "processes.jsonl").open("a") as file:
            file.write(json.dumps({"k": kind, "pid": pid, "argv": argv}) + "\n")

    def poll(self, times: int = 1) -> list[int]:
        """The processes that were found in so many looks."""
        return [found.pid for _ in range(times) for found in self.finder.find(self.layouts)]


@pytest.fixture
def processes(tmp_path: Path) -> FakeProcesses:
    return FakeProcesses(tmp_path)


def test_a_silent_python_is_found_once_at_its_third_sample(processes: FakeProcesses) -> None:
    processes.add(7, "python", "-I", "x.py")
    assert [processes.poll() for _ in range(4)] == [[], [], [7], []]


def test_its_name_is_that_of_its_interpreter(processes: FakeProcesses) -> None:
    processes.add(7, "train", name="python3.12 (deleted)")
    processes.poll(2)
    assert processes.finder.find(processes.layouts) == [Unwatched(pid=7, name="python3.12")]


@pytest.mark.parametrize("kind", ["start", "old"])
def test_one_that_said_that_it_began_is_not_found(processes: FakeProcesses, kind: str) -> None:
    processes.add(7, "python", "x.py")
    processes.poll(2)
    processes.announce(7, "python", "x.py", kind=kind)
    assert processes.poll(3) == []


def test_a_line_that_is_being_written_is_read_when_it_is_whole(processes: FakeProcesses) -> None:
    processes.add(7, "python", "x.py")
    file = processes.run / "processes.jsonl"
    file.write_text('not json\n{"k": "start", "pi')
    processes.poll(2)
    with file.open("a") as more:
        more.write('d": 7, "argv": []}\n')
    assert processes.poll(2) == []


def test_other_programs_are_not_found(processes: FakeProcesses) -> None:
    processes.add(7, "bash", "train.sh", name="bash")
    processes.layouts[8] = 0  # it ended while we looked
    assert processes.poll(4) == []


def test_a_shell_that_becomes_a_python_is_found(processes: FakeProcesses) -> None:
    processes.add(7, "bash", "-c", "exec python -I x.py", name="bash")
    processes.poll(5)
    (processes.proc / "7" / "exe").unlink()
    (processes.proc / "7" / "exe").symlink_to("/usr/bin/python3")
    assert processes.poll(3) == [7]


def test_a_fork_of_a_watched_process_writes_nothing_by_design(processes: FakeProcesses) -> None:
    processes.announce(7, "python", "x.py")
    processes.add(7, "python", "x.py", layout=1234)
    processes.add(8, "python: a title of its own", layout=1234)
    assert processes.poll(4) == []


def test_a_fork_whose_mother_is_gone_is_known_by_her_command(processes: FakeProcesses) -> None:
    processes.announce(7, "python", "x.py")
    processes.add(8, "python", "x.py", layout=1234)
    assert processes.poll(4) == []


def test_layouts_that_are_not_known_are_not_compared(processes: FakeProcesses) -> None:
    processes.announce(7, "python", "x.py")
    processes.add(7, "python", "x.py")
    processes.add(8, "python", "-I", "y.py")
    assert processes.poll(4) == [8]


def test_a_process_of_a_run_inside_this_one_is_not_ours(processes: FakeProcesses) -> None:
    processes.add(7, "python", "x.py", run=Path("/elsewhere"))
    processes.add(8, "python", "-I", "x.py", run=processes.run)
    assert processes.poll(4) == [8]


def test_a_guest_that_knows_itself_by_another_id_is_not_missed(processes: FakeProcesses) -> None:
    processes.announce(2, "python", "x.py")
    processes.add(7, "python", "y.py", inner="2")
    assert processes.poll(4) == []


def test_nobody_is_blamed_when_the_file_is_full(processes: FakeProcesses) -> None:
    (processes.run / "processes.jsonl").write_bytes(b"{}\n" * (1 << 19))
    processes.add(7, "python", "x.py")
    assert processes.poll(4) == []


def test_an_id_that_is_used_again_is_looked_at_again(processes: FakeProcesses) -> None:
    processes.add(7, "python", "-I", "x.py")
    assert processes.poll(3) == [7]
    layouts, processes.layouts = processes.layouts, {}
    processes.poll()
    processes.layouts = layouts
    assert processes.poll(3) == [7]
