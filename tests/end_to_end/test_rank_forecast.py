"""The forecast of one rank's peak against two real gloo ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from end_to_end.harness import SCRIPTS, needs_linux, needs_torch

pytestmark = [needs_torch, needs_linux]


def the_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rank_peaks", SCRIPTS / "rank_peaks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow("two ranks that share nothing with anybody, and a forecast of each")
def test_each_rank_peaks_where_the_forecast_says(tmp_path: Path) -> None:
    import torch

    import steptime.plan

    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    script = the_script()
    done = subprocess.run(
        [sys.executable, SCRIPTS / "rank_peaks.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr

    for rank in range(script.NUM_RANKS):
        told = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        for name, wrap in script.CASES.items():
            found = steptime.plan.rank_memory(
                script.make(),
                torch.randn(64, 256),
                lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
                steptime.plan.RankPlan(world_size=script.NUM_RANKS, rank=rank, sharding=wrap),
                loss=lambda output: output.square().mean(),
            )
            assert found.peak is not None
            assert found.peak.estimate == pytest.approx(told[name], rel=0.1), name
