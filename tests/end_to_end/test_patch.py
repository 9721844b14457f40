"""A patched script is proven against its recipe in contained trials, and no file changes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from end_to_end.contained import require
from end_to_end.harness import needs_linux, needs_torch
from patch_cases import LEVERS, WHOLE, patch_of, recipe_of, sites_of
from steptime.isolate.tiers import Tier
from steptime.patch.check_patch import CheckSubject, check_patch
from steptime.patch.notebook_cells import hash_of_kernel
from steptime.tune.values.recipe_values import Recipe
from steptime.tune.values.study_values import Applied
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


def subject_of(tmp_path: Path, recipe: Recipe, **variables: str) -> CheckSubject:
    """The check of a recipe whose script lies in `script`."""
    recipe = replace(recipe, proof=replace(recipe.proof, tuned_step_s=0.1))
    folder, scratch = tmp_path / "script", tmp_path / "scratch"
    handover = patch_of(folder, recipe)
    assert not handover.by_hand
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STEPTIME"))}
    scratch.mkdir()
    return CheckSubject(
        recipe=recipe,
        levers=LEVERS,
        handover=handover,
        cwd=folder,
        environment=own | variables,
        libraries={},
        scratch=scratch,
        budget_s=30.0,
        num_pairs=1,
    )


@pytest.mark.slow("six trials, each of which imports torch")
def test_an_edit_is_proven_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    containment = require(Tier.ISOLATED)
    folder, scratch = tmp_path / "script", tmp_path / "scratch"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    recipe = recipe_of(SCRIPT, WHOLE, command=(sys.executable, "train.py"))
    subject = subject_of(tmp_path, recipe)
    handover = subject.handover

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


REPEATED = """\
import torch
from torch import nn

torch.compiler.set_stance(force_backend="aot_eager")
torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(8), nn.Linear(8, 8)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.mix(self.norm(x))))


model = nn.Sequential(nn.Linear(8, 8), *(Block() for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1500):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow("four trials that import torch's compiler")
def test_blocks_that_the_edit_compiles_train_as_those_of_the_lever(tmp_path: Path) -> None:
    containment = require(Tier.ISOLATED)
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "train.py").write_text(REPEATED)
    blocks = Applied(name="compile", settings={"mode": "default", "scope": "blocks"})
    sites = sites_of(REPEATED, model_call=("block:Block",))
    command = (sys.executable, "train.py")
    recipe = recipe_of(REPEATED, blocks, sites=sites, command=command)
    subject = subject_of(tmp_path, recipe)

    found = check_patch(subject, containment, tell=lambda _: None)

    assert found.losses.outcome is Outcome.PASS, found
    assert found.is_exact
    assert found.speed is not None, found.reason


@pytest.mark.slow("four trials, each of which starts a kernel")
@pytest.mark.skipif(
    find_spec("nbconvert") is None or find_spec("ipykernel") is None,
    reason="nbconvert or ipykernel is not installed",
)
def test_the_cells_of_a_notebook_are_proven(tmp_path: Path) -> None:
    containment = require(Tier.ISOLATED)
    (tmp_path / "script").mkdir()
    head, loop, rest = SCRIPT.partition("for epoch")
    texts = (f"%pwd\n{head.rstrip()}", f"{loop}{rest.rstrip()}")
    cells = [
        {"cell_type": "code", "id": f"c{number}", "metadata": {}, "outputs": []}
        | {"execution_count": None, "source": text}
        for number, text in enumerate(texts)
    ]
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    notebook = json.dumps(document)
    (tmp_path / "script" / "train.ipynb").write_text(notebook)
    command = (sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "train.ipynb")
    sites = sites_of(
        texts[0].replace("%", "#"),
        file=f"/tmp/ipykernel_3/{hash_of_kernel(texts[0])}.py",
        loader=("notebook", "dataset:TensorDataset", "tensor_dataset"),
    )
    recipe = recipe_of(SCRIPT, WHOLE, sites=sites, command=command)
    subject = subject_of(tmp_path, recipe, IPYTHONDIR=str(tmp_path / "ipython"))
    assert [cell.number for cell in subject.handover.cells] == [1]

    found = check_patch(subject, containment, tell=lambda _: None)

    assert found.losses.outcome is Outcome.PASS, found
    assert found.is_exact
    assert found.speed is not None, found.reason
    assert (tmp_path / "script" / "train.ipynb").read_text() == notebook
