"""Where no namespace helps: a filter and the launcher keep a child from what is not its own."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import steptime
from end_to_end.contained import LIMIT_S, require, run, start, told
from end_to_end.harness import needs_torch
from end_to_end.old_landlock import with_old_landlock
from steptime.isolate.left.left_folders import remove_left, temporary_folders
from steptime.isolate.left.writes import tried_connections
from steptime.isolate.tiers import Containment, Tier

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SPECIMENS = SCRIPTS.parent.parent / "specimens"
BENCHMARKS = SCRIPTS.parents[2] / "benchmarks" / "verify"
SEARCH = os.pathsep.join((str(SCRIPTS.parent.parent), str(BENCHMARKS), *filter(None, sys.path)))

# Posts to a server and writes into shared memory, as a script that reports its progress does.
POSTS = """
import sys, urllib.request
with open("/dev/shm/harm_count", "a") as file:
    file.write("x")
try:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", data=b"x", timeout=5)
except OSError as error:
    print(error.reason)
"""
MEETS = """
import socket
server = socket.create_server(("", 29500))
client = socket.create_connection((socket.gethostname(), 29500))
accepted, _ = server.accept()
client.sendall(b"met")
print(server.getsockname()[1], accepted.recv(10).decode())
six = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
socket.create_connection(("localhost", six.getsockname()[1])).close()
taken = "yes"
try:
    socket.create_server(("127.0.0.1", 29500))
except OSError as error:
    print(error.strerror.split(" (")[0])
server.close()
try:
    socket.create_connection(("127.0.0.1", 29500))
except ConnectionRefusedError:
    print("closed")
"""
SHARES = """
import multiprocessing, os, subprocess, tempfile
from multiprocessing import shared_memory
segment = shared_memory.SharedMemory("mine", create=True, size=10)
segment.buf[0] = 7
again = shared_memory.SharedMemory("mine")
print(again.buf[0], open("/dev/shm/mine", "rb").read(1)[0], "mine" in os.listdir("/dev/shm"))
again.close()
queue = multiprocessing.Queue()
worker = multiprocessing.Process(target=queue.put, args=(3,))
worker.start()
print(queue.get())
worker.join()
with multiprocessing.Manager() as manager:
    print(dict(manager.dict(a=1)))
with tempfile.NamedTemporaryFile() as file:
    os.chmod(file.name, 0o640)
sleeper = subprocess.Popen(["sleep", "600"])
sleeper.terminate()
print(sleeper.wait())
os.setpriority(os.PRIO_PROCESS, os.getpid(), 1)
"""

LOCKS = """
import fcntl, os, time
theirs, own = os.open("theirs", os.O_RDONLY), os.open("trial/own", os.O_RDWR | os.O_CREAT)
again = os.open("trial/own", os.O_RDWR)
fcntl.flock(theirs, fcntl.LOCK_EX)
fcntl.lockf(theirs, fcntl.LOCK_SH)
fcntl.flock(own, fcntl.LOCK_EX)
try:
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("held", flush=True)
time.sleep(600)
"""
SETS = """
import os, subprocess, sys
os.chdir(sys.argv[1])
with open("one", "w") as file:
    file.write("content")
    os.fchmod(file.fileno(), 0o641)
os.truncate("one", 3)
os.symlink("one", "link")
os.utime("one", ns=(1_000_000_007, 2_000_000_009))
os.utime("link", (5, 6), follow_symlinks=False)
os.chown("one", -1, os.getgid())
subprocess.run(["touch", "-d", "2001-01-01", "two"], check=True)
subprocess.run(["chmod", "u=rw,go=", "two"], check=True)
for name in ("one", "two"):
    facts = os.stat(name)
    print(oct(facts.st_mode), facts.st_gid, facts.st_atime_ns, facts.st_mtime_ns, facts.st_size)
print(os.lstat("link").st_mtime)
try:
    os.setxattr("one", "user.harm", b"x")
    print(os.getxattr("one", "user.harm"), os.listxattr("two"))
    os.removexattr("one", "user.harm")
    print(os.listxattr("one"))
except OSError as error:  # this disk has none
    print(error)
"""

# Ten seconds, lest a fault of ours fill the machine with processes.
FORKS = """
import os, subprocess, sys, time
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "again"], start_new_session=True)
    sys.exit()
end = time.monotonic() + 10
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
print("nobody ended it", flush=True)
"""


def walled() -> Containment:
    """The guarded tier of a user who may make no namespace."""
    return replace(require(Tier.GUARDED), has_own_network=False)


def in_container(*command: str | Path, cwd: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where no user namespace can be made."""
    return subprocess.run(
        [sys.executable, SCRIPTS / "without_namespaces.py", sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(source), SEARCH))},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def test_a_script_that_posts_and_counts_in_shared_memory_reaches_nothing(tmp_path):
    within = walled()
    counted = Path("/dev/shm/harm_count")
    assert not counted.exists()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        end = run(tmp_path, sys.executable, "-c", POSTS, port, within=within)

        assert (end.exit_code, told(tmp_path)[0]) == (0, "[Errno 111] Connection refused\n")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not counted.exists()
    assert tried_connections(tmp_path / "trial") == (f"127.0.0.1 port {port}",)


@pytest.mark.parametrize("kernel", ["this", "old"])
def test_nothing_gets_through_where_no_namespace_can_be_made(tmp_path, kernel):
    require(Tier.GUARDED)
    package = Path(steptime.__file__).parent
    source = package.parent if kernel == "this" else with_old_landlock(package, tmp_path)

    done = in_container(SCRIPTS / "try_harms.py", tmp_path, cwd=tmp_path, source=source)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["tier"], found["has_own_network"]) == ("guarded", False)
    assert found["lacks"] == ["races"]
    assert found["num"] > 60
    assert found["changed"] == []


def test_nothing_gets_through_in_a_layer_whoever_tries(tmp_path):
    require(Tier.ISOLATED)

    done = subprocess.run(
        [sys.executable, SCRIPTS / "try_harms.py", tmp_path],
        env={**os.environ, "PYTHONPATH": SEARCH},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["tier"], found["changed"]) == ("isolated", [])


def test_a_lock_is_on_its_own_files_alone(tmp_path):
    (tmp_path / "theirs").write_text("kept")
    child = start(tmp_path, sys.executable, "-c", LOCKS, within=walled())
    try:
        while not (said := told(tmp_path)[0]):
            assert child.poll() is None, told(tmp_path)
        with (tmp_path / "theirs").open("r+") as file:
            for lock in (fcntl.flock, fcntl.lockf):
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        child.kill()
    assert said == "held\n"


def test_rights_times_and_attributes_of_its_own_files_are_as_it_sets_them(tmp_path):
    plain = subprocess.run(
        [sys.executable, "-c", SETS, tmp_path], capture_output=True, text=True, check=True
    )
    end = run(tmp_path, sys.executable, "-c", SETS, tmp_path / "trial", within=walled())

    assert (end.exit_code, told(tmp_path)[0]) == (0, plain.stdout), told(tmp_path)


def test_a_terminal_can_be_neither_written_nor_read(tmp_path):
    terminal, name = os.openpty()
    code = '(echo x > "$0") || echo closed; (: < "$0") || echo closed'
    run(tmp_path, "sh", "-c", code, os.ttyname(name), within=walled())

    os.close(terminal)
    os.close(name)
    assert told(tmp_path)[0].split() == ["closed"] * 2


def test_ranks_meet_on_ports_that_nobody_else_sees(tmp_path):
    within = walled()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        code = MEETS.replace("29500", str(other.getsockname()[1]))
        end = run(tmp_path, sys.executable, "-c", code, within=within)

        assert end.exit_code == 0, told(tmp_path)
        met, taken, closed = told(tmp_path)[0].splitlines()
        assert met == f"{other.getsockname()[1]} met"
        assert (taken, closed) == ("Address already in use", "closed")


def test_shared_memory_workers_and_signals_are_the_childs_own(tmp_path):
    within = walled()
    before = set(os.listdir("/dev/shm"))

    end = run(tmp_path, sys.executable, "-c", SHARES, within=within)

    assert end.exit_code == 0, told(tmp_path)
    assert told(tmp_path)[0].splitlines() == ["7 7 True", "3", "{'a': 1}", "-15"]
    assert not {"mine"} & set(os.listdir("/dev/shm"))
    assert {name for name in os.listdir("/dev/shm") if name.startswith("sem.")} <= before


def test_one_that_forks_as_fast_as_it_can_is_caught(tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    for _ in range(5):
        end = run(tmp_path, sys.executable, script, within=walled())

        assert (end.exit_code, told(tmp_path)[0]) == (0, "")


def test_with_a_shared_network_a_script_reaches_its_server_but_no_memory(tmp_path):
    within = require(Tier.GUARDED, share_network=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = POSTS.replace("timeout=5", "timeout=0.01")
        run(tmp_path, sys.executable, "-c", code, port, within=within)
        server.setblocking(False)

        server.accept()[0].close()
    assert within.lacks == ("network",)
    assert not Path("/dev/shm/harm_count").exists()


@pytest.mark.serial  # whatever begins a trial meanwhile sweeps it away
def test_what_a_killed_launcher_left_is_swept_and_no_link_is_followed(tmp_path):
    within = walled()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    code = f"import os, signal, tempfile; os.symlink({str(tmp_path / 'kept')!r}, 'link'); "
    code += "os.makedirs('closed/inner'); os.chmod('closed', 0); open('/dev/shm/left', 'w'); "
    code += "print(tempfile.gettempdir(), flush=True); signal.pause()"
    child = start(tmp_path, sys.executable, "-c", code, within=within)
    try:
        while not (own := told(tmp_path)[0]):
            assert child.poll() is None, told(tmp_path)
        places = [str(tmp_path / "trial" / "shadow"), own.strip()]
        places.append(os.path.dirname(os.readlink(f"{places[0]}/files/dev/shm")))
        assert remove_left(places) == 0
        assert all(map(os.path.isdir, places))
        processes = psutil.Process(child.pid).children(recursive=True)
        os.kill(child.pid, signal.SIGKILL)
        psutil.wait_procs(processes, timeout=LIMIT_S)
    finally:
        child.kill()

    assert set(places[1:]) <= set(temporary_folders())
    assert remove_left(places) == 3
    assert not any(map(os.path.exists, places))
    assert (tmp_path / "kept" / "file").read_text() == "kept"


@needs_torch
@pytest.mark.slow("torchrun and two ranks import torch behind walls")
def test_two_gloo_ranks_meet_on_ports_of_their_own(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29511")

    end = run(tmp_path, sys.executable, *launcher, SPECIMENS / "ddp.py", within=walled())

    assert end.exit_code == 0, told(tmp_path)


@needs_torch
@pytest.mark.slow("workers import torch behind walls")
def test_workers_of_a_loader_work_behind_a_filter(tmp_path):
    end = run(tmp_path, sys.executable, SPECIMENS / "worker_startup.py", within=walled())

    assert end.exit_code == 0, told(tmp_path)
