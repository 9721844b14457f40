"""A patched script is proven against its recipe in contained trials, and no file changes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from end_to_end.contained import require
from end_to_end.harness import needs_linux, needs_torch
from patch_cases import LEVERS, WHOLE, patch_of, recipe_of
from steptime.isolate.tiers import Tier
from steptime.patch.check_patch import CheckSubject, check_patch
from steptime.verify.values import Outcome

pytestmark = [needs_torch, needs_linux]

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=4, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow("six trials, each of which imports torch")
def test_an_edit_is_proven_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    containment = require(Tier.ISOLATED)
    folder, scratch = tmp_path / "script", tmp_path / "scratch"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    command = (sys.executable, "train.py")
    recipe = recipe_of(SCRIPT, WHOLE, command=command)
    recipe = replace(recipe, proof=replace(recipe.proof, tuned_step_s=0.1))
    handover = patch_of(folder, recipe)
    assert not handover.by_hand
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    subject = CheckSubject(
        recipe=recipe,
        levers=LEVERS,
        handover=handover,
        cwd=folder,
        environment=own,
        libraries={},
        scratch=scratch,
        budget_s=30.0,
        num_pairs=1,
    )
    scratch.mkdir()

    found = check_patch(subject, containment, tell=lambda _: None)

    assert found.losses.outcome is Outcome.PASS, found
    assert found.is_exact
    assert found.speed is not None, found.reason
    assert (folder / "train.py").read_text() == SCRIPT
    assert [path.name for path in folder.iterdir()] == ["train.py"]

    wrong = handover.files["train.py"].replace(b"lr=1e-2", b"lr=2e-2")
    again = replace(subject, handover=replace(handover, files={"train.py": wrong}))
    quality = scratch / "quality"
    assert {path.name.partition("-")[0] for path in quality.iterdir()} == {"baseline", "again"}
    found = check_patch(again, containment, tell=lambda _: None)
    assert found.losses.outcome is Outcome.FAIL
