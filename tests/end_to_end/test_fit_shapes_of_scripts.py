"""`steptime plan shapes -- COMMAND`: the script unmodified, contained, its products seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.contained import require
from end_to_end.harness import STEPTIME, environment, needs_linux, needs_torch
from steptime.isolate.tiers import Tier

pytestmark = [
    needs_linux,
    needs_torch,
    pytest.mark.slow("a Python imports torch in a contained child"),
]

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks" / "fit" / "shape_scripts"


def fit(folder: Path, *options: str, command: tuple[str, ...]):
    return subprocess.run(
        [*STEPTIME, "plan", "shapes", "--json", *options, "--", *command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_convnet_with_20_and_50_channels_is_told_of_whole_blocks(tmp_path):
    require(Tier.GUARDED)
    script = str(SCRIPTS / "lenet.py")

    done = fit(tmp_path, "--measure", command=(sys.executable, script))

    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    shapes = data["shapes"]
    page = Path(data["page"]).read_text()
    assert "20 to 32 · lenet.py:" in page
    assert " rounds, cpu time" in page
    found = {(one["old"], one["new"]): one for one in shapes["proposals"]}
    best = found[20, 32]
    assert best["role"] == "channels"
    # The second convolution, and the first one's 5 x 5 kernels.
    assert best["more_parameters"] == 12 * (25 + 50 * 25)
    assert best["places"][0]["file"] == script
    assert best["measured"]["missing"] is None
    assert best["measured"]["gain"] > 1.1
    assert {one["size"]: one["reason"] for one in shapes["kept"]}[1] == "given"
    assert not list((tmp_path / ".steptime").glob("shapes-*"))


def test_a_script_that_never_steps_is_said_to_end_too_early(tmp_path):
    require(Tier.GUARDED)
    (tmp_path / "once.py").write_text("import torch\ntorch.nn.Linear(3, 3)(torch.ones(1, 3))\n")

    done = fit(tmp_path, command=(sys.executable, "once.py"))

    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["errors"][0]["code"] == "script_failed"
    assert "second step" in done.stderr
