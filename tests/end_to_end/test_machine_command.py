"""`steptime machine` with real interpreters: one with torch, one without, several ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads the kernel's files")

LIMIT_S = 300  # three times slower and busy


def words(*arguments: str, store: Path) -> list[str]:
    ours = [sys.executable, "-m", "steptime", "machine", "--python", sys.executable]
    return [*ours, "--store", str(store), "--data", str(store), *arguments]


def machine(*arguments: str, store: Path) -> Any:
    done = subprocess.run(
        [*words(*arguments, store=store), "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow("two measurements of the machine, of twelve seconds at most")
@pytest.mark.serial
@pytest.mark.core
def test_ceilings_are_measured_kept_and_taken_again_and_nothing_is_left(tmp_path: Path) -> None:
    first = machine("--budget", "12s", store=tmp_path)["data"]["ceilings"]
    again = machine("--budget", "12s", store=tmp_path)["data"]["ceilings"]

    found = {(one["kind"], one["dtype"], one["variant"]): one for one in first["ceilings"]}
    product = found["matmul", "fp32", None]
    assert product["rate"]["low"] <= product["rate"]["estimate"] <= product["best_rate"]
    assert product["rate"]["n"] >= 5
    assert first["bench"]["python"] == sys.executable
    # Provisional ones are taken again if the machine is quiet by now.
    is_firm = not any(one["state"]["doubts"] for one in first["ceilings"])
    if first["missing"] in (None, "out_of_time") and is_firm:
        assert again["measured_unix_s"] == first["measured_unix_s"]
    kept = {path.name for path in (tmp_path / ".steptime" / "machine").iterdir()}
    assert kept == {f"{first['fingerprint']}.json"}


def test_a_python_without_torch_gives_the_inventory_and_a_clear_answer(tmp_path: Path) -> None:
    python = tmp_path / "bare"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    document = machine("--python", str(python), store=tmp_path)

    assert document["data"]["inventory"]["cpu"]["num_threads"] >= 1
    assert document["data"]["ceilings"]["missing"] == "no_torch"
    assert document["errors"][0]["code"] == "not_measured"


def test_a_file_that_is_no_python_is_said_to_give_no_answer(tmp_path: Path) -> None:
    python = tmp_path / "odd"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)

    found = machine("--python", str(python), store=tmp_path)["data"]["ceilings"]

    assert found["missing"] == "no_answer"


@pytest.mark.slow("it measures for some seconds before it is interrupted")
@pytest.mark.serial
def test_interrupted_nothing_of_it_goes_on_and_nothing_is_left(tmp_path: Path) -> None:
    child = subprocess.Popen(
        words("--budget", "60s", store=tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert child.stderr is not None
    child.stderr.readline()  # the first figure is there
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=LIMIT_S)

    assert child.returncode == 130
    assert "not all could be measured: it was interrupted" in out
    assert not list(tmp_path.glob("steptime-machine-*"))
    assert not [name for name in _commands() if str(tmp_path) in name]


@pytest.mark.slow("a measurement of fifteen seconds by two ranks")
@pytest.mark.serial
def test_ranks_of_a_launcher_measure_their_collectives_together(tmp_path: Path) -> None:
    result = tmp_path / "machine.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [
            *launcher,
            *("--master-port", "0", "--standalone"),
            *words("--budget", "15s", "--json", str(result), store=tmp_path)[1:],
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())["data"]["ceilings"]["ceilings"]
    together = [one for one in found if one["num_ranks"] is not None]
    assert {one["num_ranks"] for one in together} == {2}
    assert together[0]["kind"] == "all_reduce"
    assert together[0]["rate"] is not None, together[0]


def _commands() -> list[str]:
    """Command lines of what runs, once ended processes had time to go."""
    time.sleep(0.5)
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found
