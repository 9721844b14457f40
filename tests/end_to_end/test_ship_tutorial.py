"""The tutorial on a release decision, typed as written: each command, its code and its output."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("mapie")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial/ship-a-model.md").read_text("utf-8")
TYPED = re.findall(r"^```console\n\$ (.+)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)


def told(text: str) -> list[str]:
    """The words of an output: its numbers depend on the processor in their last digits."""
    return re.sub(r"[-+]?\d[\d.,e-]*", "#", text).split()


@pytest.mark.core
@pytest.mark.slow("the whole tutorial: ten commands, and two of them train")
def test_each_command_of_the_page_does_what_the_page_says(tmp_path):
    folder = tmp_path / "digits"
    shutil.copytree(ROOT / "examples/digits", folder)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    commands = [command for command, _ in TYPED if not command.startswith("cp ")]
    assert len(commands) >= 9
    wrong = {}
    for command, output in TYPED:
        if command.startswith("cp "):
            continue
        made = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
        )
        # Without a repair it must not ship.
        code = 5 if command == "steptime verify release release.toml" else 0
        if made.returncode != code or (output and told(made.stdout + made.stderr) != told(output)):
            wrong[command] = (made.returncode, made.stdout[-2000:] + made.stderr[-500:])
    assert not wrong
    assert (folder / "releases.jsonl").read_text().count("\n") == 1
    assert "Ship" in (folder / "decision.html").read_text("utf-8")
