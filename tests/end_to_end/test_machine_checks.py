"""`steptime doctor` on this machine: real torch, real kernel, planted variables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

LOG = """\
box:7:9 [0] NCCL INFO Using network Socket
box:7:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0
box:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
"""


# As the installed command is started: the folder that one stands in is not on the path.
START = (
    "import sys; sys.path.remove('')\n"
    "from steptime.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def check(folder, *words, **variables):
    """The document of the command, in a folder, with planted variables."""
    environment = {**os.environ, "PYTHONDEVMODE": "", **variables}
    done = subprocess.run(
        [sys.executable, "-c", START, "doctor", "--json", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, json.loads(done.stdout)


def statuses(document):
    return {row["code"]: row["status"] for row in document["data"]["checks"]}


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*"))


def test_planted_variables_fire_and_nothing_is_written(tmp_path):
    (tmp_path / "nccl.box.7").write_text(LOG)
    before = files_below(tmp_path)

    exit_code, document = check(
        tmp_path,
        "--python",
        sys.executable,
        MALLOC_PERTURB_="165",
        TORCHDYNAMO_DISABLE="1",
        TORCH_DISTRIBUTED_DEBUG="DETAIL",
        NCCL_DEBUG_FILE=str(tmp_path / "nccl.%h.%p"),
    )

    found = statuses(document)
    assert exit_code == 0
    planted = ("malloc_debug", "compile_disabled", "distributed_debug")
    assert [found[code] for code in planted] == ["fires"] * 3
    assert found["nccl_verbose"] == "clean"
    assert document["data"]["basis"]["torch"] is not None
    assert document["data"]["basis"]["nccl"]["transports"] == {"SHM/direct/direct": 1}
    assert not any(row["reason"] == "failed" for row in document["data"]["checks"])
    assert files_below(tmp_path) == before


def test_a_folder_that_has_a_torch_of_its_own_does_not_shadow_the_real_one(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")

    _, document = check(tmp_path, "--python", sys.executable)

    assert document["data"]["basis"]["torch"] is not None


def test_a_gate_counts_what_fires(tmp_path):
    exit_code, document = check(tmp_path, "--fail-on", "warning", MALLOC_PERTURB_="165")

    assert exit_code == 5
    assert document["errors"][0]["code"] == "gate_not_met"
