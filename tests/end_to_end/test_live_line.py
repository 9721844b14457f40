"""`steptime run --live` on a terminal of its own."""

from __future__ import annotations

import os
import pty
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from end_to_end.harness import STEPTIME, environment, needs_linux, needs_torch

pytestmark = [needs_linux, needs_torch]

SCRIPT = """\
import sys, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
    if step % 10 == 0:
        print(f"step {step}", end="\\r", file=sys.stderr, flush=True)
print("the script's own line")
"""


def on_a_terminal(folder: Path, shell: str, **variables: str) -> tuple[int, str]:
    """Run under `--live` as a shell does with `shell` behind it; its exit code, what was shown."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    words = [*STEPTIME, "run", "--live", "--", sys.executable, str(script)]
    line = f"exec {shlex.join(words)} {shell}"
    env = {**environment(folder), "TERM": "xterm", **variables}
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execve("/bin/sh", ["sh", "-c", line], env)
        finally:
            os._exit(127)
    shown = b""
    with suppress(OSError):  # when nobody has it open any more
        while new := os.read(terminal, 4096):
            shown += new
    _, status = os.waitpid(pid, 0)
    os.close(terminal)  # before the end, it would be a SIGHUP to whoever leads the session
    return os.waitstatus_to_exitcode(status), shown.decode()


@pytest.mark.slow("the line moves once a second, on a terminal")
@pytest.mark.core
def test_the_line_is_on_the_terminal_and_the_output_elsewhere_is_clean(tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, "> log 2>&1")

    assert code == 0
    assert "\r\x1b[Ksteptime " in shown
    assert " updates · " in shown
    assert shown.endswith("\r\x1b[K")
    assert "step 50" not in shown
    log = (tmp_path / "log").read_text()
    assert "\x1b[K" not in log
    assert "the script's own line\n" in log
    assert "step time" in log


@pytest.mark.parametrize("shell", ["", "> log"])
@pytest.mark.slow("a line that did come would do so after a second")
def test_a_script_that_has_the_terminal_keeps_it_alone(tmp_path: Path, shell: str) -> None:
    code, shown = on_a_terminal(tmp_path, shell)

    assert code == 0
    assert shown.startswith(
        "steptime: the live line cannot be shown: the command may write to this terminal as well."
    )
    assert shown.count("the live line cannot be shown") == 1
    assert "> train.log 2>&1" in shown
    assert "\r\x1b[K" not in shown
    assert "\r".join(f"step {n}" for n in range(0, 60, 10)) in shown


@pytest.mark.slow("a line that did come would do so after a second")
def test_a_reader_that_shows_what_the_script_writes_is_not_disturbed(tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, "2>&1 | cat")

    assert code == 0
    assert shown.count("the live line cannot be shown") == 1
    assert "writes to a pipe" in shown
    assert "\r\x1b[K" not in shown
    assert "the script's own line" in shown


@pytest.mark.slow("a line that did come would do so after a second")
def test_a_terminal_that_cannot_take_lines_back_gets_none(tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, "> log 2>&1", TERM="dumb")

    assert code == 0
    assert shown == ""
    assert (tmp_path / "log").read_text().startswith("steptime: the live line cannot be shown: ")
