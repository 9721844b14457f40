"""Two gloo ranks transform gradients as one process with the whole batch does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow("starts two ranks, and imports DTensor in each")

RANK = Path(__file__).parent / "gradient_ranks.py"


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    store = tmp_path_factory.mktemp("ranks") / "store"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(rank), str(store)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        told = [rank.communicate(timeout=240) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], told[0][1].decode()
    return json.loads(told[0][0])


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_ranks_equal_one_process(differences, kind):
    found = {name: one for name, one in differences.items() if name.startswith(kind)}

    assert len(found) == 8
    assert max(found.values()) < 1e-12, found
