"""Runs one public training script under Steptime, unmodified, and stops it like Ctrl-C at a limit.

In: its entry in benchmarks/open_scripts.toml, and the folder that holds checkouts, environments and
data. Out: the document that `steptime run --json` wrote, and how the script ended.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _conditions import BENCHMARKS, ENVIRONMENT

PINS = BENCHMARKS / "open_scripts.toml"
QUIET = {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
LADDER = ((signal.SIGINT, 40), (signal.SIGTERM, 20), (signal.SIGKILL, 20))
"""How a script that ran past the limit is stopped, and how long each is waited for [s]."""


def run_script(pin: dict[str, Any], root: Path, limit_s: float) -> dict[str, Any]:
    """One script under Steptime; its document, and how it ended."""

    def fill(text: str) -> str:
        return text.replace("{root}", str(root))

    for path in pin.get("remove_before", ()):
        shutil.rmtree(root / path, ignore_errors=True)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    path = f"{root / pin['venv'] / 'bin'}{os.pathsep}{own['PATH']}"
    more = {name: fill(value) for name, value in pin.get("env", {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        ours = [sys.executable, "-m", "steptime", "run", "--store", folder, "--json", str(out)]
        began = time.monotonic()
        process = subprocess.Popen(
            [*ours, "--", *shlex.split(fill(pin["command"]))],
            cwd=root / pin["folder"],
            env=own | ENVIRONMENT | QUIET | {"PATH": path} | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stopped_by = stop_at(process, min(limit_s, pin.get("interrupt_s", limit_s)))
        document = json.loads(out.read_text()) if out.exists() else {"data": None}
    return {
        "exit_code": process.returncode,
        "wall_s": round(time.monotonic() - began, 1),
        "stopped_by": stopped_by,
        "data": document["data"],
    }


def stop_at(process: subprocess.Popen[bytes], limit_s: float) -> str | None:
    """Wait for the end; past the limit go up the ladder. What stopped it."""
    stopped_by = None
    for number, wait_s in ((None, limit_s), *LADDER):
        if number is not None:
            stopped_by = number.name
            os.killpg(process.pid, number)
        try:
            process.wait(wait_s)
            break
        except subprocess.TimeoutExpired:
            continue
    return stopped_by
