"""What `command.json` says about where a run comes from."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from steptime.launch import origin
from steptime.launch.filesystems import find_places
from steptime.launch.origin import describe_run, read_git_revision, read_machine

REVISION = "3adf61e0c0ffee00c0ffee00c0ffee00c0ffee00"
SHORT = "3adf61e0c0ff"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_names_of_variables_are_kept_and_values_are_not() -> None:
    environment = {"TOKEN": "secret", "HOME": "/home/me"}
    record = describe_run("id", ("x",), environment=environment, started_unix_s=5.0)
    assert record.environment_names == ("HOME", "TOKEN")
    assert "secret" not in repr(record)
    assert (record.parent_pid, record.cwd) == (os.getpid(), os.getcwd())


def test_a_deleted_working_folder_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", fail)
    record = describe_run("id", ("x",), environment={}, started_unix_s=5.0)
    assert (record.cwd, record.git_revision) == (None, None)


def test_the_machine_is_known_without_its_name() -> None:
    machine = read_machine()
    assert machine.num_cores == os.cpu_count()
    assert machine.memory_bytes is not None
    assert machine.memory_bytes > 2**28
    assert platform.node() not in repr(machine)


def test_a_processor_without_a_name_is_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "open", fail)
    assert origin._cpu_model() == platform.machine()


def test_the_revision_is_that_of_the_branch(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "refs" / "heads" / "main", REVISION + "\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert read_git_revision(below) == SHORT


def test_a_detached_head_is_the_revision(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", REVISION + "\n")
    assert read_git_revision(tmp_path) == SHORT


def test_a_packed_branch_is_found(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "packed-refs", f"# pack-refs\n{REVISION} refs/heads/main\n")
    assert read_git_revision(tmp_path) == SHORT


def test_a_worktree_shares_the_branches_of_its_repository(tmp_path: Path) -> None:
    write(tmp_path / "main" / ".git" / "refs" / "heads" / "topic", REVISION)
    git = tmp_path / "main" / ".git" / "worktrees" / "topic"
    write(git / "HEAD", "ref: refs/heads/topic\n")
    write(git / "commondir", "../..\n")
    write(tmp_path / "topic" / ".git", f"gitdir: {git}\n")
    assert read_git_revision(tmp_path / "topic") == SHORT


@pytest.mark.parametrize("head", [None, "ref: refs/heads/main\n"])
def test_a_repository_without_a_commit_has_no_revision(tmp_path: Path, head: str | None) -> None:
    (tmp_path / ".git").mkdir()
    if head is not None:
        write(tmp_path / ".git" / "HEAD", head)
        write(tmp_path / ".git" / "packed-refs", "# pack-refs\n")
    assert read_git_revision(tmp_path) is None


def test_a_damaged_head_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert read_git_revision(tmp_path) is None


def test_values_are_kept_of_a_short_list_alone() -> None:
    environment = {"OMP_NUM_THREADS": "2", "API_KEY": "secret", "LD_PRELOAD": "x" * 1000}

    record = describe_run("id", ("x",), environment=environment, started_unix_s=5.0)

    assert record.environment == {"OMP_NUM_THREADS": "2", "LD_PRELOAD": "x" * 200}
    assert "secret" not in repr(record)


def test_the_list_names_nothing_that_could_be_a_secret() -> None:
    words = {"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS", "AUTH", "URL", "PROXY"}

    assert not [name for name in origin.TOLD_VARIABLES if words & set(name.split("_"))]


def test_the_script_is_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "train.py", "pass\n")

    def hash_now() -> str | None:
        argv = ("python", "train.py")
        return describe_run("id", argv, environment={}, started_unix_s=5.0).script_hash

    before = hash_now()
    write(tmp_path / "train.py", "fail\n")
    assert before is not None
    assert before != hash_now()


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 21 0:31 / /mnt/my\\040data rw - nfs4 server:/x rw
36 21 0:32 / /mnt/my\\040data rw - fuse.s3 bucket rw
broken
"""


def test_a_place_is_told_with_its_file_system(tmp_path: Path) -> None:
    mounts, data = tmp_path / "mounts", tmp_path / "data"
    data.mkdir()
    mounts.write_text(MOUNTS)

    found = find_places(("x", "--data=data", "gone", "--n", "3"), folder=tmp_path, mounts=mounts)

    assert [(place.path, place.filesystem) for place in found] == [
        (str(tmp_path), "ext4"),
        (str(data), "ext4"),
    ]


def test_a_mount_over_another_hides_it(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.replace("/mnt/my\\040data", str(tmp_path).replace(" ", "\\040")))

    (found,) = find_places((), folder=tmp_path, mounts=mounts)

    assert found.filesystem == "fuse.s3"


def test_no_file_systems_are_told_where_the_system_has_no_list(tmp_path: Path) -> None:
    assert find_places(("x",), folder=tmp_path, mounts=tmp_path / "none") == ()
