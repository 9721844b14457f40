"""Redirected, a script sees what it would see, and what was there stays as it was."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.contained import fingerprint
from steptime.isolate import surroundings
from steptime.isolate.tiers import Tier

SCRIPT = Path(__file__).resolve().parent.parent / "specimens" / "file_moves.py"


def prepare(folder: Path) -> Path:
    spec = importlib.util.spec_from_file_location("file_moves", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder.mkdir()
    module.prepare(folder)
    return folder


def redirected(tmp_path: Path, *command: object) -> str:
    """What a Python prints that is redirected, but not guarded."""
    for name in ("trial", "private"):
        (tmp_path / name).mkdir(exist_ok=True)
    private = str(tmp_path / "private")
    trial = str(tmp_path / "trial")
    environment = surroundings._let_in(trial, private, Tier.GUARDED)
    environment |= {"TMPDIR": private, "PYTHONPATH": str(surroundings._SITE)}
    return python(*command, **environment)


def python(*command: object, **variables: str) -> str:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=own | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(text: str, folder: Path) -> dict[str, str]:
    """By step; without names that are drawn by chance, and where the folder lies."""
    text = re.sub(r"tmp\w{8}", "tmp", text.replace(str(folder), "HERE"))
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_a_script_sees_the_same_redirected_and_changes_nothing(tmp_path):
    plain, kept = prepare(tmp_path / "plain"), prepare(tmp_path / "kept")
    before = fingerprint(kept)

    expected = lines(python(SCRIPT, plain), plain)
    found = lines(redirected(tmp_path, SCRIPT, kept), kept)

    assert fingerprint(kept) == before
    assert found == expected
    assert len(found) > 30


def test_what_was_redirected_is_noted_once_by_the_users_path(tmp_path):
    kept = prepare(tmp_path / "kept")

    code = f"import os; os.chdir({str(kept)!r}); [open('a', 'a').close() for _ in range(3)]"
    redirected(tmp_path, "-c", code)

    assert (tmp_path / "trial" / "tried-writes").read_text().splitlines() == [f"{kept}/a"]


def test_reading_is_noted_nowhere_and_copies_nothing(tmp_path):
    kept = prepare(tmp_path / "kept")

    out = redirected(tmp_path, "-c", f"print(open({str(kept / 'a')!r}).read())")

    assert out == "old a\n"
    assert not (tmp_path / "trial" / "tried-writes").exists()
    assert list((tmp_path / "trial" / "shadow" / "files").iterdir()) == []


def test_a_file_too_large_to_copy_is_no_space_left(tmp_path):
    kept = prepare(tmp_path / "kept")
    with open(kept / "huge", "wb") as file:
        file.truncate(3 << 30)  # a hole: it takes no space itself

    code = f"""
try:
    open({str(kept / "huge")!r}, "r+b")
except OSError as error:
    print(error.errno, error.filename)
"""
    assert redirected(tmp_path, "-c", code) == f"28 {kept}/huge\n"


@pytest.mark.parametrize("path", [":memory:", ""])
def test_a_database_in_memory_is_left_alone(tmp_path, path):
    code = f"import sqlite3; print(sqlite3.connect({path!r}).execute('select 1').fetchall())"

    assert redirected(tmp_path, "-c", code) == "[(1,)]\n"
