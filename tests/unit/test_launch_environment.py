"""What the launcher decides before a process starts: the executable and the environment."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.core.executable import (
    NotStarted,
    find_executable,
    need_executable,
    why_not_started,
)
from steptime.core.process_end import ProcessEnd, RunState
from steptime.errors import NotStartedError
from steptime.launch import signal_witness, user_command
from steptime.launch.shims import write_shims
from steptime.launch.user_command import observed_environment


def test_a_group_signal_is_known_as_one_however_late_the_witness_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, ping = iter(range(1000)), signal_witness._PING
    heard = [signal_witness._HEARD.pack(*pair) for pair in ((10, 7), (ping, 1)) * 2]
    system = SimpleNamespace(kill=lambda *_: None, read=lambda *_: heard.pop(0))
    clock = SimpleNamespace(monotonic=lambda: float(next(now_s)), sleep=lambda _: None)
    monkeypatch.setattr(signal_witness, "os", system)
    monkeypatch.setattr(signal_witness, "time", clock)
    monkeypatch.setattr(signal_witness.select, "select", lambda *_: ([0], [], []))
    witness = object.__new__(signal_witness.SignalWitness)
    witness.pid = witness.pipe = 0
    witness.heard = {}

    assert witness.is_for_all(10, 7)
    assert not witness.is_for_all(12, 7)


def write_program(path: Path, *, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


def test_a_name_is_looked_up_on_the_path_in_order(tmp_path: Path) -> None:
    write_program(tmp_path / "a" / "train", mode=0o644)
    second = write_program(tmp_path / "b" / "train")
    write_program(tmp_path / "c" / "train")
    path = f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c"
    assert find_executable("train", {"PATH": path}) == second


def test_a_name_with_a_slash_is_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "a" / "train")
    monkeypatch.chdir(tmp_path)
    assert find_executable("a/train", {"PATH": ""}) == "a/train"
    assert isinstance(find_executable("./train", {"PATH": f"{tmp_path}/a"}), NotStarted)


@pytest.mark.parametrize("name", ["", "train"])
def test_what_is_nowhere_is_127(name: str, tmp_path: Path) -> None:
    found = find_executable(name, {"PATH": str(tmp_path)})
    assert found == NotStarted(exit_code=127, reason="was not found")


def test_what_is_there_but_cannot_be_run_is_126(tmp_path: Path) -> None:
    write_program(tmp_path / "train", mode=0o644)
    (tmp_path / "folder").mkdir()
    search = {"PATH": str(tmp_path)}
    assert find_executable("train", search) == NotStarted(exit_code=126, reason="is not executable")
    assert find_executable("folder", search) == NotStarted(exit_code=126, reason="is a folder")


def test_the_users_variables_stay_and_ours_are_added(tmp_path: Path) -> None:
    theirs = {"HOME": "/home/me", "PATH": "/usr/bin", "STEPTIME_RUN": "/an/outer/run"}
    ours = observed_environment(theirs, tmp_path)
    assert ours == {
        "HOME": "/home/me",
        "PATH": f"{tmp_path}/shims:/usr/bin",
        "PYTHONPATH": str(user_command.SITE),
        "STEPTIME_RUN": str(tmp_path),
        "STEPTIME_GUEST": str(user_command.GUEST),
    }


def test_a_wish_about_a_run_around_this_one_is_not_handed_on(tmp_path: Path) -> None:
    wishes = {"STEPTIME_PROFILE": "torch,30,", "STEPTIME_HEALTH": "1"}
    assert not wishes.keys() & observed_environment(wishes, tmp_path).keys()


def test_an_unset_path_stays_unset(tmp_path: Path) -> None:
    assert "PATH" not in observed_environment({}, tmp_path)
    assert not (tmp_path / "shims").exists()


def test_an_empty_path_goes_on_meaning_the_current_folder(tmp_path: Path) -> None:
    assert observed_environment({"PATH": ""}, tmp_path)["PATH"] == f"{tmp_path}/shims:"


def test_a_package_below_a_folder_with_a_colon_cannot_bring_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_command, "SITE", tmp_path / "a:b")
    ours = observed_environment({"PATH": "/usr/bin", "PYTHONPATH": "/a"}, tmp_path)
    assert (ours["PATH"], ours["PYTHONPATH"]) == ("/usr/bin", "/a")


def test_shims_are_programs_named_as_the_interpreters_on_the_path(tmp_path: Path) -> None:
    write_program(tmp_path / "bin" / "python3")
    write_program(tmp_path / "bin" / "python3.12")
    write_program(tmp_path / "bin" / "python", mode=0o644)
    (tmp_path / "bin" / "python3.13").mkdir()
    search = [str(tmp_path / "bin"), "", "/no/such/folder"]
    assert write_shims(tmp_path / "shims", tmp_path, search) == ("python3", "python3.12")
    assert (tmp_path / "shims" / "python3").stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (ProcessEnd(state=RunState.FINISHED, exit_code=0), 0),
        (ProcessEnd(state=RunState.FAILED, exit_code=3), 3),
        (ProcessEnd(state=RunState.KILLED, signal=9), 137),
    ],
)
def test_the_exit_code_is_that_of_a_shell(end: ProcessEnd, code: int) -> None:
    assert user_command.shell_exit_code(end) == code


@pytest.mark.parametrize(
    ("initial", "passed_on"),
    [(b"LC_CTYPE=C\0A=1\0", "C"), (b"A=1\0", None), (None, "C.UTF-8")],
)
def test_the_locale_that_is_passed_on_is_the_users(
    initial: bytes | None, passed_on: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Path) -> bytes:
        if initial is None:
            raise FileNotFoundError
        return initial

    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    monkeypatch.setattr(Path, "read_bytes", read)
    assert user_command.user_environment().get("LC_CTYPE") == passed_on


def test_a_script_named_as_a_command_is_an_error_that_names_its_interpreter() -> None:
    with pytest.raises(NotStartedError, match=r"`train\.py` was not found") as caught:
        need_executable(("train.py", "--lr", "3"), {"PATH": ""})

    assert caught.value.exit_code == 127
    assert caught.value.hint == "Name its interpreter: python train.py --lr 3"


@pytest.mark.parametrize(("number", "code"), [(errno.ENOENT, 127), (errno.EACCES, 126)])
def test_what_the_kernel_refuses_to_run_has_the_code_of_a_shell(number: int, code: int) -> None:
    assert why_not_started(OSError(number, "why")).exit_code == code
