"""A contained child writes in every way there is, and everything stays as it was."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from end_to_end.contained import LIMIT_S, fingerprint, living, require, run, start, told
from steptime.isolate.left.writes import tried_writes
from steptime.isolate.tiers import Tier

SCRIPT = Path(__file__).resolve().parent.parent / "specimens" / "writes.py"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
TIERS = (Tier.ISOLATED, Tier.GUARDED)
# What a program in another language, or one that is not Python, is refused where guarded.
REFUSED = {"c_library", "file_store", "shell"}


def specimen():
    spec = importlib.util.spec_from_file_location("writes", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def there(tmp_path):
    """A folder with a file for each way of writing."""
    (tmp_path / "data").mkdir()
    specimen().prepare(tmp_path / "data")
    (tmp_path / "trial").mkdir()
    return tmp_path


@pytest.mark.parametrize("tier", TIERS)
def test_every_way_of_writing_leaves_every_byte_mode_and_time(there, tier):
    within = require(tier)
    before = fingerprint(there)

    run(there, sys.executable, SCRIPT, there / "data", within=within)

    out, err = told(there)
    results = dict(line.split(" ", 1) for line in out.splitlines())
    wrong = {name: result for name, result in results.items() if result != "ok"}
    assert fingerprint(there) == before
    assert set(wrong) <= (REFUSED if tier is Tier.GUARDED else set()), (wrong, err)
    assert len(results) >= 22
    tried = {os.path.basename(path.rstrip("/")) for path in tried_writes(there / "trial")}
    assert {"open_w", "rename", "unlink", "utime", "sqlite.db"} <= tried
    assert "untouched" not in tried


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow("any moment may be late, and what is left ends by itself")
def test_steptime_killed_at_any_moment_leaves_everything_as_it_was(there, tier, seed):
    require(tier)
    before = fingerprint(there)
    command = [sys.executable, SCRIPTS / "contain.py", tier.value, there]
    command += [sys.executable, SCRIPT, there / "data", "--hold"]
    search = os.pathsep.join((str(SCRIPTS.parent.parent), *filter(None, sys.path)))
    environment = {**os.environ, "PYTHONPATH": search}
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    with parent:
        launcher = psutil.Process(int(parent.stdout.readline()))
        time.sleep(random.Random(seed).uniform(0, 3))  # a moment, not a time limit
        os.kill(parent.pid, signal.SIGKILL)

    launcher.wait(LIMIT_S)
    assert living(1, str(there)) == []
    assert fingerprint(there) == before


def test_a_descriptor_that_was_open_before_does_not_reach_the_child(tmp_path):
    within = require(Tier.ISOLATED)
    log = tmp_path / "log"
    log.write_text("as it was")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.set_inheritable(descriptor, True)
    try:
        code = f"import os; os.write({descriptor}, b'more')"
        end = run(tmp_path, sys.executable, "-c", code, within=within)
    finally:
        os.close(descriptor)

    assert end.exit_code == 1
    assert log.read_text() == "as it was"


@pytest.mark.parametrize("tier", TIERS)
def test_a_compiled_cache_is_one_line_of_what_was_tried(there, tier):
    within = require(tier)
    (there / "helper.py").write_text("x = 1")
    code = "import sys; sys.path.insert(0, '.'); sys.dont_write_bytecode = False; import helper"

    run(there, sys.executable, "-c", code, within=within)

    assert tried_writes(there / "trial") in ((f"{there}/__pycache__/",), ())
    assert not (there / "__pycache__").exists()


def test_a_child_that_is_killed_still_tells_what_it_tried(there):
    within = require(Tier.ISOLATED)
    child = start(there, "sh", "-c", "echo > made; sleep 600", within=within)
    while not living(child.pid, "sleep 600"):
        assert child.poll() is None

    child.kill()

    assert tried_writes(there / "trial") == (f"{there}/made",)


def test_a_launcher_that_is_killed_takes_everything_with_it(there):
    within = require(Tier.ISOLATED)
    before = fingerprint(there)
    child = start(there, "sh", "-c", "echo > made; (setsid sleep 603 &); sleep 603", within=within)
    while len(everyone := living(child.pid, "sleep 603")) < 2:
        assert child.poll() is None

    os.kill(child.pid, signal.SIGKILL)

    assert child.wait(LIMIT_S).signal == signal.SIGKILL
    psutil.wait_procs(everyone, timeout=LIMIT_S)
    assert living(1, "sleep 603") == []
    assert fingerprint(there) == before


def test_without_a_process_namespace_daemons_are_found_all_the_same(there):
    within = replace(require(Tier.ISOLATED), has_own_processes=False)
    child = start(there, "sh", "-c", "(setsid sleep 604 &); sleep 604", within=within)
    while len(living(child.pid, "sleep 604")) < 2:
        assert child.poll() is None

    child.kill()

    assert living(1, "sleep 604") == []
