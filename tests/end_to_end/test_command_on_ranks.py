"""The forecast of a command that starts ranks itself, against two real gloo ranks of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from end_to_end.contained import require
from end_to_end.harness import SCRIPTS, needs_linux, needs_torch
from steptime.isolate.tiers import Tier
from steptime.tune.trials.children.forecast_child import ForecastWish, forecast_in_child

pytestmark = [
    needs_torch,
    needs_linux,
    pytest.mark.slow("torchrun twice, each with two ranks that import torch"),
]


@pytest.mark.parametrize("how", ["zero1", "fsdp2"])
def test_each_rank_of_the_unmodified_command_peaks_where_the_forecast_says(
    how: str, tmp_path: Path
) -> None:
    require(Tier.GUARDED)
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = (*start, "--nproc_per_node", "2", str(SCRIPTS / "train_on_ranks.py"), how)
    here = {**os.environ, "OMP_NUM_THREADS": "1"}
    real = {**here, "TRUTH": str(tmp_path)}
    done = subprocess.run(command, env=real, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    found = forecast_in_child(
        command, here, folder=tmp_path / "child", cwd=tmp_path, wish=ForecastWish(limit_s=300.0)
    )

    assert [(one.rank, one.world_size) for one in found.ranks] == [(0, 2), (1, 2)]
    peaks = []
    for one in found.ranks:
        truth = json.loads((tmp_path / f"{how}-{one.rank}.json").read_text())
        assert one.memory.peak is not None, one.memory.unknown
        assert one.memory.peak.estimate == pytest.approx(truth, rel=0.1)
        peaks.append(one.memory.peak.estimate)
    assert found.memory.peak is not None
    assert found.memory.peak.estimate == max(peaks)
    assert found.script["world_size"] == 2
