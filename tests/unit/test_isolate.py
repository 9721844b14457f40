"""The parts of the walls that need no kernel: mounts, output's tail, lists, variables."""

from __future__ import annotations

import os
import time

import pytest

from steptime.isolate.left.tails import MAX_BYTES, Tail
from steptime.isolate.left.writes import list_layers, list_log, tried_writes, write_list
from steptime.isolate.overlay import devices
from steptime.isolate.overlay.layers import Layer
from steptime.isolate.overlay.mounts import (
    has_mount_beneath,
    mount_of,
    parse_mountinfo,
    visible_mounts,
)
from steptime.isolate.publish import VARIABLES, free_ports, quiet_environment

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
28 27 0:25 / /data\\040set\\134x ro,nosuid - tmpfs none rw,size=4k
29 27 0:30 / /home rw,relatime master:1 - nfs4 server:/home ro,vers=4
"""


def test_a_line_of_mountinfo_tells_place_kind_and_whether_it_is_read_only():
    mounts = parse_mountinfo(MOUNTINFO)

    assert [(m.place, m.kind, m.is_read_only) for m in mounts] == [
        ("/proc", "proc", False),
        ("/", "ext4", False),
        ("/data set\\x", "tmpfs", True),
        ("/home", "nfs4", True),
    ]


def test_a_path_lies_on_the_innermost_mount_above_it():
    mounts = {mount.place: mount for mount in parse_mountinfo(MOUNTINFO)}

    assert mount_of("/home/me/x", mounts).kind == "nfs4"
    assert mount_of("/homes", mounts).kind == "ext4"
    assert mount_of("/", mounts).kind == "ext4"


@pytest.mark.parametrize(
    ("place", "expected"),
    [("/", True), ("/a", True), ("/a/b", False), ("/a/", True), ("/ab", False), ("/a/b/c", False)],
)
def test_only_what_is_mounted_inside_a_folder_is_beneath_it(place, expected):
    assert has_mount_beneath(place, ["/", "/a/b"]) is expected


def test_this_machine_has_a_root_and_sees_it():
    assert "/" in visible_mounts()


def tail_of(tmp_path, *pieces, writes_between=False):
    reader, writer = os.pipe()
    tail = Tail(reader, str(tmp_path / "out"))
    for piece in pieces:
        os.write(writer, piece)
        tail.read()
        if writes_between:
            tail.write()
    os.close(writer)
    tail.read()
    tail.write(is_last=True)
    assert not tail.is_open
    os.close(reader)
    return (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("writes_between", [False, True])
def test_little_output_is_kept_as_it_is(tmp_path, writes_between):
    assert tail_of(tmp_path, b"one\n", b"two\n", writes_between=writes_between) == b"one\ntwo\n"


@pytest.mark.parametrize("writes_between", [False, True])
def test_of_much_output_the_last_bytes_are_kept(tmp_path, writes_between):
    pieces = [bytes([65 + number % 26]) * 50_000 for number in range(90)]

    kept = tail_of(tmp_path, *pieces, writes_between=writes_between)

    assert kept == b"".join(pieces)[-MAX_BYTES:]


def test_the_list_of_writes_is_sorted_bounded_and_without_our_own(tmp_path):
    paths = [f"/data/{number:04}" for number in range(300)]
    ours = ["/tmp/ours", "/tmp/ours/x"]

    write_list(str(tmp_path), [*ours, *reversed(paths), *paths], but="/tmp/ours")

    assert tried_writes(tmp_path) == tuple(paths[:200])


@pytest.mark.parametrize("text", ["", "[]", '{"paths": 3}', "\0"])
def test_a_damaged_or_missing_list_is_empty(tmp_path, text):
    assert tried_writes(tmp_path) == ()
    (tmp_path / "writes.json").write_text(text)

    assert tried_writes(tmp_path) == ()


def test_compiled_files_in_the_log_are_one_folder(tmp_path):
    (tmp_path / "tried-writes").write_text("/a/__pycache__/x.pyc\n/a/__pycache__/y.pyc\n/b\n")

    assert set(list_log(str(tmp_path))) == {"/a/__pycache__/", "/b"}


def changes(tmp_path, **options):
    folders = [os.open(tmp_path / name, os.O_RDONLY) for name in ("lower", "upper")]
    try:
        layer = Layer(place="/home", lower=folders[0], upper=folders[1], **options)
        return sorted(list_layers([layer]))
    finally:
        for folder in folders:
            os.close(folder)


@pytest.fixture
def layer(tmp_path):
    for name in ("lower/kept", "lower/touched", "upper/touched"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_folder_that_was_only_copied_up_is_no_change(layer):
    assert changes(layer) == []


def test_new_files_and_folders_are_listed_and_a_full_new_folder_is_one_line(layer):
    for name in ("file", "touched/file", "new/one", *(f"many/{n}" for n in range(20))):
        (layer / "upper" / name).parent.mkdir(exist_ok=True)
        (layer / "upper" / name).write_text("x")
    (layer / "upper" / "empty").mkdir()

    assert changes(layer) == [
        *("/home/empty/", "/home/file", "/home/many/", "/home/new/one", "/home/touched/file"),
    ]


def test_a_folder_with_other_rights_is_listed(layer):
    (layer / "upper" / "touched").chmod(0o700)

    assert changes(layer) == ["/home/touched/"]


def rebuilt(tmp_path, **files):
    """A rebuilt folder as it is before the child begins, with these files in it."""
    for name, text in files.items():
        (tmp_path / "upper" / name).write_text(text)
    inside = tmp_path / "upper"
    return {one.name: one.lstat() for one in inside.iterdir()}


def test_beside_mounts_what_differs_or_is_gone_is_listed(layer):
    begun = rebuilt(layer, same="old", changed="old", removed="old")
    (layer / "upper" / "changed").write_text("other")
    (layer / "upper" / "removed").unlink()
    (layer / "upper" / "made").mkdir()

    found = changes(layer, is_rebuilt=True, begun=begun)

    assert found == ["/home/changed", "/home/made/", "/home/removed"]


def test_what_other_programs_do_beside_mounts_meanwhile_is_not_listed(layer):
    begun = rebuilt(layer, same="old", theirs="old")
    (layer / "lower" / "no").mkdir()  # they make a folder and a file, change one, remove one
    (layer / "lower" / "new").write_text("x")
    (layer / "lower" / "same").write_text("changed by them")
    (layer / "lower" / "kept").rmdir()

    assert changes(layer, is_rebuilt=True, begun=begun) == []


def test_a_folder_that_others_change_while_the_child_writes_in_it_is_no_change_of_the_childs(layer):
    begun_ns = time.time_ns()
    (layer / "upper" / "theirs").mkdir()  # the kernel copied it, then they removed it
    (layer / "upper" / "theirs" / "ours").write_text("x")
    os.utime(layer / "lower")  # its time of change is now
    (layer / "lower" / "touched").chmod(0o700)

    assert changes(layer, begun_ns=begun_ns) == ["/home/theirs/ours"]


def test_what_the_redirection_writes_for_a_moment_is_not_listed(tmp_path):
    (tmp_path / "own-writes").write_text("/data/model.pt.steptime-7\n")

    write_list(str(tmp_path), ["/data/model.pt.steptime-7", "/data/model.pt"], but="/tmp/ours")

    assert tried_writes(tmp_path) == ("/data/model.pt",)


def test_publishing_is_off_whatever_the_user_set():
    own = {"WANDB_MODE": "online", "MLFLOW_TRACKING_URI": "http://server", "HOME": "/home/me"}

    found = quiet_environment(own, "/private", share_network=False)

    assert found["WANDB_MODE"] == "disabled"
    assert found["MLFLOW_TRACKING_URI"] == "file:///private/mlruns"
    assert found["HOME"] == "/home/me"


def test_data_may_come_over_a_network_that_is_shared():
    assert "HF_HUB_OFFLINE" in quiet_environment({}, "/private", share_network=False)
    assert "HF_HUB_OFFLINE" not in quiet_environment({}, "/private", share_network=True)


def test_every_variable_has_a_source_and_stands_once():
    assert all(variable.source.startswith("https://") for variable in VARIABLES)
    assert len({variable.name for variable in VARIABLES}) == len(VARIABLES)


def test_a_port_that_the_user_set_is_kept():
    ports = free_ports({"MASTER_PORT": "29500"})

    assert set(ports) == {"PET_MASTER_PORT"}
    assert 1024 < int(ports["PET_MASTER_PORT"]) < 65536


def test_of_devices_a_child_has_those_of_nobody_and_the_accelerators(monkeypatch):
    names = ["console", "dri", "infiniband", "kmsg", "null", "nvidia0", "nvme0", "ptmx", "sda"]
    monkeypatch.setattr(devices.os, "listdir", lambda place: names)

    assert devices.own_devices(share_network=False) == ("/dev/dri", "/dev/null", "/dev/nvidia0")
    assert "/dev/infiniband" in devices.own_devices(share_network=True)
