"""What the shell gets at a Tab: commands, options, ids and levers, without a slow import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("argcomplete")

RUN, STUDY = "20261120-101500-3fa2", "20261121-101500-aaaa"


def complete(line: str, folder: Path, code: str = "") -> list[str]:
    """The words that the shell is offered behind a line."""
    for kind, name in (("runs", RUN), ("studies", STUDY)):
        (folder / ".steptime" / kind / name).mkdir(parents=True, exist_ok=True)
    file = folder / "offered"
    hook = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom steptime.cli.main import entry; entry()"],
        env={**os.environ, **hook, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(file)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return file.read_text().split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("steptime sho", ["show"]),
        ("steptime data ", ["bench", "check", "convert"]),
        ("steptime show 2026", [STUDY, RUN]),
        ("steptime attach ", ["last", RUN]),
        ("steptime rm ", [STUDY, RUN]),
        ("steptime tune --excl", ["--exclude"]),
        ("steptime tune --levers autocast,channels", ["autocast,channels_last"]),
        ("steptime run -- pyth", []),
    ],
)
def test_a_tab_offers_what_can_stand_there(line: str, offered: list[str], tmp_path: Path) -> None:
    assert complete(line, tmp_path) == offered


def test_a_tab_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    # argcomplete leaves by os._exit, so what it has imported is written before.
    code = """
import os, sys
leave = os._exit
def note(code):
    open("seen", "w").write(" ".join(sys.modules))
    leave(code)
os._exit = note
"""

    complete("steptime show 2", tmp_path, code)

    seen = set((tmp_path / "seen").read_text().split())
    assert "argcomplete" in seen
    assert not seen & {"torch", "numpy", "rich", "msgspec", "psutil", "sqlite3"}
