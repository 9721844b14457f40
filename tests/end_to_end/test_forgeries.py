"""What a script does to look better where it is judged: it reads, writes or asks what is ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.contained import require
from end_to_end.harness import needs_linux, needs_torch
from steptime.isolate.child import start_contained
from steptime.isolate.tiers import Tier
from steptime.tune.study.study_folder import open_study
from steptime.tune.trials.observe_baseline import ParentFacts
from steptime.tune.trials.real_bench import RealBench, Subject

pytestmark = [needs_torch, needs_linux]

LOOP = """
import os, sys, threading, time
import torch

def pretend():
    return 0.0

{forgery}

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    time.sleep(0.005 + pretend())
    optimizer.step()
"""


def make_bench(folder: Path, forgery: str, *, tier: Tier, budget_s: float) -> RealBench:
    (folder / "train.py").write_text(LOOP.format(forgery=forgery))
    argv, within = (sys.executable, "train.py"), require(tier)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}

    def begin(environment: Any, *, folder: Path, stdin: Path | None) -> Any:
        return start_contained(
            argv, environment, cwd=there, folder=folder, containment=within, stdin=stdin
        )

    there = folder
    subject = Subject(
        argv=argv,
        environment=own,
        levers={},
        surroundings=ParentFacts(cwd=folder, libraries={}, environment_names=()),
        budget_s=budget_s,
    )
    study = open_study(folder, "key", budget_s=budget_s)
    return RealBench(subject, study, begin, lambda: None)


SLOW_WHERE_JUDGED = """
def pretend():
    return 0.02 * any("guest.trial.trial_guest" in name for name in sys.modules)
"""


@pytest.mark.slow("pairs of processes are made")
@pytest.mark.parametrize(
    ("forgery", "reason"), [(SLOW_WHERE_JUDGED, "slower_in_trials"), ("", None)]
)
def test_a_script_that_is_slower_in_trials_is_refused_with_both_times(tmp_path, forgery, reason):
    bench = make_bench(tmp_path, forgery, tier=Tier.GUARDED, budget_s=3600.0)

    ending = bench.observe().ending

    assert ending.reason == reason
    if reason is not None:
        assert ending.facts["trial_s"] > 0.02 > ending.facts["run_s"] > 0.005
