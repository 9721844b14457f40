"""The store: run folders, the files in them, and the index of them."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import pytest

from steptime.app.run.run_end import read_end
from steptime.app.stored import run_index, run_listing
from steptime.app.stored.run_listing import find_run, list_runs, reindex
from steptime.core import store
from steptime.core.devices.machine_identity import MachineIdentity
from steptime.core.fallback_store import fallback_folder, find_fallback, make_fallback
from steptime.core.process_end import RunState
from steptime.core.schema import SCHEMA
from steptime.core.store import Run, create_run
from steptime.diagnose.values.finding import BottleneckKind, Diagnosis, Finding, Severity
from steptime.errors import DamagedRunError, NotFoundError, StoreError
from steptime.launch.values import CommandRecord
from steptime.measure.values.run_summary import RunSummary

NOON = 1_790_000_000.0


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of last resort lies below the temporary folder, which all runs share."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def make_record(run: Run, *, started_unix_s: float = NOON, **fields: object) -> CommandRecord:
    machine = MachineIdentity(hostname_hash="abc", cpu=None, num_cores=2, memory_bytes=None)
    values: dict[str, object] = {
        "run_id": run.run_id,
        "argv": ("python", "train.py"),
        "cwd": "/home/me",
        "environment_names": ("HOME",),
        "started_unix_s": started_unix_s,
        "steptime_version": "0.1.0",
        "python_version": "3.11.7",
        "git_revision": None,
        "machine": machine,
        "parent_pid": 1,
    }
    return CommandRecord(**(values | fields))  # type: ignore[arg-type]


def make_run(
    folder: Path, *, started_unix_s: float = NOON, num_steps: int | None = 500, **fields: object
) -> Run:
    """A run that ended well, with as much of a measurement as the list needs."""
    run = create_run(folder, started_unix_s=started_unix_s)
    record = make_record(run, started_unix_s=started_unix_s, **({"exit_code": 0} | fields))
    store.write_value(run, "command.json", record)
    if num_steps is not None:
        steady = {"step_time_s": {"estimate": 0.25}}
        write(run, "measurement.json", {"num_steps": num_steps, "steady": steady})
        write(run, "diagnosis.json", {"kind": "INPUT_BOUND"})
    return run


def write(run: Run, name: str, document: dict[str, object]) -> None:
    (run.folder / name).write_text(json.dumps({"schema": 1, **document}))


# -- making a run


def test_a_run_gets_a_folder_of_its_own_below_the_store(tmp_path: Path) -> None:
    run = create_run(tmp_path, started_unix_s=NOON)
    assert run.folder == tmp_path / ".steptime" / "runs" / run.run_id
    assert run.folder.is_dir()
    assert list(run.folder.iterdir()) == []
    assert run.instead_of is None


def test_a_run_id_is_the_local_time_and_four_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "3fa2")
    monkeypatch.setattr(time, "localtime", time.gmtime)
    assert create_run(tmp_path, started_unix_s=NOON).run_id == "20260921-141320-3fa2"


def test_an_id_that_is_taken_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(draws))
    first = create_run(tmp_path, started_unix_s=NOON)
    second = create_run(tmp_path, started_unix_s=NOON)
    assert (first.run_id[-4:], second.run_id[-4:]) == ("aaaa", "bbbb")


def test_a_second_whose_ids_are_all_taken_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "aaaa")
    create_run(tmp_path, started_unix_s=NOON)
    assert create_run(tmp_path, started_unix_s=NOON).instead_of == tmp_path / ".steptime"
    with pytest.raises(StoreError, match="are taken"):
        create_run(tmp_path, started_unix_s=NOON)


def test_runs_that_start_at_once_get_different_folders(tmp_path: Path) -> None:
    runs: list[Run] = []
    threads = [
        threading.Thread(target=lambda: runs.append(create_run(tmp_path, started_unix_s=NOON)))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run.folder for run in runs}) == 16


def test_the_store_stays_out_of_the_users_git(tmp_path: Path) -> None:
    create_run(tmp_path, started_unix_s=NOON)
    assert (tmp_path / ".steptime" / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_is_there_is_left_alone(tmp_path: Path) -> None:
    ignore = tmp_path / ".steptime" / ".gitignore"
    ignore.parent.mkdir()
    ignore.write_text("!keep\n")
    create_run(tmp_path, started_unix_s=NOON)
    assert ignore.read_text() == "!keep\n"


def test_a_store_folder_may_be_named_itself(tmp_path: Path) -> None:
    run = create_run(tmp_path / ".steptime", started_unix_s=NOON)
    assert run.store == tmp_path / ".steptime"


def test_an_unwritable_folder_falls_back_to_the_temporary_one_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".steptime").write_text("a file in the way")
    run = create_run(tmp_path, started_unix_s=NOON)
    assert run.instead_of == tmp_path / ".steptime"
    assert run.because == "Not a directory"
    assert run.folder.is_relative_to(tempfile.gettempdir())
    assert store.find_store() == run.store


def test_the_store_of_last_resort_is_for_nobody_else(tmp_path: Path) -> None:
    folder = make_fallback()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert make_fallback() == find_fallback() == folder


def test_no_writable_folder_at_all_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".steptime").write_text("a file in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(StoreError, match="the store of last resort cannot be made") as caught:
        create_run(tmp_path, started_unix_s=NOON)
    assert "--store" in (caught.value.hint or "")


def plant(what: str, tmp_path: Path) -> Path:
    """Something with the name of our folder below the temporary one, with runs in it."""
    theirs = tmp_path / "theirs"
    make_run(theirs)
    planted = fallback_folder()
    if what == "link":
        planted.symlink_to(theirs)
    elif what == "file":
        planted.write_text("")
    else:
        theirs.rename(planted)
        planted.chmod({"open to a group": 0o770, "open to all": 0o755}.get(what, 0o700))
    return planted


REFUSALS = {
    "link": "it is a link",
    "file": "it is a file",
    "open to a group": "its mode is 770; chmod 700 ",
    "open to all": "its mode is 755; chmod 700 ",
    "of another user": "it belongs to another user",
    "in a folder that all may write": "has no sticky bit",
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_store_of_last_resort_that_is_not_ours_alone_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".steptime").write_text("a file in the way")
    planted = plant(what, tmp_path)
    before = sorted(planted.rglob("*"))
    if what == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if what == "in a folder that all may write":
        planted.parent.chmod(0o777)

    with pytest.raises(StoreError, match=REFUSALS[what]) as caught:
        create_run(tmp_path, started_unix_s=NOON)
    assert "--store" in (caught.value.hint or "")
    with pytest.raises(NotFoundError, match=REFUSALS[what]):
        store.find_store()
    assert sorted(planted.rglob("*")) == before


def test_a_folder_below_a_temporary_one_with_a_sticky_bit_is_safe() -> None:
    fallback_folder().parent.chmod(0o1777)
    assert make_fallback().is_dir()


# -- files


def test_a_value_survives_the_way_to_the_disk_and_back(tmp_path: Path) -> None:
    run = create_run(tmp_path, started_unix_s=NOON)
    record = make_record(run, argv=("python", "tr\udcffin.py", "--name", "ü"))
    store.write_value(run, "command.json", record)
    assert store.read_value(run, "command.json", CommandRecord) == record


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(tmp_path, started_unix_s=NOON)
    path = run.folder / "command.json"
    store.write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        store.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(run.folder.iterdir()) == [path]


def test_a_file_that_is_no_json_is_a_damaged_run(tmp_path: Path) -> None:
    run = create_run(tmp_path, started_unix_s=NOON)
    (run.folder / "command.json").write_text('{"schema": 1, "run')
    with pytest.raises(DamagedRunError, match=r"command\.json is not JSON"):
        store.read_value(run, "command.json", CommandRecord)


# -- finding


def test_a_run_is_found_by_id_by_its_beginning_and_as_last(tmp_path: Path) -> None:
    old = make_run(tmp_path, started_unix_s=NOON)
    new = make_run(tmp_path, started_unix_s=NOON + 3600)
    for wanted, run in ((old.run_id, old), (new.run_id[:11], new), ("last", new)):
        assert find_run(run.store, wanted).folder == run.folder


def test_an_unknown_id_names_the_nearest(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(NotFoundError, match="there is no run") as caught:
        find_run(run.store, run.run_id.replace("-", ""))
    assert run.run_id in (caught.value.hint or "")


def test_an_id_like_no_other_points_to_the_list(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_run(make_run(tmp_path).store, "zzz")
    assert caught.value.hint == "List them: steptime list"


def test_a_beginning_of_several_ids_asks_for_more_of_it(tmp_path: Path) -> None:
    first, second = make_run(tmp_path), make_run(tmp_path)
    with pytest.raises(NotFoundError, match="2 ids begin with") as caught:
        find_run(first.store, first.run_id[:8])
    assert second.run_id in (caught.value.hint or "")


def test_a_folder_without_runs_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match="there are no runs in") as caught:
        store.find_store(tmp_path)
    assert "steptime run --" in (caught.value.hint or "")


def test_a_named_store_is_the_only_one_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(make_fallback())
    make_run(tmp_path)
    with pytest.raises(NotFoundError, match=r"there is no folder `.*/no/such`") as caught:
        store.find_store(tmp_path.parent / "no" / "such")
    assert caught.value.exit_code == 2
    assert caught.value.hint == (
        "Name the folder that holds .steptime. "
        f"Leave --store out to use the store of this folder, {tmp_path}/.steptime."
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "there is no folder `.*missing`"),
        ("file", "`.*file` is not a folder, so it is no store"),
        ("empty", "`.*empty` holds no store: there is no folder .steptime in it"),
        ("without/.steptime", "there are no runs in .*/without/.steptime"),
        ("wrong", "`.*/wrong/.steptime` is not a folder"),
        ("project/.steptime/runs", "holds no store"),
    ],
)
def test_what_is_no_store_is_named_with_the_nearest_one(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("empty", "without/.steptime", "wrong"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("file", "wrong/.steptime"):
        (tmp_path / file).write_text("")
    make_run(tmp_path / "project")
    near = tmp_path / "project"
    if not name.startswith("project"):
        make_run(near := tmp_path)
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(NotFoundError, match=message) as caught:
        store.find_store(tmp_path / name if "/" in name else Path("..", name))
    assert str(near) in (caught.value.hint or "")


def test_a_store_that_may_not_be_read_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = tmp_path / ".steptime" / "runs"
    really = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path == refused:
            raise PermissionError(13, "Permission denied")
        return really(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(NotFoundError, match="cannot be read: Permission denied"):
        store.find_store(tmp_path)


def test_a_folder_that_can_be_written_never_shows_the_runs_of_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(make_fallback())
    with pytest.raises(NotFoundError, match="there are no runs in") as caught:
        store.find_store()
    assert f"--store {fallback_folder()}" in (caught.value.hint or "")


def test_newer_runs_elsewhere_are_known_where_a_store_was_writable_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    assert store.other_store(run.store) is None
    monkeypatch.setattr(store, "why_unwritable", lambda _, **__: "No space left on device")
    assert store.other_store(run.store) is None
    newer = make_run(make_fallback())
    assert store.other_store(run.store) == newer.store


class FullDisk:
    f_bavail, f_files, f_favail, f_blocks, f_flag = 0, 9, 9, 9, 0


def test_why_a_store_cannot_be_written_is_found_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tmp_path / ".steptime"
    assert store.why_unwritable(wanted) is None
    assert list(tmp_path.iterdir()) == [tmp_path / "tmp"]
    assert store.why_unwritable(tmp_path / "gone" / ".steptime") == "No such file or directory"
    with monkeypatch.context() as changed:
        changed.setattr(os, "statvfs", lambda _: FullDisk)
        assert store.why_unwritable(wanted) == "No space left on device"
        changed.setattr(os, "access", lambda *_: False)
        assert store.why_unwritable(wanted) == "Permission denied"
        changed.setattr(FullDisk, "f_flag", os.ST_RDONLY)
        assert store.why_unwritable(wanted) == "Read-only file system"
    wanted.write_text("")
    assert store.why_unwritable(wanted) == "a file has its name"


def test_looking_for_runs_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        store.find_store(tmp_path)
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_store_that_cannot_be_read_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        list_runs(tmp_path / "missing")


# -- listing


def test_runs_are_listed_newest_first_with_what_their_files_say(tmp_path: Path) -> None:
    old = make_run(tmp_path, started_unix_s=NOON)
    new = make_run(tmp_path, started_unix_s=NOON + 3600, exit_code=None, signal=9)
    first, second = list_runs(old.store)
    assert (first.run_id, first.state, first.signal) == (new.run_id, RunState.KILLED, 9)
    assert second == RunSummary(
        run_id=old.run_id,
        started_unix_s=NOON,
        command=("python", "train.py"),
        state=RunState.FINISHED,
        exit_code=0,
        num_steps=500,
        step_time_s=0.25,
        kind="INPUT_BOUND",
    )


def test_the_second_list_comes_from_the_index_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    before = list_runs(run.store)
    monkeypatch.setattr(run_listing, "summarize", lambda run: pytest.fail("read the folder again"))
    assert list_runs(run.store) == before


def test_a_run_whose_report_opens_with_no_bottleneck_is_listed_with_that(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    bad = Finding(kind=None, cause="non_finite", severity=Severity.CRITICAL, evidence=())
    slow = Finding(
        kind=BottleneckKind.INPUT_BOUND, cause="fetch", severity=Severity.WARNING, evidence=()
    )
    for findings, opens_with in (((bad, slow), "non_finite"), ((slow, bad), None)):
        diagnosis = Diagnosis(
            schema=SCHEMA, run_id=run.run_id, kind=BottleneckKind.INPUT_BOUND, findings=findings
        )
        store.write_value(run, "diagnosis.json", diagnosis)
        (row,) = reindex(run.store)
        assert (row.kind, row.opens_with) == ("INPUT_BOUND", opens_with)
        assert list_runs(run.store) == (row,), "the index has it"


def test_a_run_without_a_measurement_is_not_settled_in_the_index(tmp_path: Path) -> None:
    run = make_run(tmp_path, num_steps=None)
    assert list_runs(run.store)[0].num_steps is None
    write(run, "measurement.json", {"num_steps": 7})
    assert list_runs(run.store)[0].num_steps == 7


def test_a_deleted_run_leaves_the_list_and_the_index(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    list_runs(run.store)
    (run.folder / "command.json").unlink()
    (run.folder / "measurement.json").unlink()
    (run.folder / "diagnosis.json").unlink()
    run.folder.rmdir()
    assert list_runs(run.store) == ()
    assert run_index.read_rows(run.store / "index.sqlite") == {}


def test_foreign_folders_and_damaged_files_do_not_break_the_list(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.store / "runs" / "notes").mkdir()
    write(run, "command.json", {"argv": "python", "started_unix_s": "now", "exit_code": "0"})
    (run.folder / "measurement.json").write_text('{"schema": 99, "num_steps": 3}')
    (run.folder / "diagnosis.json").write_text("[]")
    (row,) = list_runs(run.store)
    assert (row.command, row.started_unix_s, row.num_steps, row.kind) == ((), None, None, None)


def test_reindex_reads_the_folders_again(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    list_runs(run.store)
    write(run, "measurement.json", {"num_steps": 900})
    assert list_runs(run.store)[0].num_steps == 500
    assert run_listing.reindex(run.store)[0].num_steps == 900


def test_an_ended_run_is_put_into_the_index(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run_listing.add_to_index(run)
    assert set(run_index.read_rows(run.store / "index.sqlite")) == {run.run_id}


# -- how it ended


def test_a_run_whose_processes_live_and_whose_files_are_fresh_is_running(tmp_path: Path) -> None:
    run = make_run(tmp_path, exit_code=None, parent_pid=os.getpid(), num_steps=None)
    assert read_end(run).state is RunState.RUNNING


@pytest.mark.parametrize(
    ("parent_pid", "age_s"), [(2**22 + 1, 0.0), (os.getpid(), 3600.0)], ids=["nobody", "old files"]
)
def test_a_run_without_processes_or_with_old_files_has_no_known_end(
    tmp_path: Path, parent_pid: int, age_s: float
) -> None:
    run = make_run(tmp_path, exit_code=None, parent_pid=parent_pid, num_steps=None)
    path = run.folder / "command.json"
    changed_s = path.stat().st_mtime - age_s
    os.utime(path, (changed_s, changed_s))
    assert read_end(run).state is RunState.UNKNOWN


def test_a_process_of_somebody_else_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    run = make_run(tmp_path, exit_code=None, num_steps=None)
    assert read_end(run).state is RunState.RUNNING


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (b"7 (python) Z 1", RunState.UNKNOWN),
        (b"7 (a) Z) S 1", RunState.RUNNING),
        (None, RunState.RUNNING),
    ],
)
def test_a_dead_process_that_nobody_waited_for_is_not_running(
    status: bytes | None, state: RunState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, exit_code=None, parent_pid=os.getpid(), num_steps=None)
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        if not path.is_relative_to("/proc"):
            return read_bytes(path)
        if status is None:
            raise FileNotFoundError
        return status

    monkeypatch.setattr(Path, "read_bytes", read)
    assert read_end(run).state is state


def test_a_run_that_vanishes_while_it_is_looked_at_has_no_known_end(tmp_path: Path) -> None:
    run = Run(run_id="20261120-101500-3fa2", folder=tmp_path / "gone")
    assert read_end(run).state is RunState.UNKNOWN


# -- the index


def test_a_damaged_index_is_thrown_away_and_built_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    path = run.store / "index.sqlite"
    path.write_bytes(b"this is no database" * 100)
    assert [row.run_id for row in list_runs(run.store)] == [run.run_id]
    assert set(run_index.read_rows(path)) == {run.run_id}


def test_an_index_with_rows_of_another_kind_is_thrown_away(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    path = run.store / "index.sqlite"
    list_runs(run.store)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET summary = '[]'")
    connection.close()
    assert list_runs(run.store)[0].state is RunState.FINISHED


def test_an_index_of_another_version_is_built_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    path = run.store / "index.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (name TEXT)")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert len(list_runs(run.store)) == 1
    assert set(run_index.read_rows(path)) == {run.run_id}


def test_a_busy_index_is_done_without_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "_BUSY_S", 0.0)
    run = make_run(tmp_path)
    list_runs(run.store)
    path = run.store / "index.sqlite"
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    assert len(list_runs(run.store)) == 1
    assert not run_index.write_rows(path, list_runs(run.store))
    other.close()
    assert set(run_index.read_rows(path)) == {run.run_id}
