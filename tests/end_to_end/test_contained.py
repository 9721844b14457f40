"""A child behind walls: it runs as it would, ends when it is told, and harms nothing."""

from __future__ import annotations

import os
import sys

import pytest

from end_to_end.contained import fingerprint, living, require, run, start, told
from steptime.core.types import RunState
from steptime.isolate.tiers import Tier
from steptime.isolate.writes import tried_writes


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


def test_the_child_sees_its_own_user_place_and_python(tmp_path):
    code = "import os, sys; print(os.getuid(), os.getcwd(), sys.executable)"

    run(tmp_path, sys.executable, "-c", code, within=require(Tier.ISOLATED))

    assert told(tmp_path)[0].split() == [str(os.getuid()), str(tmp_path), sys.executable]
