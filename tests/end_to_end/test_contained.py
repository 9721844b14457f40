"""A child behind walls: it runs as it would, ends when it is told, and harms nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from end_to_end.contained import fingerprint, living, require, run, start, told
from end_to_end.harness import needs_torch
from steptime.core.process_end import RunState
from steptime.errors import ContainmentError
from steptime.isolate.child import NotStarted, start_contained
from steptime.isolate.left.writes import tried_writes
from steptime.isolate.probe import probe
from steptime.isolate.tiers import Containment, Tier

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SPECIMENS = Path(__file__).resolve().parent.parent / "specimens"
TIERS = (Tier.ISOLATED, Tier.GUARDED)
UNSAFE = Containment(tier=Tier.UNSAFE)

each_tier = pytest.mark.parametrize("tier", TIERS)


def test_an_isolated_child_writes_and_nothing_of_it_stays(tmp_path):
    within = require(Tier.ISOLATED)
    (tmp_path / "log").write_text("as it was")
    (tmp_path / "old").write_text("still here")
    before = fingerprint(tmp_path)

    end = run(tmp_path, "sh", "-c", "echo x >> log; rm old; mkdir new; cat log", within=within)

    assert end.exit_code == 0, told(tmp_path)
    assert told(tmp_path) == ("as it wasx\n", "")
    assert fingerprint(tmp_path) == before
    assert tried_writes(tmp_path / "trial") == tuple(
        f"{tmp_path}/{name}" for name in ("log", "new/", "old")
    )


def test_what_is_written_into_the_childs_own_folder_stays(tmp_path):
    within = require(Tier.ISOLATED)

    run(tmp_path, "sh", "-c", "echo 1 > trial/rank-0.jsonl", within=within)

    assert (tmp_path / "trial" / "rank-0.jsonl").read_text() == "1\n"
    assert tried_writes(tmp_path / "trial") == ()


@pytest.mark.parametrize(("code", "state"), [(0, RunState.FINISHED), (3, RunState.FAILED)])
def test_how_the_command_ends_is_told(tmp_path, code, state):
    end = run(tmp_path, "sh", "-c", f"exit {code}", within=require(Tier.ISOLATED))

    assert (end.state, end.exit_code) == (state, code)


def test_a_kill_ends_the_whole_tree_a_daemon_too(tmp_path):
    within = require(Tier.ISOLATED)
    code = "(setsid sleep 600 &) ; echo ready; exec sleep 600"
    child = start(tmp_path, "sh", "-c", code, within=within)
    while len(everyone := living(child.pid, "sleep 600")) < 2:
        assert child.poll() is None

    child.kill()

    assert child.poll().state is RunState.KILLED
    assert not any(process.is_running() for process in everyone)


@each_tier
def test_a_child_that_is_held_stops_with_all_it_started_and_goes_on(tmp_path, tier):
    within = require(tier)
    code = "(while :; do echo a; sleep 0.01; done) & while :; do echo b; sleep 0.01; done"
    child = start(tmp_path, "sh", "-c", code, within=within)
    size = (tmp_path / "trial" / "stdout").stat
    while not {"a", "b"} <= set(told(tmp_path)[0].split()):
        assert child.poll() is None

    child.hold()
    before = size().st_size
    time.sleep(0.2)
    after = size().st_size
    child.go_on()
    while size().st_size < after + 20:
        assert child.poll() is None
    child.hold()
    child.kill()

    assert after == before
    assert child.poll().state is RunState.KILLED


def test_the_child_sees_its_own_user_place_and_python(tmp_path):
    code = "import os, sys; print(os.getuid(), os.getcwd(), sys.executable)"

    run(tmp_path, sys.executable, "-c", code, within=require(Tier.ISOLATED))

    assert told(tmp_path)[0].split() == [str(os.getuid()), str(tmp_path), sys.executable]


@pytest.mark.parametrize("within", [UNSAFE, None], ids=["unsafe", "isolated"])
def test_a_command_that_cannot_be_executed_is_told_as_a_shell_does(tmp_path, within):
    within = within or require(Tier.ISOLATED)
    for name, text, code in (("plain", "", 126), ("lost", "#!/no/such/python\n", 127)):
        script = tmp_path / name
        script.write_text(text or "x")
        script.chmod(0o755 if text else 0o644)
        found = start_contained(
            (f"./{name}",), {}, cwd=tmp_path, folder=tmp_path, containment=within
        )

        assert isinstance(found, NotStarted)
        assert found.exit_code == code


def test_a_script_without_a_first_line_is_run_by_a_shell(tmp_path):
    (tmp_path / "train").write_text("echo trained")
    (tmp_path / "train").chmod(0o755)

    run(tmp_path, "./train", within=require(Tier.ISOLATED))

    assert told(tmp_path)[0] == "trained\n"


@each_tier
def test_the_environment_is_the_one_given_with_publishing_off(tmp_path, tier):
    within = require(tier)

    run(tmp_path, "env", within=within, MINE="a\nb=ü", WANDB_MODE="online", TMPDIR="/tmp")

    out = told(tmp_path)[0]
    assert "MINE=a\nb=ü\n" in out
    assert "WANDB_MODE=disabled\n" in out
    assert "WANDB_MODE=online" not in out


@each_tier
def test_a_script_reads_the_stdin_it_is_given_and_else_nothing(tmp_path, tier):
    within = require(tier)
    (tmp_path / "input").write_text("a line")

    run(tmp_path, "cat", within=within, stdin=tmp_path / "input")
    assert told(tmp_path)[0] == "a line"
    run(tmp_path, "cat", within=within)
    assert told(tmp_path)[0] == ""


@each_tier
def test_two_children_open_the_same_port_and_do_not_meet(tmp_path, tier):
    within = require(tier)
    if not within.has_own_network:
        pytest.skip("; ".join(within.reasons))
    code = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 29500)); "
        "print('open', flush=True); time.sleep(600)"
    )
    children = [start(tmp_path / name, sys.executable, "-c", code, within=within) for name in "ab"]
    try:
        for name in "ab":
            while told(tmp_path / name)[0] != "open\n":
                assert [child.poll() for child in children] == [None, None], told(tmp_path / name)
    finally:
        for child in children:
            child.kill()


@each_tier
def test_nobody_outside_can_be_reached_unless_the_network_is_shared(tmp_path, tier):
    import socket

    within = require(tier)
    if not within.has_own_network:
        pytest.skip("; ".join(within.reasons))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        code = f"import socket; socket.create_connection({server.getsockname()!r})"
        cut_off = run(tmp_path, sys.executable, "-c", code, within=within)
        shared = require(tier, share_network=True)
        connected = run(tmp_path, sys.executable, "-c", code, within=shared)

    assert (cut_off.exit_code, connected.exit_code) == (1, 0)
    assert not shared.has_own_network


@each_tier
def test_of_fifty_megabytes_of_output_the_last_remains(tmp_path, tier):
    within = require(tier)
    code = "for i in range(50): print(str(i % 10) * (1 << 20))\nprint('the end')"

    run(tmp_path, sys.executable, "-c", code, within=within)

    out = tmp_path / "trial" / "stdout"
    assert out.stat().st_size == 1 << 20
    assert out.read_bytes().endswith(b"99\nthe end\n")


@each_tier
def test_a_daemon_does_not_outlive_the_command(tmp_path, tier):
    within = require(tier)

    run(tmp_path, "sh", "-c", "(setsid sleep 601 &) ; sleep 0.2", within=within)

    assert living(1, "sleep 601") == []


@each_tier
def test_a_script_that_kills_its_own_group_ends_alone(tmp_path, tier):
    end = run(tmp_path, "sh", "-c", "kill -9 0", within=require(tier))

    assert (end.state, end.signal) == (RunState.KILLED, 9)


@each_tier
def test_a_script_moves_files_as_it_would(tmp_path, tier):
    within = require(tier)
    script = SPECIMENS / "file_moves.py"
    folders = [tmp_path / name for name in ("plain", "kept")]
    spec = importlib.util.spec_from_file_location("file_moves", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for folder in folders:
        folder.mkdir()
        module.prepare(folder)
    before = fingerprint(folders[1])

    plain = subprocess.run([sys.executable, script, folders[0]], capture_output=True, text=True)
    run(tmp_path, sys.executable, script, folders[1], within=within)

    found, errors = told(tmp_path)
    drawn = re.compile(r"tmp\w{8}")
    expected = drawn.sub("tmp", plain.stdout.replace(str(folders[0]), "HERE"))
    assert drawn.sub("tmp", found.replace(str(folders[1]), "HERE")) == expected, errors
    assert fingerprint(folders[1]) == before


def test_what_does_not_fit_into_memory_is_no_space_left(tmp_path):
    within = replace(require(Tier.ISOLATED), layer_bytes=1 << 20)

    end = run(tmp_path, "sh", "-c", "head -c 5000000 /dev/zero > big", within=within)

    assert end.exit_code != 0
    assert "No space left" in told(tmp_path)[1]
    assert not (tmp_path / "big").exists()


def test_an_unsafe_child_runs_too_and_is_killed_as_a_tree(tmp_path):
    child = start(tmp_path, "sh", "-c", "sleep 602 & sleep 602", within=UNSAFE)
    while len(living(child.pid, "sleep 602")) < 2:
        assert child.poll() is None

    child.kill()

    assert living(1, "sleep 602") == []


def test_where_nothing_is_allowed_the_refusal_says_what_to_do(tmp_path):
    with pytest.raises(ContainmentError) as caught:
        probe(tmp_path, best=Tier.UNSAFE)

    assert "--unsafe-trials" in caught.value.hint
    assert probe(tmp_path, best=Tier.UNSAFE, allow_unsafe=True).tier is Tier.UNSAFE
    assert list(tmp_path.iterdir()) == []


def test_odd_things_in_a_folder_do_not_matter(tmp_path):
    import socket

    within = require(Tier.ISOLATED)
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        (tmp_path / "a, b: \\ c\n").mkdir()
        (tmp_path / "closed").write_text("secret")
        (tmp_path / "closed").chmod(0)
        (tmp_path / "loop").symlink_to("loop")
        before = fingerprint(tmp_path)
        end = run(tmp_path, "sh", "-c", "echo > 'a, b: \\ c\n/x'; rm fifo", within=within)

    assert end.exit_code == 0, told(tmp_path)
    assert fingerprint(tmp_path) == before


@needs_torch
@each_tier
@pytest.mark.slow("torchrun and two ranks import torch behind walls")
def test_two_gloo_ranks_meet_under_torchrun(tmp_path, tier):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

    end = run(tmp_path, sys.executable, *launcher, SPECIMENS / "ddp.py", within=require(tier))

    assert end.exit_code == 0, told(tmp_path)


@needs_torch
@each_tier
@pytest.mark.parametrize("name", ["worker_startup", "spawned"])
@pytest.mark.slow("children import torch anew behind walls")
def test_workers_and_spawned_children_work(tmp_path, tier, name):
    end = run(tmp_path, sys.executable, SPECIMENS / f"{name}.py", within=require(tier))

    assert end.exit_code == 0, told(tmp_path)


def test_disks_in_disks_files_over_files_and_read_only_ones_are_handled(tmp_path):
    require(Tier.ISOLATED)
    search = os.pathsep.join((str(SCRIPTS.parent.parent), *filter(None, sys.path)))

    done = subprocess.run(
        [sys.executable, SCRIPTS / "with_mounts.py", tmp_path],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["out"] == ["disk/file", "disk/inner/file", "one", "disk/new", "otherx", ""]
    assert set(found["stayed"].values()) == {"as it was", "other"}
    assert not found["is_new_there"]
    assert (found["came_out"], found["queues"]) == ("", [])
    assert found["tried"] == ["disk/file", "disk/inner/file", "disk/new", "one"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_nobody_writes_in_a_layer_although_others_files_seem_to_be_his():
    require(Tier.ISOLATED)
    search = os.pathsep.join((str(SCRIPTS.parent.parent), *filter(None, sys.path)))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "nobody_writes.py", folder],
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=60,
        )

        assert (done.stdout, Path(folder, "own", "kept").read_text()) == ("keptmore", "kept")
